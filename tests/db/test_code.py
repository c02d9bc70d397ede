"""PostgreSQL keeps the contract of CodeStore."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from db.code import PostgresCode
from db.store import PostgresStore
from tests.db.contract.code import Code

pytestmark = pytest.mark.slow


@pytest.fixture
async def code(database_url: str) -> AsyncIterator[PostgresCode]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield PostgresCode(opened)
    await opened.close()


class TestPostgresCode(Code):
    """The whole contract."""
