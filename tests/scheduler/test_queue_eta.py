"""Guesses of run times, and when waiting jobs start."""

from __future__ import annotations

import random

import pytest

from scheduler.queue.eta import AHEAD_MAX, Busy, Calibration, Eta, Waits, forecast
from scheduler.queue.predict import ENOUGH, NO_HISTORY, REMEMBERED, Book, Guess, Kind

KIND = Kind("team", "train", "8 x H100")


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
        book.add(Kind("team", "other", "8 x H100"), 1000.0)
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
        book.add(Kind(f"t{n}", "x", "1"), 1.0)
    assert not book.guess(KIND).basis.endswith("of this name on these GPUs")


def test_what_has_run_long_is_compared_with_the_long() -> None:
    """After 100 s only runs of more than 100 s are its like; beyond all, it may last as long."""
    guess = known(10, 20, 200, 300, 400)
    assert guess.left(100.0, 0.5) == 200.0
    assert guess.left(1000.0, 0.5) == 1000.0


def test_plays_follow_the_queue() -> None:
    """Two wait for one GPU that is busy for 100 s: the first starts then, the next after it."""
    sure = known(*[100.0] * ENOUGH)
    etas = forecast(1, [Busy(1, 0.0, sure)], [Waits("a", 1, sure), Waits("b", 1, sure)])
    assert etas["a"] == Eta(100.0, 100.0)
    assert etas["b"] == Eta(200.0, 200.0)


def test_strict_order_holds_up_those_behind() -> None:
    """A small job passes a large one that does not fit, unless the queue is strict."""
    sure = known(*[100.0] * ENOUGH)
    waiting = [Waits("big", 2, sure), Waits("small", 1, sure)]
    assert forecast(2, [Busy(1, 0.0, sure)], waiting)["small"].p50_s == 0.0
    assert forecast(2, [Busy(1, 0.0, sure)], waiting, strict=True)["small"].p50_s == 200.0


def test_a_job_larger_than_the_pool_has_no_eta() -> None:
    """Nothing is said about what cannot be."""
    assert forecast(2, [], [Waits("huge", 3, known(1.0))]) == {}


def test_those_far_back_are_extrapolated() -> None:
    """The plays are bounded; who is behind them is told so."""
    sure = known(*[100.0] * ENOUGH)
    waiting = [Waits(f"{n}", 1, sure) for n in range(2 * AHEAD_MAX)]
    etas = forecast(10, [], waiting)
    last = etas[f"{2 * AHEAD_MAX - 1}"]
    assert last.note.startswith("far back")
    assert last.p50_s == pytest.approx(2 * 2900.0, rel=0.1)


def test_calibration_finds_the_quantile() -> None:
    """Told the same each time while waits are spread between 0 and 1000 s, nine of ten hold."""
    dice = random.Random(3)
    factors, held = Calibration(), 0
    for n in range(4000):
        told = factors.apply(Eta(100.0, 100.0))
        waited = dice.uniform(0, 1000)
        held += n >= 1000 and waited <= told.p90_s
        factors = factors.learn(told, waited)
    assert 0.87 <= held / 3000 <= 0.93
