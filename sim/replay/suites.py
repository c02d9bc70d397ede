"""Many replays: cases as values, run side by side, and what they say together."""

from __future__ import annotations

import math
import multiprocessing
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sim.replay.engine import ReplayCloud, VmPolicy
from sim.replay.figures import ReplayFigures
from sim.replay.physics import ReplayPhysics
from sim.replay.product import Product, Setup
from sim.replay.rivals import CountOracle, Failover, ScaleEveryRegion, single_region
from sim.replay.supply import Supply
from sim.replay.workload import Workload

OURS: Final = "ours"
POLICIES: Final = (
    OURS, "ours-untold", "scale-every", "scale-reuse", "sequential", "single", "oracle",
    "oracle-told",
)  # fmt: skip
# The same policies with and without the notice of a preemption: without spot there is none.
SPOT_ONLY: Final = frozenset({"ours-untold", "oracle-told"})
WORDS: Final[Mapping[str, str]] = {
    OURS: "this planner",
    "ours-untold": "this planner, jobs not told",
    "scale-every": "scale every region",
    "scale-reuse": "same, at once, VMs reused",
    "sequential": "sequential failover",
    "single": "single region",
    "oracle": "knows the counts, cold VMs",
    "oracle-told": "knows the counts, jobs told",
}
# 97.5 % points of Student's t by degrees of freedom; beyond the table the normal one is near.
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)


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
    """What the cases speak of, by name."""

    jobs: Mapping[str, Workload]
    supplies: Mapping[str, Supply]


def policy_of(name: str, cloud: ReplayCloud, setup: Setup, seed: int) -> VmPolicy:
    """The policy by its name."""
    match name:
        case "ours":
            return Product(cloud, setup, seed=seed)
        case "ours-untold":
            return Product(cloud, setup, seed=seed, heeds_notices=False)
        case "scale-every":
            return ScaleEveryRegion(setup.vm_max)
        case "scale-reuse":
            return ScaleEveryRegion(setup.vm_max, reuse=True, loop_s=0.0)
        case "sequential":
            return Failover(cloud, setup.vm_max)
        case "single":
            return single_region(cloud, setup.vm_max)
        case "oracle":
            return CountOracle(cloud, setup.vm_max)
        case "oracle-told":
            return CountOracle(cloud, setup.vm_max, heeds_notices=True)
        case _:
            raise ValueError(f"no policy is named {name!r}: there are {', '.join(POLICIES)}")


def run_case(case: ReplayCase, traces: Traces) -> ReplayFigures:
    """One replay from its inputs alone: the same case gives the same figures."""
    supply = traces.supplies[case.supply]
    offset_s = supply.period_s * case.rotation / case.rotations
    seed = case.seed * 1000 + case.rotation
    cloud = ReplayCloud(supply, case.physics, seed=seed, offset_s=offset_s)
    return cloud.play(traces.jobs[case.jobs], policy_of(case.policy, cloud, case.setup, seed))


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
    """All of them, in the order given whoever was faster."""
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


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over rotations and how far the true one may be from it (95 %)."""

    mean: float
    half: float


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and half of its 95 % interval; of one value the interval is not known."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, math.nan)
    t = _T[len(values) - 2] if len(values) - 2 < len(_T) else 1.96
    return Estimate(mean, t * statistics.stdev(values) / math.sqrt(len(values)))
