"""Spot VMs: a place that was short a while ago takes VMs back sooner than one that was not."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cluster import ClusterSpec, RegionSpec
from core.demand import Demand
from core.mig import MachineState, ManagedInstance
from core.supply import (
    SHORTAGES_MAX,
    Shortage,
    SupplyHistory,
    SupplyOutcome,
    after_taking,
    reclaimed_after_shortage,
    room,
    success_probability,
    with_shortage,
)
from core.timers import Timers
from core.vm import Vm, VmState
from orchestrator.planning.plan_input import PlanInput
from orchestrator.planning.region_estimates import Outlooks
from tests.builders import NOW, at, cluster, observed, vm
from tests.orchestrator.folding import fold_in

TIMERS = Timers()
V = VmState
HERE = "us-central1"
PLACE = SupplyHistory(HERE, "", "g2-standard-4", True, updated_at=NOW)


def spot() -> ClusterSpec:
    return cluster(vm_max=60, spot=True, regions=(RegionSpec(HERE, (f"{HERE}-a",), 9.0, 2.0),))


def running(name: str) -> Vm:
    return vm(
        name, V.READY, region=HERE, spot=True, running_since=at(-600), instance_id=f"i-{name}"
    )


def price(known: SupplyHistory, now: datetime = NOW, number: int = 1) -> float:
    spec = spot()
    inputs = PlanInput(spec, Demand(spec.name), (), (), supply=(known,))
    return Outlooks(inputs, TIMERS, now)[HERE].price_of(number)


def test_shortage_makes_a_place_dearer_and_wears_off() -> None:
    calm, short = price(PLACE), with_shortage(PLACE, 0, NOW)
    prices = [price(short, NOW + timedelta(hours=h)) for h in (0, 1, 3, 8)]
    assert prices == sorted(prices, reverse=True)
    assert prices[0] > calm
    assert price(short, NOW + timedelta(days=3)) == pytest.approx(calm, abs=0.01)


def test_those_that_it_kept_are_as_safe_as_before() -> None:
    """It left nine: the ninth is not dearer than it was, the tenth is."""
    nine = with_shortage(PLACE, 9, NOW)
    assert price(nine, number=9) == price(PLACE, number=9)
    assert price(nine, number=10) > price(PLACE, number=10)


def test_standard_vms_are_not_taken() -> None:
    standard = replace(spot(), spot=False)
    known = with_shortage(replace(PLACE, spot=False), 0, NOW)
    inputs_strategy = [
        PlanInput(standard, Demand(standard.name), (), (), supply=e) for e in ((), (known,))
    ]
    one, other = (Outlooks(p, TIMERS, NOW)[HERE].risk.of(3) for p in inputs_strategy)
    assert one == other == 0.0


def test_taken_vms_are_a_shortage_of_what_is_left() -> None:
    spec, vms = spot(), [running(f"vm-{i}") for i in range(5)]
    left = [
        ManagedInstance(v.name, f"{HERE}-a", MachineState.RUNNING, v.instance_id) for v in vms[:3]
    ]
    found = fold_in(observed(*left), spec, vms, NOW).supply
    assert [e.shortages for e in found if not e.zone] == [(Shortage(3, NOW),)]


def test_what_takes_vms_back_has_none_to_give_for_a_while() -> None:
    """The last that was seen of it is that it lacks VMs. No request missed, so what it gives on the
    whole and how many at once stay; the next delivery makes it good again."""
    spec, vms = spot(), [running("vm-1"), running("vm-2")]
    before = replace(PLACE, hits=9.0, last=SupplyOutcome.HIT, last_at=NOW, room=8.0)
    left = ManagedInstance("vm-1", f"{HERE}-a", MachineState.RUNNING, "i-vm-1")
    folded = fold_in(observed(left), spec, vms, NOW, supply=(before,))
    (after,) = [e for e in folded.supply if not e.zone]
    assert after.last is SupplyOutcome.RECLAIMED
    assert (after.hits, after.misses, after.room) == (9.0, 0.0, 8.0)
    probabilities = [
        success_probability(after, NOW + timedelta(minutes=m)) for m in (0, 10, 60, 600)
    ]
    assert probabilities == sorted(probabilities)
    assert probabilities[0] == 0.0 < probabilities[1] < 0.25 < probabilities[2]
    born = vm("vm-3", V.BOOTING, region=HERE, spot=True, requested_at=NOW, running_since=None)
    came = ManagedInstance("vm-3", f"{HERE}-a", MachineState.RUNNING, "i-vm-3")
    healed = fold_in(
        *(observed(left, came), spec, [vms[0], born], NOW),
        supply=(after,),
    )
    assert [success_probability(e, NOW) for e in healed.supply if not e.zone] == [1.0]


def test_what_was_forgotten_stays_forgotten() -> None:
    """How many may be asked for at once fades with the newest sighting; a taking is one, and
    revives nothing that was seen days ago."""
    old = replace(PLACE, last=SupplyOutcome.HIT, last_at=NOW - timedelta(days=5), room=32.0)
    assert room(after_taking(old, NOW), NOW) == room(old, NOW) == 4


def last_seen(gone: Vm, left: int = 0) -> SupplyOutcome | None:
    """Of a place that delivered a minute ago, after that VM has gone and so many have stayed."""
    stay = [running(f"stays-{i}") for i in range(left)]
    members = [
        ManagedInstance(v.name, f"{HERE}-a", MachineState.RUNNING, v.instance_id) for v in stay
    ]
    hit = replace(PLACE, hits=9.0, last=SupplyOutcome.HIT, last_at=at(-60))
    found = fold_in(
        *(observed(*members), spot(), [gone, *stay], NOW),
        supply=(hit,),
    )
    return next(e.last for e in found.supply if not e.zone)


def test_an_old_taking_does_not_overtake_a_delivery() -> None:
    """It was off three minutes ago, and is found gone now: a VM came in between."""
    one = running("vm-1")
    assert last_seen(one) is SupplyOutcome.RECLAIMED
    leaves = replace(one, state=V.DELETING, taken=True)
    assert last_seen(replace(leaves, state_since=at(-180))) is SupplyOutcome.HIT
    assert last_seen(replace(leaves, state_since=at(-30))) is SupplyOutcome.RECLAIMED


def test_one_of_many_is_no_shortage_of_all() -> None:
    assert last_seen(running("vm-1"), left=9) is SupplyOutcome.RECLAIMED
    assert last_seen(running("vm-1"), left=10) is SupplyOutcome.HIT


def test_v1_workers_delete_their_vms_themselves() -> None:
    """They are kept for that once they have done their one job."""
    done = replace(running("vm-1"), state=V.DRAINING, kept_until=at(60))
    assert last_seen(done) is SupplyOutcome.HIT
    off = ManagedInstance(done.name, f"{HERE}-a", MachineState.STOPPING, done.instance_id)
    (seen,) = fold_in(observed(off), spot(), [done], NOW).vms
    assert not seen.taken


def test_vms_that_we_delete_are_none() -> None:
    spec = spot()
    ours = replace(running("vm-1"), state=V.DELETING)
    found = fold_in(observed(), spec, [ours], NOW).supply
    assert all(e.shortages == () for e in found)


sightings = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 600)), max_size=60)


@given(sightings, st.integers(1, 41))
def test_staircase_says_what_all_sightings_say(seen: list[tuple[int, int]], number: int) -> None:
    """What is left out would not have been looked at, as long as the record is not full; it is
    bounded, and in the order of depth and of time."""
    now, known, everything = NOW, PLACE, []
    for kept, later_s in seen:
        now += timedelta(seconds=later_s)
        known = with_shortage(known, kept, now)
        everything.append(Shortage(kept, now))
    steps = known.shortages
    assert list(steps) == sorted(steps, key=lambda s: s.kept) == sorted(steps, key=lambda s: s.at)
    assert len(steps) <= SHORTAGES_MAX
    if len(steps) < SHORTAGES_MAX:
        whole = reclaimed_after_shortage(everything, number, now)
        assert reclaimed_after_shortage(steps, number, now) == whole
