"""A leader that is gone is replaced soon; one that lives stops before."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import TermPassed
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
