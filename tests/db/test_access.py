"""PostgreSQL keeps the contract of AccessStore."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from db.access import PostgresAccess
from db.store import PostgresStore
from tests.db.contract.access import Access

pytestmark = pytest.mark.slow


@pytest.fixture
async def access(database_url: str) -> AsyncIterator[PostgresAccess]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield PostgresAccess(opened)
    await opened.close()


class TestPostgresAccess(Access):
    """The whole contract."""
