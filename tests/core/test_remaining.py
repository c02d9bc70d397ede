"""How much of a job is left to run: stated, predicted or shown, less what is saved."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.job import E, Job, SavedWork
from core.job_steps import EventFacts, advance
from core.remaining import (
    ASSUMED_SHARE,
    LEAST_S,
    RESERVE_MAX_S,
    RunTimes,
    latest_start,
    reserve_s,
    rest_s,
)
from core.timers import Timers
from orchestrator.planning.plan_input import request_of
from tests.builders import RULES, at, job

HOUR_S = 3600.0
hours = st.floats(0.1, 100.0).map(lambda value: value * HOUR_S)


def wanted(deadline_s: float = 30 * HOUR_S, run_s: float | None = None, **facts: object) -> Job:
    """A job with a deadline so long after its submission, that states its run time or nothing."""
    stated_s = Timers().max_runtime_s if run_s is None else run_s
    made = job(1, deadline=at(1 + deadline_s), max_runtime_s=stated_s)
    return replace(made, **facts)  # type: ignore[arg-type]


def test_what_is_saved_is_done() -> None:
    """Of a stated run what the checkpoints hold is left out, those of this attempt among it."""
    runs = RunTimes(saved=lambda _: SavedWork(2 * HOUR_S))
    left = runs.left(wanted(run_s=10 * HOUR_S, saved_s=3 * HOUR_S))
    assert (left.run_s, left.saved_s) == (5 * HOUR_S, 5 * HOUR_S)
    assert RunTimes().left(wanted(run_s=HOUR_S, saved_s=9 * HOUR_S)).run_s == LEAST_S


def test_progress_shows_the_rest() -> None:
    """A quarter is saved after two hours: six are left, whatever nobody stated."""
    left = RunTimes().left(wanted(saved_s=2 * HOUR_S, saved_share=0.25))
    assert (left.run_s, left.basis) == (6 * HOUR_S, "by its own progress")


def test_jobs_like_it_show_the_rest() -> None:
    """Without a word of its own, what its like ran for counts."""
    left = RunTimes(predicted=lambda _: 4 * HOUR_S).left(wanted(saved_s=HOUR_S))
    assert (left.run_s, left.basis) == (3 * HOUR_S, "as jobs like it ran")


def test_nothing_known_is_most_of_the_time() -> None:
    """With a deadline that much of the time until it; without one what is usual."""
    assert RunTimes().left(wanted(30 * HOUR_S)).run_s == pytest.approx(20.1 * HOUR_S)
    assert RunTimes().left(wanted(30 * HOUR_S, saved_s=5 * HOUR_S)).run_s == pytest.approx(
        15.1 * HOUR_S
    )
    assert RunTimes().left(job(1)).run_s == HOUR_S


def test_a_run_that_takes_longer_is_not_done() -> None:
    """More is saved than was assumed: it still needs something."""
    left = RunTimes().left(wanted(30 * HOUR_S, saved_s=25 * HOUR_S))
    assert left.run_s == pytest.approx(2.5 * HOUR_S)


@given(hours, st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.none() | hours)
def test_to_state_a_run_time_never_makes_a_job_dearer(
    deadline_s: float, stated_share: float, saved_share: float, predicted_s: float | None
) -> None:
    """The more is left, the sooner a job pays any price and leaves for standard VMs. Who states a
    run time that fits what is assumed of everybody never has more left than who states nothing,
    whatever is saved, shown or predicted; so neither moment comes sooner."""
    run_s = max(LEAST_S, stated_share * ASSUMED_SHARE * deadline_s)
    saved_s = saved_share * run_s
    runs = RunTimes(predicted=lambda _: predicted_s)
    for share in (0.0, saved_share):
        facts = {"saved_s": saved_s, "saved_share": share}
        stated = wanted(deadline_s, run_s, **facts)
        silent = wanted(deadline_s, **facts)
        mine, theirs = runs.left(stated), runs.left(silent)
        assert mine.run_s <= theirs.run_s + 1e-6
        late, soon = latest_start(stated, mine), latest_start(silent, theirs)
        assert late is not None
        assert soon is not None
        assert late >= soon - timedelta(seconds=1e-3)
        any_price, theirs_too = request_of(stated, runs).start_by, request_of(silent, runs).start_by
        assert any_price is not None
        assert theirs_too is not None
        assert any_price >= theirs_too - timedelta(seconds=1e-3)


@given(hours, hours)
def test_the_reserve_is_a_part_of_the_slack(deadline_s: float, run_s: float) -> None:
    """Never negative, never more than two hours or a quarter of what there is, and the same
    whether the work is saved or not."""
    fresh = wanted(deadline_s, min(run_s, Timers().max_runtime_s - 1))
    left = RunTimes().left(fresh)
    most_s = min(RESERVE_MAX_S, max(0.0, deadline_s - run_s) / 4)
    assert 0 <= reserve_s(fresh, left) <= most_s + 1e-3
    saved = replace(fresh, saved_s=fresh.spec.max_runtime_s / 2)
    again = RunTimes().left(saved)
    if again.run_s > LEAST_S:
        assert reserve_s(saved, again) == pytest.approx(reserve_s(fresh, left))


def test_an_attempt_leaves_what_it_saved() -> None:
    """The end of each attempt adds what its last checkpoint holds; without one nothing is added,
    and nothing that was saved before is lost."""
    road = (E.ADMITTED, E.PLACED, E.STARTED)
    taken = advance(
        job(1, *road), E.RECLAIMED, at(99), RULES, facts=EventFacts(saved=SavedWork(60.0, 0.25))
    )
    assert (taken.saved_s, taken.saved_share) == (60.0, 0.25)
    runs = job(1, *road)
    again = replace(runs, saved_s=60.0, saved_share=0.25)
    lost = advance(again, E.VM_LOST, at(99), RULES)
    assert (lost.saved_s, lost.saved_share) == (60.0, 0.25)
    more = advance(again, E.RECLAIMED, at(99), RULES, facts=EventFacts(saved=SavedWork(30.0)))
    assert (more.saved_s, more.saved_share) == (90.0, 0.25)


def test_the_next_attempt_runs_the_rest() -> None:
    """Of a run of an hour, half an hour that is saved is not run again."""
    assert rest_s(HOUR_S, job(1)) == HOUR_S
    assert rest_s(HOUR_S, replace(job(1), saved_s=HOUR_S / 2)) == HOUR_S / 2
    assert rest_s(HOUR_S, replace(job(1), saved_s=2 * HOUR_S)) == LEAST_S
