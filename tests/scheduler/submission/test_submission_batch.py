"""Submissions that come together."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.submission.submission_batch import PART, PARTS_MAX, parts_of, submit_together


def test_parts_are_bounded_and_a_job_that_waits_begins_one() -> None:
    """All jobs once, in their order."""
    jobs: list[object] = [{}] * (PART + 2) + [{"after": ["a"]}, {}]
    parts = list(parts_of(jobs))
    assert parts == [
        (range(PART), False),
        (range(PART, PART + 2), False),
        (range(PART + 2, PART + 4), True),
    ]
    arrays: list[object] = [{}, {"array": "1-9"}, {"array": "1-9"}, {}, {}]
    assert [part for part, _ in parts_of(arrays)] == [
        range(1),
        range(1, 2),
        range(2, 3),
        range(3, 5),
    ]
    assert list(parts_of([])) == []
    assert list(parts_of([{"after": ["a"]}])) == [(range(1), True)]


async def test_few_are_on_their_way_at_once_and_results_keep_their_order() -> None:
    """Faults stand where their jobs stand."""
    busy: list[int] = []
    most = 0

    async def submit(number: int) -> int:
        nonlocal most
        busy.append(number)
        most = max(most, len(busy))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        busy.remove(number)
        if number == 3:
            raise ValueError("three")
        return number

    found = await submit_together([{}] * 1000, submit)
    assert isinstance(found[3], ValueError)
    assert [one for one in found if not isinstance(one, ValueError)] == [
        number for number in range(1000) if number != 3
    ]
    assert most <= PART * (PARTS_MAX + 1)


async def test_a_job_that_waits_finds_what_came_before_it() -> None:
    """Also of the parts that were still on their way."""
    stored: list[int] = []

    async def submit(number: int) -> int:
        await asyncio.sleep(0)
        if number == 120:
            assert len(stored) >= 120
        stored.append(number)
        return number

    jobs: list[object] = [{}] * 120 + [{"after": ["x"]}]
    assert await submit_together(jobs, submit) == list(range(121))


async def test_a_cancelled_batch_ends() -> None:
    """The one who waits has gone."""

    async def submit(_: int) -> int:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await submit_together([{}], submit)
