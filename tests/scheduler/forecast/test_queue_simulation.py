"""Guesses of run times, and when waiting jobs start."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.forecast.queue_simulation import (
    PLAYS,
    Busy,
    Eta,
    ForecastAccuracy,
    Plays,
    TenantCap,
    Waits,
)
from scheduler.forecast.run_times import ENOUGH, NO_HISTORY, REMEMBERED, Book, Guess, JobKind

KIND = JobKind("team", "train", "8 x H100")


def known(*runs: float) -> Guess:
    return Guess(tuple(sorted(runs)), "runs")


def test_no_history_is_wide_and_says_so() -> None:
    """Nine hours of ten are between a minute and a day."""
    guess = Book().guess(KIND)
    assert (guess.known, guess.basis) == (False, NO_HISTORY)
    assert guess.at(0.9) / guess.at(0.5) >= 10


def test_the_narrowest_kind_with_enough_runs_speaks() -> None:
    """Few runs of a name say less than many of its tenant."""
    book = Book()
    for _ in range(ENOUGH):
        book.add(JobKind("team", "other", "8 x H100"), 1000.0)
    for _ in range(ENOUGH - 1):
        book.add(KIND, 10.0)
    assert book.guess(KIND).basis.endswith("of this tenant on these GPUs")
    book.add(KIND, 10.0)
    assert book.guess(KIND).at(0.9) == 10.0


def test_a_book_forgets() -> None:
    """Only the last runs of a kind count, and only so many kinds are kept."""
    book = Book(kinds_max=50)
    for n in range(REMEMBERED + 10):
        book.add(KIND, 5.0 if n < 10 else 7.0)
    assert book.guess(KIND).at(0.0) == 7.0
    for n in range(100):
        book.add(JobKind(f"t{n}", "x", "1"), 1.0)
    assert not book.guess(KIND).basis.endswith("of this name on these GPUs")


def test_what_has_run_long_is_compared_with_the_long() -> None:
    """After 100 s only runs of more than 100 s are its like; beyond all, it may last as long."""
    guess = known(10, 20, 200, 300, 400)
    assert guess.left(100.0, 0.5) == 200.0
    assert guess.left(1000.0, 0.5) == 1000.0


def forecast(
    gpus: int,
    running: list[Busy],
    waiting: list[Waits],
    caps: Mapping[str, TenantCap] | None = None,
) -> dict[str, Eta]:
    """All plays of a queue."""
    plays = Plays(gpus, running, waiting, caps)
    for number in range(PLAYS):
        plays.play(number)
    return plays.etas()


def test_plays_follow_the_queue() -> None:
    """Two wait for one GPU that is busy for 100 s: the first starts then, the next after it."""
    sure = known(*[100.0] * ENOUGH)
    etas = forecast(1, [Busy(1, 0.0, sure)], [Waits("a", 1, sure), Waits("b", 1, sure)])
    assert etas["a"] == Eta(100.0, 100.0)
    assert etas["b"] == Eta(200.0, 200.0)


def test_who_leaves_a_reservation_whole_passes() -> None:
    """One GPU of two is free for 100 s until the large job gets both: a job of 50 s uses it, one
    of 200 s waits, and so does one of which nothing is known."""
    large, short = Waits("large", 2, known(*[10.0] * 5)), Waits("short", 1, known(*[50.0] * 5))
    long, dark = Waits("long", 1, known(*[200.0] * 5)), Waits("dark", 1, Guess((), "x"))
    running = [Busy(1, 0.0, known(*[100.0] * ENOUGH))]
    etas = forecast(2, running, [large, dark, long, short])
    assert [etas[uid].p50_s for uid in ("short", "large")] == [0.0, 100.0]
    assert min(etas[uid].p50_s for uid in ("long", "dark")) == 110.0


def test_who_waits_for_a_vm_of_its_own_holds_its_place() -> None:
    """As in the queue itself: it is admitted, its VM comes later, and others use what is left. One
    that would pass is counted with that wait."""
    sure, late = known(*[100.0] * ENOUGH), known(*[500.0] * ENOUGH)
    waiting = [Waits("own", 1, sure, floor=late), Waits("b", 1, sure), Waits("c", 1, sure)]
    etas = forecast(2, [], waiting)
    assert [etas[uid].p50_s for uid in ("own", "b", "c")] == [500.0, 0.0, 100.0]
    large = Waits("large", 2, known(*[10.0] * 5))
    for floor_s, starts_s in ((40.0, 40.0), (80.0, 110.0)):
        short = Waits("short", 1, known(*[50.0] * 5), floor=known(*[floor_s] * 5))
        found = forecast(2, [Busy(1, 0.0, sure)], [large, short])
        assert [found[uid].p50_s for uid in ("large", "short")] == [100.0, starts_s]


def test_the_reserved_one_starts_as_soon_as_it_fits() -> None:
    """Though another one that might pass needs more than there is."""
    running = [Busy(1, 0.0, known(*[10.0 * n] * 5)) for n in (1, 2, 3, 4)]
    head, passer = Waits("head", 2, known(*[500.0] * 5)), Waits("p", 3, known(*[1.0] * 5))
    etas = forecast(4, running, [head, passer])
    assert (etas["head"].p50_s, etas["p"].p50_s) == (20.0, 520.0)


def test_a_job_larger_than_the_pool_has_no_eta() -> None:
    """Nothing is said about what cannot be."""
    assert forecast(2, [], [Waits("huge", 3, known(1.0))]) == {}


def test_a_quota_holds_up_its_tenant_alone() -> None:
    """A tenant that may have two jobs at once gets its third when one ends; another one passes."""
    sure = known(*[100.0] * ENOUGH)
    mine = [Waits(f"a{n}", 1, sure, tenant="a", asks=1.0) for n in range(3)]
    other = Waits("b", 1, sure, tenant="b", asks=1.0)
    for cap in (TenantCap(jobs=2), TenantCap(gpus=2.0)):
        etas = forecast(8, [], [*mine, other], caps={"a": cap})
        assert [etas[uid].p50_s for uid in ("a0", "a1", "a2", "b")] == [0.0, 0.0, 100.0, 0.0]
    assert "a0" not in forecast(8, [], mine, caps={"a": TenantCap(gpus=0.5)})


def test_nobody_runs_longer_than_it_may() -> None:
    """What is stopped after 30 s is gone after 30 s, whatever others of its kind did; one that has
    run before needs only the rest."""
    sure = known(*[100.0] * ENOUGH)
    running = [Busy(1, 0.0, sure, most_s=30.0)]
    waiting = [
        Waits("a", 1, sure, most_s=20.0),
        Waits("b", 1, known(*[100.0] * 5), had_s=60.0),
        Waits("c", 1, sure),
    ]
    etas = forecast(1, running, waiting)
    assert [etas[uid].p50_s for uid in "abc"] == [30.0, 50.0, 90.0]


def test_lessons_find_the_quantile() -> None:
    """Told the same each time while waits are spread between 0 and 1000 s, nine of ten hold."""
    dice = random.Random(3)
    lessons, held = ForecastAccuracy(), 0
    for n in range(4000):
        told, waited = lessons.learned.apply(Eta(100.0, 100.0)), dice.uniform(0, 1000)
        held += n >= 1000 and waited <= told.p90_s
        lessons.tell(f"{n}", n * 1e4 + told.p50_s, n * 1e4 + told.p90_s)
        lessons.started(f"{n}", n * 1e4 + waited)
    assert 0.87 <= held / 3000 <= 0.93


def test_who_is_late_is_a_lesson_before_it_starts() -> None:
    """Once, when its moment has passed; of one that is not there any more nothing is learned."""
    lessons = ForecastAccuracy()
    lessons.tell("a", 50.0, 90.0)
    lessons.tell("gone", 50.0, 90.0)
    lessons.look(60.0, {"a"})
    after = lessons.learned
    assert (after.p50 > 1.0, after.p90) == (True, 1.0)
    lessons.look(100.0, {"a"})
    assert lessons.learned.p90 > 1.0
    late = lessons.learned
    lessons.started("a", 200.0)
    lessons.started("gone", 200.0)
    assert lessons.learned == late
    lessons.tell("b", 250.0, 290.0, weight=0.5)
    lessons.started("b", 201.0)
    assert lessons.learned.p50 < late.p50


# --- what is true of any queue


RUNS = st.lists(st.floats(1.0, 1e5), max_size=8).map(lambda runs: Guess(tuple(sorted(runs)), "x"))
BUSY = st.builds(Busy, st.integers(1, 4), st.floats(0, 1e4), RUNS, st.floats(1.0, 1e5))
WAITS = st.lists(st.tuples(st.integers(1, 8), RUNS), max_size=12).map(
    lambda jobs: [Waits(f"{n}", gpus, guess) for n, (gpus, guess) in enumerate(jobs)]
)


@settings(max_examples=40)
@given(st.integers(1, 16), st.lists(BUSY, max_size=4), WAITS)
def test_every_eta_is_a_span_of_time(gpus: int, running: list[Busy], waiting: list[Waits]) -> None:
    """p50 is never after p90, nothing starts in the past, and all who fit into the pool start."""
    etas = forecast(gpus, running, waiting)
    for eta in etas.values():
        assert 0.0 <= eta.p50_s <= eta.p90_s
        assert math.isfinite(eta.p90_s)
    assert set(etas) == {job.uid for job in waiting if job.gpus <= gpus}


SPANS = st.lists(st.floats(1.0, 1e4), min_size=1, max_size=12)


def starts(gpus: int, runs: list[float], queue: list[tuple[str, float]]) -> dict[str, float]:
    """When jobs of one GPU start, if it is known to the second how long each one runs."""
    running = [Busy(1, 0.0, known(*[span] * ENOUGH)) for span in runs[:gpus]]
    waiting = [Waits(uid, 1, known(*[span] * ENOUGH)) for uid, span in queue]
    return {uid: eta.p50_s for uid, eta in forecast(gpus, running, waiting).items()}


@settings(max_examples=40)
@given(st.integers(1, 4), SPANS, SPANS, st.floats(1.0, 1e4), st.integers(0, 12))
def test_more_ahead_is_never_earlier(
    gpus: int, runs: list[float], spans: list[float], more: float, place: int
) -> None:
    """One more job in the queue lets nobody start earlier, and one more GPU nobody later."""
    queue = [(f"{n}", span) for n, span in enumerate(spans)]
    longer = [*queue[:place], ("more", more), *queue[place:]]
    plain = starts(gpus, runs, queue)
    fuller, wider = starts(gpus, runs, longer), starts(gpus + 1, runs[:gpus], queue)
    for uid, at_s in plain.items():
        assert fuller[uid] >= at_s - 1e-6
        assert wider[uid] <= at_s + 1e-6


@settings(max_examples=40)
@given(st.integers(2, 8), st.lists(BUSY, max_size=4), WAITS)
def test_who_comes_last_does_not_delay_the_first(
    gpus: int, running: list[Busy], waiting: list[Waits]
) -> None:
    """A job that surely ends when it must leaves the reservation of the first one whole."""
    late = Waits("late", 1, known(*[20.0] * ENOUGH))
    before = forecast(gpus, running, waiting)
    after = forecast(gpus, running, [*waiting, late])
    for job in waiting[:1]:
        assert after.get(job.uid) == before.get(job.uid)
