"""Simulations before preemptions, reservations, growth."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.placement.elastic_growth import Stretch, grow, speed
from scheduler.preemption.policy import (
    RUN_ON_MAX_S,
    SPAN_S,
    Fits,
    PreemptionResult,
    Runs,
    Wants,
    result,
)
from scheduler.queue.backfill import Reservation, reserve


def runs(
    uid: str,
    gpus: int = 1,
    due: float = 1e6,
    ran: float = 7200.0,
    unsaved: float = 0.0,
    **more: Any,
) -> Runs:
    return Runs(uid, gpus, due, ran, unsaved, **more)


def gpus(need: int, free: int = 0) -> Fits:
    return lambda gone: free + sum(job.gpus for job in gone) >= need


def names(found: PreemptionResult) -> list[str]:
    return [job.uid for job in found.victims]


def test_no_job_is_preempted_for_nothing() -> None:
    """A job that would not fit even then preempts none, and the simulation says why."""
    found = result(Wants("big", 8, 0.0), [runs("a", 4), runs("b", 3)], gpus(8))
    assert found.victims == ()
    assert "7 GPUs" in found.why


def test_victims_lose_least() -> None:
    """Of several that would do, the jobs that have saved most of their work are preempted."""
    running = [runs("a", 4, unsaved=900), runs("b", 4, unsaved=10), runs("c", 4, unsaved=400)]
    found = result(Wants("w", 4, 0.0), running, gpus(4))
    assert names(found) == ["b"]
    assert found.lost_gpu_s == 40


def test_who_is_due_weeks_later_yields_first() -> None:
    """Also if it loses more: one that is next in order would preempt others in its turn."""
    running = [runs("soon", 4), runs("late", 4, due=1e6 + 2 * SPAN_S, unsaved=100)]
    assert names(result(Wants("w", 4, 0.0), running, gpus(4))) == ["late"]


def test_those_that_prove_unneeded_stay() -> None:
    """A small one that was taken first is let go when a large one makes room for all."""
    found = result(Wants("w", 8, 0.0), [runs("a", 1), runs("b", 8, unsaved=5)], gpus(8))
    assert names(found) == ["b"]


def test_the_young_and_the_earlier_stay() -> None:
    """Ten minutes of run are guaranteed; the first in order is preempted for none of its class."""
    running = [runs("young", 8, ran=599), runs("first", 8, due=5)]
    assert result(Wants("w", 8, 10.0), running, gpus(8)).victims == ()
    assert result(Wants("w", 8, 10.0), [runs("old", 8, ran=600)], gpus(8)).victims


def test_a_job_that_was_preempted_before_is_safe_for_longer() -> None:
    """From its own class; a higher one keeps to the least run alone."""
    again = runs("a", 1, ran=1000, times_preempted=1)
    assert not result(Wants("w", 1, 0.0), [again], gpus(1)).victims
    assert result(Wants("w", 1, 0.0), [replace(again, ran_s=1200)], gpus(1)).victims
    assert result(Wants("w", 1, 0.0, tier=2), [again], gpus(1)).victims
    assert result(
        Wants("w", 1, 0.0), [replace(again, times_preempted=99, ran_s=RUN_ON_MAX_S)], gpus(1)
    ).victims


def test_a_job_that_has_saved_nothing_yet_is_left_alone() -> None:
    """For an hour: preempted before it would never come any further."""
    fresh = runs("a", 1, ran=1800, unsaved=1800)
    assert not result(Wants("w", 1, 0.0), [fresh], gpus(1)).victims
    assert result(Wants("w", 1, 0.0), [replace(fresh, unsaved_s=300)], gpus(1)).victims


def test_among_equals_a_preemption_costs_no_more_than_the_wait() -> None:
    """One that never saves is safe until somebody has waited for as long as it would lose; a higher
    class does not wait."""
    never = runs("a", 2, ran=36_000, unsaved=36_000)
    wants = Wants("w", 2, 0.0, waited_s=30_000)
    assert not result(wants, [never], gpus(2)).victims
    assert result(replace(wants, waited_s=36_100), [never], gpus(2)).victims
    assert result(replace(wants, tier=2), [never], gpus(2)).victims


def test_the_lowest_class_yields_first() -> None:
    """Whatever it loses; the own class and higher ones are spared."""
    running = [runs("low", 4, unsaved=5000, tier=0), runs("normal", 4), runs("urgent", 4, tier=3)]
    assert names(result(Wants("w", 4, 0.0, tier=2), running, gpus(4))) == ["low"]
    assert names(result(Wants("w", 8, 0.0, tier=2), running, gpus(8))) == ["low", "normal"]
    assert not result(Wants("w", 12, 0.0, tier=2), running, gpus(12)).victims


def test_other_tenants_yield_only_to_one_that_has_had_less() -> None:
    """And only as many as leave it so."""
    running = [runs("a", tenant="whale"), runs("b", tenant="whale")]
    wants = Wants("w", 1, 0.0, tenant="small")
    assert not result(wants, running, gpus(1)).victims
    one = result(wants, running, gpus(1), fairer=lambda _, some: float(len(some) < 2))
    assert len(one.victims) == 1
    assert not result(wants, running, gpus(2), fairer=lambda _, some: float(len(some) < 2)).victims


def test_the_less_a_tenant_has_had_the_sooner_others_yield() -> None:
    """To one that has had a tenth, for a tenth of the wait; the own tenant's jobs as ever."""
    rich = runs("a", unsaved=540, tenant="whale")
    wants = Wants("w", 1, 0.0, waited_s=120, tenant="small")
    assert not result(wants, [rich], gpus(1), fairer=lambda _, __: 4.0).victims
    assert result(wants, [rich], gpus(1), fairer=lambda _, __: 5.0).victims
    assert not result(replace(wants, tenant="whale"), [rich], gpus(1)).victims


def test_what_others_would_take_is_not_freed() -> None:
    """Somebody who goes first and would fit then gets it: the preemption would not serve its
    job."""
    found = result(Wants("w", 1, 0.0), [runs("a")], gpus(1), others=bool)
    assert not found.victims
    assert "go first" in found.why


@given(
    st.lists(st.tuples(st.integers(1, 8), st.floats(0, 900), st.floats(0, 100)), max_size=12),
    st.integers(1, 16),
)
def test_preemptions_suffice_and_none_is_idle(
    rows: list[tuple[int, float, float]], need: int
) -> None:
    """If any job is preempted, the waiting job fits, and without any one of them it would not."""
    running = [runs(f"{n}", g, due=d, unsaved=u) for n, (g, u, d) in enumerate(rows)]
    found = result(Wants("w", need, 50.0), running, gpus(need))
    freed = [job.gpus for job in found.victims]
    possible = sum(job.gpus for job in running if job.due_s > 50.0)
    assert bool(freed) == (possible >= need)
    assert all(job.due_s > 50.0 for job in found.victims)
    assert not freed or sum(freed) >= need > sum(freed) - min(freed)


def test_reservation_is_when_enough_is_free() -> None:
    """The first moment at which the expected ends leave enough; what is beyond it is spare."""
    held = reserve(8, 2, [(300.0, 4), (100.0, 4), (900.0, 8)])
    assert held == Reservation(8, 300.0, 2)
    assert reserve(8, 0, [(10.0, 4)]).at_s == math.inf


def test_only_those_that_are_gone_in_time_pass() -> None:
    """A job passes if it ends before the reservation, or leaves enough for it; the second kind uses
    the spare up."""
    held = Reservation(8, 300.0, 2)
    assert held.lets(4, 299.0)
    assert not held.lets(4, 301.0)
    assert held.lets(2, 1e9)
    assert held.after(4, 299.0) == held
    assert not held.after(2, 1e9).lets(1, 1e9)


def test_growth_goes_where_it_gains_most() -> None:
    """The one that has less left grows first; none beyond its most, none below its least."""
    short = Stretch("short", 1, 4, 8, left_s=600.0)
    long = Stretch("long", 1, 4, 8, left_s=86_400.0)
    assert grow([long, short], 0) == {"short": 1, "long": 1}
    assert grow([long, short], 3) == {"short": 4, "long": 1}
    assert grow([long, short], 99) == {"short": 8, "long": 8}
    assert 1.8 < speed(8, 4) < 2.0


@given(st.lists(st.integers(1, 16), min_size=1, max_size=8), st.integers(0, 80))
def test_growth_never_gives_more_than_there_is(usual: list[int], spare: int) -> None:
    """The sum of all growth is at most what was spare."""
    jobs = [Stretch(f"{n}", -(-g // 4), g, 2 * g, 1e3 * (n + 1)) for n, g in enumerate(usual)]
    sizes = grow(jobs, spare)
    assert sum(sizes.values()) - sum(job.least for job in jobs) <= spare
    assert all(job.least <= sizes[job.uid] <= job.most for job in jobs)
