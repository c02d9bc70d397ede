"""Silence, on the bus's own clock."""

from __future__ import annotations

from dataclasses import replace

from core.active import ActiveIndex
from core.timers import Timers
from scheduler.cycle.silence import BusClock, find_silent
from tests.builders import NOW, at, vm

TIMERS = Timers()


def test_nobody_ages_without_a_canary() -> None:
    """No bus time, no silence."""
    assert (
        find_silent(ActiveIndex.of((), [vm(last_beat_at=at(-9999))]), {}, None, TIMERS).lost == ()
    )


def test_vm_silent_past_its_time_is_lost() -> None:
    """On the bus's clock: newest canary minus newest heartbeat."""
    quiet, fresh = vm("vm-1", last_beat_at=at(-91)), vm("vm-2", last_beat_at=at(-89))
    assert find_silent(ActiveIndex.of((), [quiet, fresh]), {}, NOW, TIMERS).lost == (quiet,)


def test_v1_worker_may_be_silent_for_longer() -> None:
    """It says nothing for 30 s after FOUND_VM, which is longer than a local run waits for ours."""
    timers = replace(TIMERS, lost_after_s=20.0)
    theirs = vm("vm-1", worker="v1", last_beat_at=at(-89))
    ours = vm("vm-2", last_beat_at=at(-21))
    active = ActiveIndex.of((), [theirs, ours])
    assert find_silent(active, {}, NOW, timers).lost == (ours,)
    assert find_silent(active, {}, at(2), timers).lost == (theirs, ours)


def test_clock_is_steady_only_after_the_settling_time() -> None:
    """A backlog drains first."""
    clock = BusClock()
    assert not clock.steady(0, TIMERS)
    for second in range(0, 31, 10):
        clock.canary_back(at(second), float(second), TIMERS)
    assert not clock.steady(29, TIMERS)
    assert clock.steady(30, TIMERS)
    assert clock.bus_now == at(30)


def test_gap_in_the_canaries_starts_the_settling_again() -> None:
    """After an outage the heartbeats of the outage must be read before anybody is judged."""
    clock = BusClock()
    for second in range(0, 61, 10):
        clock.canary_back(at(second), float(second), TIMERS)
    assert not clock.steady(200, TIMERS)
    clock.canary_back(at(200), 200.0, TIMERS)
    assert not clock.steady(201, TIMERS)


def test_one_canary_that_is_lost_starts_the_settling_again() -> None:
    """Of two outages in short succession, the second one may have cost workers their only try."""
    clock = BusClock()
    for second in (0, 10, 20, 45):
        clock.canary_back(at(second), float(second), TIMERS)
    assert not clock.steady(46.0, TIMERS)
    for second in (55, 65, 75):
        clock.canary_back(at(second), float(second), TIMERS)
    assert clock.steady(76.0, TIMERS)


def test_bus_time_never_goes_back() -> None:
    """Canaries may overtake each other."""
    clock = BusClock()
    clock.canary_back(at(20), 1.0, TIMERS)
    clock.canary_back(at(10), 2.0, TIMERS)
    assert clock.bus_now == at(20)


def test_half_the_fleet_silent_at_once_is_the_bus_not_the_fleet() -> None:
    """Expiry freezes and says why."""
    silent = [vm(f"vm-{n}", last_beat_at=at(-500)) for n in range(10)]
    speaking = [vm(f"ok-{n}", last_beat_at=NOW) for n in range(10)]
    frozen = find_silent(ActiveIndex.of((), [*silent, *speaking]), {}, NOW, TIMERS)
    assert frozen.lost == ()
    assert "10 of 20" in (frozen.frozen_why or "")
    few = find_silent(ActiveIndex.of((), [*silent[:9], *speaking]), {}, NOW, TIMERS)
    assert len(few.lost) == 9
