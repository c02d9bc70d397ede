"""The session of the leader on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from psycopg import AsyncConnection

from core.clock import SystemClock
from core.errors import StoreDown
from core.ports import LeaderStatus
from core.timers import Timers
from db.leader_session import LEADER_LOCK
from db.store import PostgresStore
from scheduler.cycle.leadership import DatabaseClock, Leadership
from tests.builders import live

pytestmark = pytest.mark.slow
_END = """
SELECT pid, pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND classid = %s AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    one, two = PostgresStore(database_url), PostgresStore(database_url)
    await one.open()
    await two.open()
    yield one, two
    await one.close()
    await two.close()


async def test_pooled_connections_do_not_count(
    stores: tuple[PostgresStore, PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler may give the session to somebody else, and with it the lock: then the lease alone
    says who leads."""
    monkeypatch.setattr("db.leader_session._HOLD", "SELECT pg_backend_pid(), %s, %s")
    monkeypatch.setattr("db.leader_session.POOLED_S", 0.01)
    one, two = stores
    first = await one.lead("a", 60)
    await one.lead("a", 60)
    answer = await two.lead("b", 60, first.term)
    assert (answer.leading, answer.gone) == (False, False)


async def test_replica_of_an_earlier_release_is_waited_for(
    stores: tuple[PostgresStore, PostgresStore], database_url: str
) -> None:
    """It leads without a session, and leaves what its predecessor wrote of his."""
    one, two = stores
    await one.lead("a", 60)
    async with await AsyncConnection.connect(database_url) as connection:
        await connection.execute("UPDATE leader SET holder = 'earlier', term = term + 1")
    await one.close()
    answer = await two.lead("b", 60, 2)
    assert (answer.leading, answer.gone, answer.holder) == (False, False, "earlier")


async def test_database_without_a_connection_to_spare(
    stores: tuple[PostgresStore, PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader whose session cannot be made leads all the same."""
    monkeypatch.setattr("db.leader_session._HOLD", "no statement")
    one, two = stores
    first = await one.lead("a", 60)
    assert first.leading
    assert not (await two.lead("b", 60, first.term)).leading


@pytest.fixture
async def leader(stores: tuple[PostgresStore, PostgresStore]) -> AsyncIterator[Leadership]:
    """One whose next renewal is not due while a test lasts."""
    settings = live(timers=Timers(leader_lease_s=3000, leader_renew_s=1000))
    made = Leadership(stores[0], "a", settings, DatabaseClock(SystemClock()))
    keeping = asyncio.create_task(made.keep())
    async with asyncio.timeout(30):
        await made.changed.wait()
    made.changed.clear()
    yield made
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_leader_that_lost_only_its_session_shows_another_one_at_once(
    leader: Leadership, database_url: str
) -> None:
    """Each time, and in the same term."""
    async with (
        asyncio.timeout(30),
        await AsyncConnection.connect(database_url, autocommit=True) as connection,
    ):
        ended: set[int] = set()
        while len(ended) < 3:
            found = await connection.execute(_END, (LEADER_LOCK,))
            ended |= {pid for pid, _ in await found.fetchall()}
        while not leader.leading:
            leader.changed.clear()
            await leader.changed.wait()
    assert leader.term() == 1


async def test_leader_without_its_session_and_its_renewals_stops(
    stores: tuple[PostgresStore, PostgresStore],
    leader: Leadership,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though its lease lasts."""

    async def down(*_: object) -> LeaderStatus:
        raise StoreDown("away")

    monkeypatch.setattr(stores[0], "lead", down)
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(_END, (LEADER_LOCK,))
    async with asyncio.timeout(30):
        await leader.changed.wait()
    assert not leader.leading
