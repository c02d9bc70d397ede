"""The session of the leader on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from db.store import PostgresStore

pytestmark = pytest.mark.slow


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
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
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
