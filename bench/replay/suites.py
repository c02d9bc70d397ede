"""The policies of the capacity benchmark by name, and what many replays say together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.replay.rivals import CountOracle, Failover, ScaleEveryRegion, single_region
from sim.replay.cases import OURS
from sim.replay.engine import ReplayCloud, VmPolicy
from sim.replay.product import Product, Setup

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
