"""Replays as values: what is replayed under which policy, run side by side."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sim.replay.engine import ReplayCloud, VmPolicy
from sim.replay.figures import ReplayFigures
from sim.replay.physics import ReplayPhysics
from sim.replay.product import Product, Setup
from sim.replay.supply import Supply
from sim.replay.workload import Workload

OURS: Final = "ours"


def product_only(name: str, cloud: ReplayCloud, setup: Setup, seed: int) -> VmPolicy:
    """The product's own planners: the policy of every case outside the benchmarks."""
    assert name == OURS, name
    return Product(cloud, setup, seed=seed)


@dataclass(frozen=True, slots=True)
class ReplayCase:
    """One replay."""

    jobs: str
    supply: str
    policy: str
    physics: ReplayPhysics
    setup: Setup
    rotation: int = 0
    rotations: int = 1
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Traces:
    """What the cases name: jobs, supplies and policies."""

    jobs: Mapping[str, Workload]
    supplies: Mapping[str, Supply]
    policy_of: Callable[[str, ReplayCloud, Setup, int], VmPolicy] = product_only


def run_case(case: ReplayCase, traces: Traces) -> ReplayFigures:
    """One replay from its inputs alone: the same case gives the same figures."""
    supply = traces.supplies[case.supply]
    offset_s = supply.period_s * case.rotation / case.rotations
    seed = case.seed * 1000 + case.rotation
    cloud = ReplayCloud(supply, case.physics, seed=seed, offset_s=offset_s)
    policy = traces.policy_of(case.policy, cloud, case.setup, seed)
    return cloud.play(traces.jobs[case.jobs], policy)


_traces: Traces | None = None


def _remember(traces: Traces) -> None:
    global _traces  # noqa: PLW0603  # each worker process is given the traces once
    _traces = traces


def _run(numbered: tuple[int, ReplayCase]) -> tuple[int, ReplayFigures]:
    assert _traces is not None, "the pool hands the traces over before the first case"
    return numbered[0], run_case(numbered[1], _traces)


def run_cases(
    cases: Sequence[ReplayCase],
    traces: Traces,
    workers: int,
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[ReplayFigures]:
    """The figures of all cases, in the order of the cases."""
    found: dict[int, ReplayFigures] = {}
    for number, figures in _all(cases, traces, workers):
        found[number] = figures
        told(len(found), len(cases))
    return [found[number] for number in range(len(cases))]


def _all(
    cases: Sequence[ReplayCase], traces: Traces, workers: int
) -> Iterator[tuple[int, ReplayFigures]]:
    if workers <= 1 or len(cases) == 1:
        yield from ((i, run_case(case, traces)) for i, case in enumerate(cases))
        return
    # Forked workers have everything loaded; where that is not safe they load it themselves.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with context.Pool(min(workers, len(cases)), _remember, (traces,)) as pool:
        yield from pool.imap_unordered(_run, list(enumerate(cases)))
