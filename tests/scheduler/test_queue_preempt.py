"""Trials before evictions, reservations, growth."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from scheduler.queue.growth import Stretch, grow, speed
from scheduler.queue.preempt import Fits, Runs, Wants, receipts, trial
from scheduler.queue.reserve import Reservation, may_pass, passed, reserve


def runs(
    uid: str,
    gpus: int = 1,
    due: float = 1e6,
    ran: float = 3600.0,
    unsaved: float = 0.0,
    may_yield: bool = True,
) -> Runs:
    return Runs(uid, gpus, due, ran, unsaved, may_yield)


def gpus(need: int, free: int = 0) -> Fits:
    return lambda gone: free + sum(job.gpus for job in gone) >= need


def test_nobody_is_evicted_for_nothing() -> None:
    """A job that would not fit even then evicts none, and is told why."""
    found = trial(Wants("big", 8, 0.0), [runs("a", 4), runs("b", 3)], gpus(8))
    assert found.victims == ()
    assert "7 GPUs" in found.why
    assert receipts(Wants("big", 8, 0.0), found) == {}


def test_victims_lose_least() -> None:
    """Of several that would do, those yield that have saved most of their work."""
    running = [runs("a", 4, unsaved=900), runs("b", 4, unsaved=10), runs("c", 4, unsaved=400)]
    found = trial(Wants("w", 4, 0.0), running, gpus(4))
    assert [job.uid for job in found.victims] == ["b"]
    assert found.lost_gpu_s == 40


def test_those_that_prove_unneeded_stay() -> None:
    """A small one that was taken first is let go when a large one makes room for all."""
    found = trial(Wants("w", 8, 0.0), [runs("a", 1), runs("b", 8, unsaved=5)], gpus(8))
    assert [job.uid for job in found.victims] == ["b"]


def test_the_young_the_earlier_and_the_protected_stay() -> None:
    """Ten minutes of run are promised; whoever is due first yields to nobody; so does one whose
    owner does not allow it."""
    running = [runs("young", 8, ran=599), runs("first", 8, due=5), runs("own", 8, may_yield=False)]
    assert trial(Wants("w", 8, 10.0), running, gpus(8)).victims == ()
    assert trial(Wants("w", 8, 10.0, may_preempt=False), [runs("a", 8)], gpus(8)).victims == ()
    assert trial(Wants("w", 8, 10.0), [runs("old", 8, ran=600)], gpus(8)).victims


def test_receipts_on_both_timelines() -> None:
    """The victim learns for whom, the job whose GPUs it got and what that cost."""
    wants = Wants("w", 2, 0.0)
    words = receipts(wants, trial(wants, [runs("a", 2, unsaved=30)], gpus(2)))
    assert "to w" in words["a"]
    assert "30 s" in words["a"]
    assert "GPUs of a" in words["w"]
    assert "60 GPU-seconds" in words["w"]


@given(
    st.lists(st.tuples(st.integers(1, 8), st.floats(0, 900), st.floats(0, 100)), max_size=12),
    st.integers(1, 16),
)
def test_evictions_suffice_and_none_is_idle(
    rows: list[tuple[int, float, float]], need: int
) -> None:
    """If anybody yields, the job fits, and without any one of them it would not."""
    running = [runs(f"{n}", g, due=d, unsaved=u) for n, (g, u, d) in enumerate(rows)]
    found = trial(Wants("w", need, 50.0), running, gpus(need))
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
    assert may_pass(held, 4, 299.0)
    assert not may_pass(held, 4, 301.0)
    assert may_pass(held, 2, 1e9)
    assert passed(held, 4, 299.0) == held
    assert not may_pass(passed(held, 2, 1e9), 1, 1e9)


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
