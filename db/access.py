"""PostgreSQL behind core.access_store.AccessStore."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from core.access import Grant, Scope
from core.access_store import GRANTS_MAX, KEYS_MAX, KnownKey, NewSecret
from core.api_keys import ApiKey, principal_of
from core.audit_log import AuditEntry
from core.errors import Conflict, NotFound
from db.audit_rows import AUDIT, INSERT_AUDIT
from db.audited_changes import AuditedTables
from db.rows import Row

_KEY = (
    "key_id, hash, name, user_id, created_at, created_by, expires_at, revoked_at, last_used_at, "
    "scopes"
)
_GRANTS_OF = """
coalesce((SELECT array_agg(ARRAY[g.tenant_id, g.role] ORDER BY g.tenant_id, g.role)
    FROM grants AS g WHERE g.principal = 'key:' || k.key_id), '{}')
"""
_ONE = f"SELECT {_KEY}, {_GRANTS_OF} FROM api_keys AS k WHERE key_id = %s"
_PAGE = f"""
SELECT {_KEY}, {_GRANTS_OF} FROM api_keys AS k
WHERE key_id > coalesce(%s, '') ORDER BY key_id LIMIT %s
"""
_ADD = f"""
INSERT INTO api_keys ({_KEY}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (key_id) DO NOTHING
"""
_ROTATE = f"""
UPDATE api_keys SET hash = %s, expires_at = %s WHERE key_id = %s AND revoked_at IS NULL
RETURNING {_KEY}
"""
_REVOKE = f"""
UPDATE api_keys SET revoked_at = coalesce(revoked_at, %s) WHERE key_id = %s RETURNING {_KEY}
"""
_USED = """
UPDATE api_keys SET last_used_at = greatest(last_used_at, %s) WHERE key_id = ANY(%s::text[])
"""
_GRANTS = """
SELECT principal, tenant_id, role FROM grants WHERE principal = coalesce(%s, principal)
ORDER BY principal, tenant_id, role LIMIT %s
"""
_GRANTS_OF_THESE = """
SELECT principal, tenant_id, role FROM grants WHERE principal = ANY(%s::text[])
ORDER BY principal, tenant_id, role LIMIT %s
"""
_ADD_GRANT = """
INSERT INTO grants (principal, tenant_id, role) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
"""
_REMOVE_GRANT = "DELETE FROM grants WHERE (principal, tenant_id, role) = (%s, %s, %s)"


class PostgresAccess(AuditedTables):
    """Keys and grants."""

    async def key(self, key_id: str) -> KnownKey | None:
        rows = await self._run(_ONE, (key_id,))
        return _known(rows[0]) if rows else None

    async def keys(self, size: int, after: str | None) -> Sequence[KnownKey]:
        rows = await self._run(_PAGE, (after, max(1, min(size, KEYS_MAX))))
        return [_known(row) for row in rows]

    async def add_key(
        self, key: ApiKey, grants: Sequence[Grant], audited: AuditEntry | None = None
    ) -> None:
        values = (
            *(key.key_id, key.hash, key.name, key.user_id, key.created_at, key.created_by),
            *(key.expires_at, key.revoked_at, key.last_used_at, sorted(key.scopes)),
        )
        async with self._change(audited) as connection:
            if (await connection.execute(_ADD, values)).rowcount == 0:
                rows = await (await connection.execute(_ONE, (key.key_id,))).fetchall()
                if _known(rows[0]).key.hash != key.hash:
                    raise Conflict(f"there is already a key {key.key_id}")
            for grant in grants:
                await connection.execute(_ADD_GRANT, (grant.principal, grant.tenant_id, grant.role))

    async def rotate_key(self, new: NewSecret, audited: AuditEntry | None = None) -> ApiKey:
        async with self._change(audited) as connection:
            values = (new.hash, new.expires_at, new.key_id)
            rows = await (await connection.execute(_ROTATE, values)).fetchall()
            if rows:
                return _key(rows[0])
            if await (await connection.execute(_ONE, (new.key_id,))).fetchone() is None:
                raise NotFound(f"there is no key {new.key_id}")
            raise Conflict(f"key {new.key_id} was revoked: create a new one")

    async def revoke_key(
        self, key_id: str, at: datetime, audited: AuditEntry | None = None
    ) -> ApiKey:
        async with self._change(audited) as connection:
            rows = await (await connection.execute(_REVOKE, (at, key_id))).fetchall()
            if not rows:
                raise NotFound(f"there is no key {key_id}")
            return _key(rows[0])

    async def used(self, key_ids: Sequence[str], at: datetime) -> None:
        async with self._store.connection() as connection:
            await connection.execute(_USED, (at, sorted(key_ids)))

    async def grants(self, principal: str | None = None) -> Sequence[Grant]:
        rows = await self._run(_GRANTS, (principal, GRANTS_MAX))
        return [Grant(name, tenant_id, role) for name, tenant_id, role in rows]

    async def grants_of(self, principals: Sequence[str]) -> Sequence[Grant]:
        rows = await self._run(_GRANTS_OF_THESE, (list(principals), GRANTS_MAX))
        return [Grant(name, tenant_id, role) for name, tenant_id, role in rows]

    async def add_grant(self, grant: Grant, audited: AuditEntry | None = None) -> bool:
        return await self._changed(_ADD_GRANT, grant, audited)

    async def remove_grant(self, grant: Grant, audited: AuditEntry | None = None) -> bool:
        return await self._changed(_REMOVE_GRANT, grant, audited)

    async def _changed(self, statement: str, grant: Grant, audited: AuditEntry | None) -> bool:
        """What changes nothing leaves no row in the audit log."""
        values = (grant.principal, grant.tenant_id, grant.role)
        async with self._store.connection() as connection, connection.transaction():
            changed = (await connection.execute(statement, values)).rowcount == 1
            if changed and audited is not None:
                await connection.execute(INSERT_AUDIT, AUDIT.arrays([audited]))
            return changed


def _key(row: Row) -> ApiKey:
    key_id, hash_, name, user_id, created_at, created_by, *times, scopes = row[:10]
    expires_at, revoked_at, last_used_at = times
    return ApiKey(
        key_id=key_id,
        hash=bytes(hash_),
        name=name,
        user_id=user_id,
        created_at=created_at,
        created_by=created_by,
        expires_at=expires_at,
        revoked_at=revoked_at,
        last_used_at=last_used_at,
        scopes=frozenset(map(Scope, scopes)),
    )


def _known(row: Row) -> KnownKey:
    key = _key(row)
    name = principal_of(key.key_id)
    return KnownKey(key, tuple(Grant(name, tenant_id, role) for tenant_id, role in row[10]))
