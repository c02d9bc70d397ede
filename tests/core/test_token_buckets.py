"""Buckets of tokens, one per caller."""

from __future__ import annotations

import pytest

from core.token_buckets import TokenBuckets


def test_burst_then_rate() -> None:
    """A full bucket at first, then as many as are gained; a refusal costs nothing."""
    buckets = TokenBuckets(per_s=2, burst=3)
    assert [buckets.take("a", 0) for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a", 0) == pytest.approx(0.5)
    assert buckets.take("a", 0.25) == pytest.approx(0.25)
    assert buckets.take("a", 0.5) == 0
    assert buckets.take("a", 0.5) == pytest.approx(0.5)
    assert [buckets.take("a", 100) for _ in range(4)] == [0, 0, 0, pytest.approx(0.5)]


def test_callers_are_apart() -> None:
    """One caller's requests cost no other's tokens."""
    buckets = TokenBuckets(per_s=1, burst=1)
    assert (buckets.take("a", 0), buckets.take("b", 0), buckets.take("a", 0)) == (0, 0, 1)


def test_clock_that_goes_back_gives_nothing() -> None:
    """Time that runs backwards makes no tokens and takes none."""
    buckets = TokenBuckets(per_s=1, burst=1)
    assert (buckets.take("a", 9), buckets.take("a", 5), buckets.take("a", 6)) == (0, 1, 0)


def test_number_of_callers_is_bounded() -> None:
    """The silent ones are forgotten first, tenants that ask stay known."""
    buckets = TokenBuckets(per_s=1, burst=1, callers_max=3)
    for number in range(100):
        buckets.take("busy", 0)
        buckets.take(f"c{number}", 0)
    assert len(buckets) == 3
    assert buckets.take("busy", 0) == 1
