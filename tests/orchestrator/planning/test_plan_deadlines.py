"""A job with a deadline spends its slack on a better price, and no more than its slack."""

from __future__ import annotations

from core.actions import Create, NoAction
from core.demand import Demand, VmRequest
from core.region_blocks import BlockKind, RegionBlock
from core.supply import SupplyHistory, SupplyOutcome
from core.timers import Timers
from orchestrator.planning.analysis import survey
from orchestrator.planning.plan import look_again, plan_cluster
from orchestrator.planning.plan_input import PlanInput
from tests.builders import NAMES, NOW, REGIONS, at, cluster, dice

HOUR_S = 3600.0
SPEC = cluster()
CHEAP, DEARER, DEAREST = REGIONS
"""At $1, $2 and $3 per hour."""


def request(start_by_h: float, left_h: float = 1.0) -> VmRequest:
    return VmRequest(since=NOW, start_by=at(start_by_h * HOUR_S), left_s=left_h * HOUR_S)


def inputs(wanted: VmRequest, *blocked: str, supply: tuple[SupplyHistory, ...] = ()) -> PlanInput:
    blocks = tuple(
        RegionBlock(
            region, "", SPEC.machine_type, False, BlockKind.STOCKOUT, NOW, NOW, at(1e7), 1, ""
        )
        for region in blocked
    )
    return PlanInput(SPEC, Demand(SPEC.name, (wanted,)), (), blocks, supply=supply)


def asked(seen: PlanInput, second: float) -> list[str]:
    """Regions that a VM is asked for, but for the standing requests that await a stockout's end."""
    actions = plan_cluster(seen, NAMES, Timers(), dice(), at(second))
    blocked = {block.region for block in seen.blocks}
    return [a.region for a in actions if isinstance(a, Create) and a.region not in blocked]


def test_slack_is_spent_on_waiting() -> None:
    """The cheap region is stocked out and the next one costs twice as much: a job without a
    deadline pays it at once, one that has time does not, however long it has waited."""
    assert asked(inputs(VmRequest(since=NOW), CHEAP), 0) == [DEARER]
    for hour in (0, 1, 10, 99):
        assert asked(inputs(request(100.0), CHEAP), hour * HOUR_S) == []


def test_any_price_when_the_slack_is_gone() -> None:
    """From its latest start on it takes what there is, and the plan looks again at that moment."""
    seen = inputs(request(2.0, left_h=0.1), CHEAP, DEARER)
    assert asked(seen, HOUR_S) == []
    assert asked(seen, 2 * HOUR_S) == [DEAREST]
    look = look_again(survey(seen, Timers(), at(2 * HOUR_S - 10)))
    assert look is not None
    assert look <= at(2 * HOUR_S + 1)


def test_dearer_places_as_far_as_they_are_needed() -> None:
    """The cheap region hardly ever has a VM, and most of the time is needed for the run: after a
    part of the slack the next one is good enough, the dearest is not."""
    known = SupplyHistory(
        CHEAP, "", SPEC.machine_type, False, NOW, hits=0.0, misses=20.0, last=SupplyOutcome.MISS
    )
    seen = inputs(request(10.0, left_h=10.0), CHEAP, supply=(known,))
    assert asked(seen, 0) == []
    assert asked(seen, 2.5 * HOUR_S) == [DEARER]
    assert asked(inputs(request(10.0, left_h=0.1), CHEAP, supply=(known,)), 2.5 * HOUR_S) == []


def test_it_says_what_it_waits_for() -> None:
    """The region that is too dear for now is named with its price."""
    actions = plan_cluster(inputs(request(100.0), CHEAP), NAMES, Timers(), dice(), NOW)
    (word,) = [a.reason for a in actions if isinstance(a, NoAction) and a.region == DEARER]
    assert word == "$2.00 per hour is not worth it yet, cheaper ones may deliver"
