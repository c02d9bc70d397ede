"""PostgreSQL keeps the contract of SecretStore."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from db.secrets import PostgresSecrets
from db.store import PostgresStore
from tests.db.contract.secrets import Secrets

pytestmark = pytest.mark.slow


@pytest.fixture
async def secrets(database_url: str) -> AsyncIterator[PostgresSecrets]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield PostgresSecrets(opened)
    await opened.close()


class TestPostgresSecrets(Secrets):
    """The whole contract."""

    bounded = ("db.secrets",)
