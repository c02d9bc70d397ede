"""Success probabilities, spans and floors: the arithmetic of what regions have shown."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.floors import Floor, floor_at, parse_clock, parse_days
from core.supply import (
    ARRIVALS_MAX,
    CapacityPolicy,
    DurationEstimate,
    SupplyHistory,
    SupplyOutcome,
    arrivals_by_cluster,
    faded,
    preemptions_per_hour,
    room,
    success_probability,
)

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)  # a Thursday
PLACE = SupplyHistory("us-central1", "", "g2-standard-4", False, updated_at=NOW)


def seen(hits: float, misses: float, last: SupplyOutcome, hours_ago: float) -> SupplyHistory:
    at = NOW - timedelta(hours=hours_ago)
    return replace(PLACE, hits=hits, misses=misses, last=last, last_at=at)


def test_success_probability_moves_from_the_last_outcome_to_the_mean() -> None:
    """Fresh news is nearly all; after an hour it counts half."""
    mean = (6 + 1.5) / 10
    assert success_probability(seen(6, 2, SupplyOutcome.MISS, 0), NOW) == 0.0
    assert success_probability(seen(6, 2, SupplyOutcome.MISS, 1), NOW) == pytest.approx(mean / 2)
    assert success_probability(seen(6, 2, SupplyOutcome.HIT, 1), NOW) == pytest.approx(
        (1 + mean) / 2
    )
    assert success_probability(seen(6, 2, SupplyOutcome.MISS, 1000), NOW) == pytest.approx(
        mean, abs=0.01
    )


def test_hint_is_as_good_as_a_hit() -> None:
    """The cloud has named the place itself."""
    assert success_probability(seen(0, 3, SupplyOutcome.HINT, 0), NOW) == 1.0


def test_unknown_place_gets_the_benefit_of_the_doubt() -> None:
    """Most zones can give a VM most of the time."""
    assert success_probability(None, NOW) == 0.75


def test_memory_fades_by_halves() -> None:
    """After a half-life everything counts half, and the times stay what they were."""
    known = replace(
        seen(8, 4, SupplyOutcome.HIT, 0), delivery=DurationEstimate(6.0, math.log(46), 0.01)
    )
    later = faded(known, NOW + timedelta(days=1), 86400.0)
    assert (later.hits, later.misses, later.delivery.weight) == (4.0, 2.0, 3.0)
    assert later.delivery.usual_s == pytest.approx(46)


@given(st.lists(st.floats(1, 10_000), min_size=1, max_size=50))
def test_spread_is_mean_and_deviation_of_the_logarithms(spans: list[float]) -> None:
    """Added one by one, the same as all at once."""
    spread = DurationEstimate()
    for span in spans:
        spread = spread.add(span)
    logs = [math.log(span) for span in spans]
    mean = sum(logs) / len(logs)
    assert spread.log_mean == pytest.approx(mean, abs=1e-6)
    assert spread.log_var == pytest.approx(sum((x - mean) ** 2 for x in logs) / len(logs), abs=1e-6)
    assert spread.late_s >= spread.usual_s * 0.999


def test_preemptions_begin_with_a_guess_and_end_with_the_count() -> None:
    """Ten hours of guess weigh little against a thousand of supply history."""
    assert preemptions_per_hour(None, 0.0, NOW) == pytest.approx(0.1)
    known = replace(PLACE, preempted=300.0, vm_hours=900.0)
    assert preemptions_per_hour(known, 90.0, NOW) == pytest.approx(0.301, abs=0.001)


def test_room_is_what_was_learned_and_forgets() -> None:
    """A region that refused is asked for few at once; after a while for as many as any other."""
    refused = replace(seen(0, 1, SupplyOutcome.MISS, 0), room=1.0)
    assert room(refused, NOW) == 1
    assert room(refused, NOW + timedelta(days=3)) == room(None, NOW) == 4


def test_arrivals_of_a_full_list_reach_back_to_its_oldest() -> None:
    """What was cut off is neither counted nor waited for."""
    newest = [("a" if i % 2 else "b", NOW - timedelta(seconds=i)) for i in range(ARRIVALS_MAX)]
    found = arrivals_by_cluster(newest, NOW)
    assert found["a"].since == newest[-1][1]
    assert list(found["b"].times) == sorted(at for name, at in newest if name == "b")


def test_policy_faults_name_the_key() -> None:
    """Values that would break a guarantee are refused, all at once."""
    policy = CapacityPolicy(slack=0, price_band=0.5, search_band=0.4, belief_bar=1.5)
    names = [fault.field for fault in policy.faults()]
    assert names == ["capacity.slack", "capacity.search_band", "capacity.belief_bar"]


def test_floor_holds_by_the_clock_on_the_wall() -> None:
    """Working hours in Berlin, an hour ahead of UTC in winter."""
    floor = Floor(frozenset(range(5)), time(8), time(18), "Europe/Berlin", 2)
    assert floor_at(0, [floor], NOW.replace(hour=7)) == 2
    assert floor_at(0, [floor], NOW.replace(hour=17)) == 0
    assert floor_at(3, [floor], NOW) == 3, "the cluster's own floor is higher"
    saturday = NOW + timedelta(days=2)
    assert floor_at(0, [floor], saturday) == 0
    assert floor.next_change(NOW) == NOW.replace(hour=17)


def test_floor_through_the_night() -> None:
    """It belongs to the day on which it begins."""
    night = Floor(frozenset({3}), time(22), time(6), "UTC", 1)
    assert night.holds(NOW.replace(hour=23))
    assert night.holds(NOW.replace(hour=5) + timedelta(days=1))
    assert not night.holds(NOW.replace(hour=5))


@pytest.mark.parametrize(
    ("words", "days"),
    [("mon-fri", {0, 1, 2, 3, 4}), ("sat,sun", {5, 6}), ("fri-mon", {4, 5, 6, 0}), ("moon", None)],
)
def test_days(words: str, days: set[int] | None) -> None:
    """Ranges, lists, and ranges over the weekend."""
    assert parse_days(words) == days


@pytest.mark.parametrize(
    ("words", "clock"),
    [("08:30", time(8, 30)), ("24:00", time(0)), ("8:5", None), ("25:00", None), ("noon", None)],
)
def test_clock(words: str, clock: time | None) -> None:
    """Hours and minutes, midnight at the end of a day too."""
    assert parse_clock(words) == clock
