"""PostgreSQL keeps the contract of Store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from db.config_versions import PostgresConfigVersions
from db.reads import PostgresReads
from db.store import PostgresStore
from tests.db.store_contract import ExpireLeader, StoreContract, maker

pytestmark = pytest.mark.slow
__all__ = ["maker"]


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def reads(store: PostgresStore) -> PostgresReads:
    return PostgresReads(store)


@pytest.fixture
def configs(store: PostgresStore) -> PostgresConfigVersions:
    return PostgresConfigVersions(store)


@pytest.fixture
def expire_leader(database_url: str) -> ExpireLeader:
    """Moves the end of the lease instead of the clock, which is the database's."""

    async def expire() -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            await connection.execute("UPDATE leader SET expires_at = now() - interval '1 s'")

    return expire


class TestPostgresStore(StoreContract):
    """The whole contract."""
