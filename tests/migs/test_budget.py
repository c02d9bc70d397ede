"""The budget of Compute calls."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from core.errors import CloudBusy
from migs.budget import CallBudget


class FakeTime:
    """A clock that moves when somebody sleeps on it."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


def budget(time: FakeTime, per_minute: int, burst: int) -> CallBudget:
    return CallBudget(per_minute, time, burst=burst, sleep=time.sleep)


async def test_burst_then_pace() -> None:
    """The first calls go at once, the rest one interval apart."""
    time = FakeTime()
    bucket = budget(time, per_minute=60, burst=3)
    for _ in range(5):
        await bucket.take(10)
    assert time.slept == [pytest.approx(1.0), pytest.approx(1.0)]


async def test_refuses_instead_of_waiting_too_long() -> None:
    """Beyond the longest wait the caller hears so at once, and the refusal costs no place."""
    time = FakeTime()
    bucket = budget(time, per_minute=6, burst=1)
    await bucket.take(0)
    for _ in range(100):
        with pytest.raises(CloudBusy, match=r"free in 10\.0 s"):
            await bucket.take(5)
    time.seconds += 10
    await bucket.take(0)


async def test_never_more_than_the_budget() -> None:
    """In any minute, however it is spent, there are at most a minute's calls and the burst."""
    time = FakeTime()
    bucket = budget(time, per_minute=120, burst=12)
    began, taken = time.seconds, 0
    while time.seconds < began + 60:
        await bucket.take(60)
        taken += 1
    assert 120 <= taken <= 120 + 12 + 1


async def test_idle_time_is_not_saved_up() -> None:
    """An hour without calls buys no more than the burst."""
    time = FakeTime()
    bucket = budget(time, per_minute=60, burst=2)
    time.seconds += 3600
    for _ in range(3):
        await bucket.take(10)
    assert time.slept == [pytest.approx(1.0)]


async def test_first_come_first_served() -> None:
    """Those who wait are let through in the order they came."""
    time = FakeTime()
    gates: list[tuple[float, asyncio.Event]] = []

    async def sleep(seconds: float) -> None:
        gate = asyncio.Event()
        gates.append((seconds, gate))
        await gate.wait()

    bucket = CallBudget(60, time, burst=1, sleep=sleep)
    order: list[int] = []

    async def caller(number: int) -> None:
        await bucket.take(60)
        order.append(number)

    tasks = []
    for number in range(4):
        tasks.append(asyncio.create_task(caller(number)))
        await asyncio.sleep(0)
    waits = [seconds for seconds, _ in gates]
    assert waits == sorted(waits)
    assert len(set(waits)) == 3
    for _, gate in sorted(gates, key=lambda pair: pair[0]):
        gate.set()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3]
