"""Connections on which only the rows of some tenants are seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from core.access import Tenants
from db.roles import API, SETTING, tenants_word
from db.store import Connection, PostgresStore, Reachability

_BIND = f"SELECT set_config('{SETTING}', %s, false)"
_NEWEST_TABLES = "SELECT FROM job_counts, job_labels, timelines LIMIT 0"
POOL_MAX = 4


@dataclass(frozen=True, slots=True)
class TenantConnections:
    """Of one caller."""

    pool: TenantPool
    tenants: Tenants

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        return self.pool.connection(self.tenants)


class TenantPool:
    """Connections as the role that reads for callers. Each remembers for whom it read last: one
    that reads for the same tenants again needs to be told nothing."""

    def __init__(
        self,
        url: str,
        name: str,
        server: Reachability | None = None,
        *,
        role_required: bool = False,
    ) -> None:
        self.store = PostgresStore(
            url,
            name=f"{name}-api",
            pool_max=POOL_MAX,
            role=API,
            role_required=role_required,
            server=server,
        )
        self._told: WeakKeyDictionary[Connection, str] = WeakKeyDictionary()

    def bound(self, tenants: Tenants) -> TenantConnections:
        """The connections of one caller."""
        return TenantConnections(self, tenants)

    async def check(self) -> None:
        """StoreDown: callers cannot be read for, or the tables that came last lack their rights."""
        async with self.connection(Tenants()) as connection:
            await connection.execute(_NEWEST_TABLES)

    @asynccontextmanager
    async def connection(self, tenants: Tenants) -> AsyncIterator[Connection]:
        """Sees these tenants' rows, or StoreDown."""
        word = tenants_word(tenants)
        async with self.store.connection() as connection:
            if self._told.get(connection) != word:
                self._told.pop(connection, None)
                await connection.execute(_BIND, (word,))
                self._told[connection] = word
            yield connection
