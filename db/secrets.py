"""PostgreSQL behind core.secret_store.SecretStore."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Sequence

from core.audit_log import AuditEntry
from core.errors import Conflict
from core.secret_store import SECRETS_OF_TENANT_MAX, SealedSecret, SecretRow
from db.audit_rows import AUDIT, INSERT_AUDIT
from db.rows import Row
from db.store import Connection, PostgresStore

_ROW = "tenant_id, name, version, key_id, updated_at, updated_by"
_LIST = f"SELECT {_ROW} FROM secrets WHERE tenant_id = %s ORDER BY name LIMIT %s"
_ONE = f"SELECT {_ROW}, sealed FROM secrets WHERE tenant_id = %s AND name = %s"
# One tenant's writers wait for each other, so that its bound holds.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('secrets/' || %s, 0))"
_OTHERS = "SELECT count(*) FROM secrets WHERE tenant_id = %s AND name <> %s"
_PUT = f"""
INSERT INTO secrets AS s ({_ROW}, sealed) VALUES (%s, %s, 1, %s, %s, %s, %s)
ON CONFLICT (tenant_id, name) DO UPDATE SET version = s.version + 1, key_id = excluded.key_id,
    updated_at = excluded.updated_at, updated_by = excluded.updated_by, sealed = excluded.sealed
RETURNING version
"""
_DELETE = "DELETE FROM secrets WHERE tenant_id = %s AND name = %s"
_OTHERWISE = f"""
SELECT {_ROW}, sealed FROM secrets WHERE key_id <> %s ORDER BY tenant_id, name LIMIT %s
"""
_RESEAL = """
UPDATE secrets SET key_id = %s, sealed = %s WHERE tenant_id = %s AND name = %s AND version = %s
"""


class PostgresSecrets:
    """Over the store's connections."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def secrets(self, tenant_id: str) -> Sequence[SecretRow]:
        async with self._store.connection() as connection:
            found = await connection.execute(_LIST, (tenant_id, SECRETS_OF_TENANT_MAX))
            return [_row(row) for row in await found.fetchall()]

    async def secret(self, tenant_id: str, name: str) -> SealedSecret | None:
        async with self._store.connection() as connection:
            row = await (await connection.execute(_ONE, (tenant_id, name))).fetchone()
            return _sealed(row) if row is not None else None

    async def put_secret(self, secret: SealedSecret, audited: AuditEntry | None = None) -> int:
        row = secret.row
        async with self._store.connection() as connection, connection.transaction():
            await connection.execute(_LOCK, (row.tenant_id,))
            others = await connection.execute(_OTHERS, (row.tenant_id, row.name))
            if (await others.fetchall())[0][0] >= SECRETS_OF_TENANT_MAX:
                raise Conflict(
                    f"tenant {row.tenant_id} has {SECRETS_OF_TENANT_MAX} secrets: delete one first"
                )
            values = (
                *(row.tenant_id, row.name, row.key_id),
                *(row.updated_at, row.updated_by, secret.sealed),
            )
            found = await (await connection.execute(_PUT, values)).fetchall()
            await _audit(connection, audited)
            return int(found[0][0])

    async def delete_secret(
        self, tenant_id: str, name: str, audited: AuditEntry | None = None
    ) -> bool:
        return await self._changed(_DELETE, (tenant_id, name), audited)

    async def sealed_otherwise(self, key_id: str, size: int) -> Sequence[SealedSecret]:
        async with self._store.connection() as connection:
            rows = await (await connection.execute(_OTHERWISE, (key_id, size))).fetchall()
            return [_sealed(row) for row in rows]

    async def reseal(self, secret: SealedSecret, audited: AuditEntry | None = None) -> bool:
        row = secret.row
        values = (row.key_id, secret.sealed, row.tenant_id, row.name, row.version)
        return await self._changed(_RESEAL, values, audited)

    async def _changed(
        self, statement: str, values: Sequence[object], audited: AuditEntry | None
    ) -> bool:
        """What changes nothing leaves no row in the audit log."""
        async with self._store.connection() as connection, connection.transaction():
            changed = (await connection.execute(statement, values)).rowcount == 1
            if changed:
                await _audit(connection, audited)
            return changed


async def _audit(connection: Connection, audited: AuditEntry | None) -> None:
    if audited is not None:
        await connection.execute(INSERT_AUDIT, AUDIT.arrays([audited]))


def _sealed(row: Row) -> SealedSecret:
    return SealedSecret(_row(row), bytes(row[6]))


def _row(row: Row) -> SecretRow:
    tenant_id, name, version, key_id, updated_at, updated_by = row[:6]
    return SecretRow(tenant_id, name, version, key_id, updated_at, updated_by)
