"""The budget of Compute calls."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from core.errors import CloudBusy
from migs.rate_limit import CallBudget


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


class Row:
    """Callers of a budget of one call a second, with time in our hands."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.bucket = budget(self.time, per_minute=60, burst=1)
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def stand(self, lane: str, *, times: int = 1, urgent: bool = False) -> None:
        """Calls that are not served yet when this returns: time moves in `serve` alone."""
        for number in range(times):
            self.tasks.append(asyncio.create_task(self._call(lane, number, urgent)))

    async def _call(self, lane: str, number: int, urgent: bool) -> None:
        await self.bucket.take(1000, lane, urgent=urgent)
        self.order.append(f"{lane}{number}")

    async def serve(self) -> list[str]:
        await asyncio.gather(*self.tasks)
        return self.order


async def test_first_come_first_served_within_a_lane() -> None:
    """Those of one group are let through in the order they came."""
    row = Row()
    await row.stand("a", times=4)
    assert await row.serve() == ["a0", "a1", "a2", "a3"]


async def test_hammering_group_waits_for_itself() -> None:
    """Fifty calls of one group ahead in the row cost another group two turns, not fifty."""
    row = Row()
    await row.stand("hammer", times=50)
    await row.stand("quiet", times=1)
    await row.stand("other", times=2)
    order = await row.serve()
    assert order.index("quiet0") <= 3
    assert order.index("other1") <= 6
    assert order[-1] == "hammer49"


async def test_deletes_go_first() -> None:
    """When calls must wait, calls that delete VMs go before calls that request more."""
    row = Row()
    await row.stand("a", times=3)
    await row.stand("b", times=1)
    await row.stand("a-delete", times=2, urgent=True)
    assert (await row.serve())[1:3] == ["a-delete0", "a-delete1"]


async def test_refusal_counts_the_turns_of_others() -> None:
    """A group with a long row of its own hears at once that it asks too much; one that asks
    seldom is told a short wait in the same moment."""
    time = FakeTime()
    stop = asyncio.Event()

    async def stand_still(_: float) -> None:
        await stop.wait()

    bucket = CallBudget(60, time, burst=1, sleep=stand_still)
    await bucket.take(0)
    waiting = [asyncio.create_task(bucket.take(100, "hammer")) for _ in range(10)]
    await asyncio.sleep(0)
    with pytest.raises(CloudBusy, match=r"free in 11\.0 s"):
        await bucket.take(5, "hammer")
    quiet = asyncio.create_task(bucket.take(5, "quiet"))
    await asyncio.sleep(0)
    assert not quiet.done()
    for task in (*waiting, quiet):
        task.cancel()
    await asyncio.gather(*waiting, quiet, return_exceptions=True)


async def test_who_gives_up_leaves_the_row() -> None:
    """A call that is not wanted any more spends no place."""
    row = Row()
    await row.stand("a", times=2)
    await asyncio.sleep(0)
    row.tasks.pop().cancel()
    await row.stand("b")
    assert await row.serve() == ["a0", "b0"]
    assert sum(row.time.slept) == pytest.approx(1.0)
