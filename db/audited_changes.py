"""Transactions whose row of the audit log is written with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from core.audit_log import AuditEntry
from db.audit_rows import AUDIT, INSERT_AUDIT
from db.rows import Row
from db.store import Connection, PostgresStore


class AuditedTables:
    """Over the store's connections."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    @asynccontextmanager
    async def _change(self, audited: AuditEntry | None) -> AsyncIterator[Connection]:
        """A transaction with its row of the audit log."""
        async with self._store.connection() as connection, connection.transaction():
            yield connection
            if audited is not None:
                await connection.execute(INSERT_AUDIT, AUDIT.arrays([audited]))

    async def _run(self, query: str, values: Sequence[object]) -> list[Row]:
        async with self._store.connection() as connection:
            return await (await connection.execute(query, values)).fetchall()
