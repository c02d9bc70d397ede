"""Spot VMs: a place that was short a while ago takes VMs back sooner than one that was not."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.capacity import ClusterSpec, Demand, Member, RegionSpec, Vm, VmState
from core.knowledge import (
    SHORTAGES_MAX,
    Experience,
    Shortage,
    taken_after_shortage,
    with_shortage,
)
from core.timers import Timers
from orchestrator.fold import fold
from orchestrator.outlook import outlooks
from orchestrator.picture import Picture
from tests.builders import NOW, at, cluster, snapshot, vm

TIMERS = Timers()
V = VmState
HERE = "us-central1"
PLACE = Experience(HERE, "", "g2-standard-4", True, updated_at=NOW)


def spot() -> ClusterSpec:
    return cluster(vm_max=60, spot=True, regions=(RegionSpec(HERE, (f"{HERE}-a",), 9.0, 2.0),))


def running(name: str) -> Vm:
    return vm(
        name, V.READY, region=HERE, spot=True, running_since=at(-600), instance_id=f"i-{name}"
    )


def price(known: Experience, now: datetime = NOW, number: int = 1) -> float:
    spec = spot()
    picture = Picture(spec, Demand(spec.name), (), (), experience=(known,))
    return outlooks(picture, TIMERS, now)[HERE].price_of(number)


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
    pictures = [
        Picture(standard, Demand(standard.name), (), (), experience=e) for e in ((), (known,))
    ]
    one, other = (outlooks(p, TIMERS, NOW)[HERE].risk.of(3) for p in pictures)
    assert one == other == 0.0


def test_taken_vms_are_a_shortage_of_what_is_left() -> None:
    spec, vms = spot(), [running(f"vm-{i}") for i in range(5)]
    left = [Member(v.name, f"{HERE}-a", "NONE", "RUNNING", v.instance_id) for v in vms[:3]]
    found = fold(snapshot(*left), spec, vms, (), frozenset(), TIMERS, NOW).experience
    assert [e.shortages for e in found if not e.zone] == [(Shortage(3, NOW),)]


def test_vms_that_we_delete_are_none() -> None:
    spec = spot()
    ours = replace(running("vm-1"), state=V.DELETING)
    found = fold(snapshot(), spec, [ours], (), frozenset(), TIMERS, NOW).experience
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
        whole = taken_after_shortage(everything, number, now)
        assert taken_after_shortage(steps, number, now) == whole
