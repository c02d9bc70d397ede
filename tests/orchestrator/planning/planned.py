"""Plans of one cluster, for tests."""

from __future__ import annotations

from dataclasses import replace

from core.actions import Action, Create
from core.cluster import ClusterSpec
from core.demand import Demand, VmRequest
from core.region_blocks import BlockKind, RegionBlock
from core.supply import SupplyHistory, SupplyOutcome
from core.timers import Timers
from core.vm import Vm, VmState
from orchestrator.planning.plan import plan_cluster
from orchestrator.planning.plan_input import PlanInput
from tests.builders import NAMES, NOW, at, cluster, dice

TIMERS = Timers()
V = VmState


def plan(
    demand: int = 0,
    *vms: Vm,
    spec: ClusterSpec | None = None,
    blocks: tuple[RegionBlock, ...] = (),
    regions: tuple[str, ...] = (),
    now_s: float = 0,
) -> tuple[Action, ...]:
    wanted = Demand("1xl4", (VmRequest(regions),) * demand)
    inputs = PlanInput(spec or cluster(), wanted, vms, blocks, frozenset())
    return plan_cluster(inputs, NAMES, TIMERS, dice(), at(now_s))


def blocked(region: str, until_s: float, kind: BlockKind = BlockKind.STOCKOUT) -> RegionBlock:
    return RegionBlock(
        region, "", "g2-standard-4", False, kind, NOW, NOW, at(until_s), 1, "no GPUs"
    )


def inputs_of(demand: tuple[VmRequest, ...], *vms: Vm, **changes: object) -> PlanInput:
    made = PlanInput(cluster(), Demand("1xl4", demand), vms, ())
    return replace(made, **changes)  # type: ignore[arg-type]


def creates(inputs: PlanInput, now_s: float = 0) -> dict[str, int]:
    actions = plan_cluster(inputs, NAMES, TIMERS, dice(), at(now_s))
    return {a.region: len(a.names) for a in actions if isinstance(a, Create)}


def flat(*prices: float) -> ClusterSpec:
    """A cluster whose regions cost this much."""
    spec = cluster()
    pairs = zip(spec.regions, prices, strict=True)
    return replace(spec, regions=tuple(replace(r, usd_per_hour=usd) for r, usd in pairs))


def seen(region: str, last: SupplyOutcome, ago_s: float = 600) -> SupplyHistory:
    hits, misses = (5.0, 0.0) if last is SupplyOutcome.HIT else (0.0, 5.0)
    then = at(-ago_s)
    return SupplyHistory(region, "", "g2-standard-4", False, then, hits, misses, last, then)
