"""A leader that is gone is replaced soon; one that lives stops before."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import TermPassed
from core.ports import LeaderStatus
from core.timers import Timers
from scheduler.cycle.leadership import DOUBT_S, GONE_S, DatabaseClock, Leadership
from sim.memory.store import MemoryStore
from tests.builders import live
from tests.scheduler.cycle.test_outbox_relay import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def leads(one: Leadership) -> bool:
    """Asked anew each time."""
    return one.leading


def replica(door: MemoryStore, clock: HandClock, name: str) -> Leadership:
    return Leadership(door, name, live(), DatabaseClock(clock))


async def test_killed_leader_is_replaced_before_its_lease_ends(clock: HandClock) -> None:
    """Once its session has been gone for a second."""
    store = MemoryStore(clock)
    old = replica(store, clock, "old")
    new = replica(store.door(), clock, "new")
    await old.renew()
    await new.renew()
    store.hang_up()
    await new.renew()
    clock.passed_s += GONE_S / 2
    await new.renew()
    assert not leads(new)
    clock.passed_s += GONE_S / 2
    await new.renew()
    assert leads(new)
    assert new.term() == 2


async def test_outage_does_not_count_as_absence(clock: HandClock) -> None:
    """After one the leader has its second again to come back."""
    store = MemoryStore(clock)
    old, door = replica(store, clock, "old"), store.door()
    new = replica(door, clock, "new")
    await old.renew()
    store.down = True
    await new.renew()
    door.down = True
    clock.passed_s += GONE_S
    await new.renew()
    door.down = False
    await new.renew()
    assert not leads(new)
    store.down = False
    await old.renew()
    clock.passed_s += GONE_S
    await new.renew()
    assert (leads(old), leads(new)) == (True, False)


async def test_leader_without_its_session_stops_first(clock: HandClock) -> None:
    """A leader that cannot reach the database believes in itself for less than a second."""
    assert DOUBT_S < GONE_S
    store = MemoryStore(clock)
    old = replica(store, clock, "old")
    keeping = asyncio.create_task(old.keep())
    async with asyncio.timeout(30):
        await old.changed.wait()
        assert leads(old)
        old.changed.clear()
        store.down = True
        await store.session_lost()
        clock.passed_s += DOUBT_S
        while leads(old):
            await asyncio.sleep(0.01)
            clock.passed_s += 0.01
        with pytest.raises(TermPassed):
            old.term()
        assert clock.passed_s < GONE_S * 2
        await old.changed.wait()
        store.down = False
        old.changed.clear()
        await old.changed.wait()
        assert leads(old)
    assert old.term() == 1
    keeping.cancel()


class HangingStore(MemoryStore):
    """While it hangs, its answers to a leader do not arrive."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.hanging = 0

    async def lead(self, holder: str, lease_s: float, gone_term: int | None = None) -> LeaderStatus:
        answer = await super().lead(holder, lease_s, gone_term)
        self.hanging += not self.goes_on.is_set()
        await self.goes_on.wait()
        return answer

    async def hang(self, renewals: int) -> None:
        self.goes_on.clear()
        while self.hanging < renewals:  # noqa: ASYNC110  # a number of them
            await asyncio.sleep(0.001)


async def test_leader_whose_renewal_hangs_says_that_its_lease_is_over(clock: HandClock) -> None:
    """So that its tasks end."""
    store = HangingStore(clock)
    settings = live(timers=Timers(leader_lease_s=0.3, leader_renew_s=0.01))
    old = Leadership(store, "old", settings, DatabaseClock(clock))
    keeping = asyncio.create_task(old.keep())
    async with asyncio.timeout(30):
        await old.changed.wait()
        old.changed.clear()
        await store.hang(1)
        clock.passed_s += 0.3
        await old.changed.wait()
    assert not leads(old)
    keeping.cancel()


async def test_leader_without_its_session_stops_while_its_renewal_hangs(clock: HandClock) -> None:
    """And an answer from before the loss does not make it lead again: another one may by then."""
    store = HangingStore(clock)
    old = replica(store, clock, "old")
    keeping = asyncio.create_task(old.keep())
    async with asyncio.timeout(30):
        await old.changed.wait()
        old.changed.clear()
        store.goes_on.clear()
        before = asyncio.create_task(old.renew())
        await store.hang(1)
        store.hang_up()
        await store.hang(2)
        clock.passed_s += DOUBT_S
        await old.changed.wait()
        keeping.cancel()
        store.goes_on.set()
        await before
    assert not leads(old)
