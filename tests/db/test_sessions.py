"""PostgreSQL keeps the contract of SessionStore."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from db.sessions import PostgresSessions
from db.store import PostgresStore
from tests.db.contract.sessions import Sessions

pytestmark = pytest.mark.slow


@pytest.fixture
async def sessions(database_url: str) -> AsyncIterator[PostgresSessions]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield PostgresSessions(opened)
    await opened.close()


class TestPostgresSessions(Sessions):
    """The whole contract."""
