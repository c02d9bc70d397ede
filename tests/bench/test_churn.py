"""What is told of jobs that come and go."""

from __future__ import annotations

from bench.churn import ChurnSample, later


def at(minutes: float) -> ChurnSample:
    return ChurnSample(minutes, 100, 0, 1.0, 75, 25, 100.0)


def test_the_beginning_fills_caches() -> None:
    """Growth counts from minute 10 on; of a shorter run from its half on."""
    assert [one.minutes for one in later([at(n) for n in (1, 2, 3, 4)])] == [2, 3, 4]
    assert [one.minutes for one in later([at(n) for n in (5, 10, 60)])] == [10, 60]


def test_dead_rows_are_a_share_of_all() -> None:
    """Also where there are no rows."""
    assert at(1).dead_share == 0.25
    assert ChurnSample(0, 0, 0, 0.0, 0, 0, 0.0).dead_share == 0.0
