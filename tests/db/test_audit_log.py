"""What PostgreSQL adds to the contract: nobody can change what was written."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from core.audit_log import faults_in
from db.audit_log import PostgresAuditLog
from db.store import PostgresStore
from tests.db.contract.audit import ENTRY

pytestmark = pytest.mark.slow


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_log SET target = 'other'",
        "UPDATE audit_log SET hash = decode(repeat('00', 32), 'hex')",
        "DELETE FROM audit_log",
        "TRUNCATE audit_log",
    ],
)
async def test_the_log_is_append_only(
    store: PostgresStore, database_url: str, statement: str
) -> None:
    """A linked row can be neither changed nor deleted, not even by the owner of the table."""
    log = PostgresAuditLog(store)
    await store.commit([(ENTRY,), (ENTRY,)], None)
    assert await log.link(10) == 2
    with (
        psycopg.connect(database_url) as connection,
        pytest.raises(psycopg.errors.RaiseException, match="append-only"),
    ):
        connection.execute(statement)
    assert not list(faults_in(await log.chain(0, 10)))


async def test_who_takes_the_triggers_away_is_named_by_the_chain(
    store: PostgresStore, database_url: str
) -> None:
    """A superuser can change a row; the chain shows which."""
    log = PostgresAuditLog(store)
    await store.commit([(ENTRY,), (ENTRY,), (ENTRY,)], None)
    await log.link(10)
    with psycopg.connect(database_url) as connection:
        connection.execute("ALTER TABLE audit_log DISABLE TRIGGER ALL")
        connection.execute("UPDATE audit_log SET principal = 'key:eve' WHERE number = 2")
    (fault,) = faults_in(await log.chain(0, 10))
    assert "link 2" in fault.words
