"""Which region a plan asks, by what regions delivered, refused and cost."""

from __future__ import annotations

from dataclasses import replace

from core.actions import Delete, Undrain
from core.demand import Demand, VmRequest
from core.supply import CapacityPolicy, SupplyOutcome
from orchestrator.planning.analysis import survey
from orchestrator.planning.plan import look_again, plan_cluster
from tests.builders import NAMES, NOW, REGIONS, cluster, dice, vm
from tests.orchestrator.planning.planned import (
    TIMERS,
    V,
    blocked,
    creates,
    flat,
    inputs_of,
    plan,
    seen,
)


def test_region_that_refused_lately_comes_after_one_that_delivers() -> None:
    """Within the price band the success probability decides, beyond it the price."""
    known = (seen("us-central1", SupplyOutcome.MISS), seen("us-east1", SupplyOutcome.HIT))
    near = inputs_of((VmRequest(),), spec=flat(1.0, 1.1, 1.2), supply=known)
    assert creates(near) == {"us-east1": 1}
    assert "us-central1" in creates(replace(near, spec=flat(1.0, 2.0, 3.0)))


def test_doubtful_request_gets_company() -> None:
    """Asked beside the best one, because that one may fail; a sure one stays alone, and so does
    one of which nothing is known."""
    doubtful = replace(seen("us-central1", SupplyOutcome.HIT, 0), last=None, hits=0.0, misses=1.5)
    known = (doubtful, seen("us-east1", SupplyOutcome.HIT))
    unsure = inputs_of((VmRequest(since=NOW),), spec=flat(1.0, 1.2, 9.0), supply=known)
    unsure = replace(unsure, policy=CapacityPolicy(belief_bar=0.4))
    assert creates(unsure) == {"us-central1": 1, "us-east1": 1}
    sure = replace(unsure, supply=(seen("us-central1", SupplyOutcome.HIT), known[1]))
    assert creates(sure) == {"us-central1": 1}
    assert creates(replace(unsure, supply=())) == {"us-central1": 1}


def test_several_requests_need_more_doubt_to_get_company() -> None:
    """One of two may fail: whatever becomes free first serves who is left. Of three, one nearly
    surely does: a fourth is asked for."""
    doubtful = replace(seen("us-central1", SupplyOutcome.HIT, 0), last=None, hits=1.5, misses=1.5)
    known = (doubtful, seen("us-east1", SupplyOutcome.HIT))
    spec = replace(flat(1.0, 1.2, 9.0), vm_max=9)
    two, three = (inputs_of((VmRequest(since=NOW),) * n, spec=spec, supply=known) for n in (2, 3))
    assert [sum(creates(inputs).values()) for inputs in (two, three)] == [2, 4]


def test_many_vm_requests_are_spread_by_what_regions_give() -> None:
    """A region is asked for as many at once as it has shown that it gives; the rest goes on."""
    small = replace(seen("us-central1", SupplyOutcome.HIT, 0), room=2.0)
    wide = inputs_of(
        (VmRequest(),) * 6, spec=replace(flat(1.0, 1.02, 1.04), vm_max=6), supply=(small,)
    )
    assert creates(wide) == {"us-central1": 2, "us-east1": 4}


def test_dear_region_is_asked_when_the_wait_has_cost_as_much() -> None:
    """Not while the cheap ones are blocked for a moment, but not never."""
    blocks = tuple(blocked(region, 9e6) for region in REGIONS[:2])
    dear = inputs_of((VmRequest(since=NOW),), spec=flat(1.0, 1.0, 9.0), blocks=blocks)
    assert "europe-west4" not in creates(dear, 600)
    look = look_again(survey(dear, TIMERS, NOW))
    assert look is not None
    assert "europe-west4" in creates(dear, 2400)
    nobody = replace(dear, policy=CapacityPolicy(waiting_usd_per_gpu_hour=0.0))
    assert "europe-west4" not in creates(nobody, 10 * 86400)


def test_deadline_lifts_the_price() -> None:
    """A job that must start now takes what there is, within its own cap."""
    blocks = tuple(blocked(region, 9e6) for region in REGIONS[:2])
    late = VmRequest(since=NOW, start_by=NOW)
    urgent = inputs_of((late,), spec=flat(1.0, 1.0, 9.0), blocks=blocks)
    assert creates(urgent)["europe-west4"] == 1
    capped = replace(urgent, demand=Demand("1xl4", (replace(late, max_usd_per_hour=5.0),)))
    assert "europe-west4" not in creates(capped)


def test_drain_is_cancelled_when_work_returns() -> None:
    """Unless the delete was asked for already."""
    leaving = vm("vm-1", V.DRAINING, reason="idle for 300 s")
    back = inputs_of((VmRequest(),), leaving)
    assert plan_cluster(back, NAMES, TIMERS, dice(), NOW) == (
        Undrain("vm-1", "there is work for it again"),
    )
    asked = replace(back, asked=frozenset({"vm-1"}))
    assert creates(asked) == {"us-central1": 1}


def test_refused_request_stands_as_a_probe_and_its_siblings_go() -> None:
    """The group tries again by itself: one name is enough to see the end of a stockout."""
    refused = [vm(f"vm-{i}", V.BOOTING, refused=True) for i in range(3)]
    young = vm("vm-9", V.BOOTING)
    actions = plan(
        4, *refused, young, spec=cluster(vm_max=20), blocks=(blocked("us-central1", 60),)
    )
    deleted = [name for a in actions if isinstance(a, Delete) for name in a.names]
    assert deleted == ["vm-1", "vm-2"]


def test_probes_make_room_for_a_region_that_may_deliver() -> None:
    """The limit counts names without a VM too."""
    standing = [vm(f"vm-{i}", V.BOOTING, refused=True, region=r) for i, r in enumerate(REGIONS[1:])]
    blocks = tuple(blocked(region, 60) for region in REGIONS[1:])
    actions = plan(1, *standing, spec=cluster(vm_max=2), blocks=blocks)
    assert sum(len(a.names) for a in actions if isinstance(a, Delete)) == 1
