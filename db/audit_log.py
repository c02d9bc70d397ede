"""PostgreSQL behind core.audit_store.AuditLog."""
# only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Sequence

from core.audit_log import Actor, AuditAction, AuditEntry, AuditLink, AuditRow, links_for
from core.audit_store import PAGE_MAX, AuditFilter
from db.rows import Row
from db.store import PostgresStore

_SELECT = """
SELECT seq, at, principal, user_id, address, request_id, action, target, tenant_id, outcome,
    detail, number, hash FROM audit_log
"""
_ROWS = f"""
{_SELECT} WHERE (%(before)s::bigint IS NULL OR seq < %(before)s)
    AND (%(principal)s::text IS NULL OR principal = %(principal)s)
    AND (%(action)s::text IS NULL OR action = %(action)s)
    AND (%(target)s::text IS NULL OR target = %(target)s)
    AND (%(tenants)s::text[] IS NULL OR tenant_id = ANY(%(tenants)s::text[]))
ORDER BY seq DESC LIMIT %(size)s
"""
_CHAIN = f"{_SELECT} WHERE number > %s ORDER BY number LIMIT %s"
_UNLINKED = f"{_SELECT} WHERE number IS NULL ORDER BY seq LIMIT %s"
_HEAD = "SELECT number, hash FROM audit_log WHERE number IS NOT NULL ORDER BY number DESC LIMIT 1"
_LINK = """
UPDATE audit_log AS a SET number = x.number, hash = x.hash
FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[]) AS x(seq, number, hash) WHERE a.seq = x.seq
"""
_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_LOCK_NUMBER = 0x5A454E02  # any number that nothing else in the database locks


class PostgresAuditLog:
    """Over the store's connections."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def rows(self, where: AuditFilter, size: int, before: int | None) -> Sequence[AuditRow]:
        words = {
            "principal": where.principal,
            "action": where.action,
            "target": where.target,
            "tenants": where.tenants.only,
            "before": before,
            "size": _bounded(size),
        }
        async with self._store.connection() as connection:
            return _rows(await (await connection.execute(_ROWS, words)).fetchall())

    async def chain(self, after: int, size: int) -> Sequence[AuditRow]:
        async with self._store.connection() as connection:
            return _rows(
                await (await connection.execute(_CHAIN, (after, _bounded(size)))).fetchall()
            )

    async def unlinked(self, size: int) -> Sequence[AuditRow]:
        async with self._store.connection() as connection:
            return _rows(await (await connection.execute(_UNLINKED, (_bounded(size),))).fetchall())

    async def head(self) -> AuditLink | None:
        async with self._store.connection() as connection:
            return _head(await (await connection.execute(_HEAD)).fetchone())

    async def link(self, size: int) -> int:
        async with self._store.connection() as connection, connection.transaction():
            await connection.execute(_LOCK, (_LOCK_NUMBER,))
            head = _head(await (await connection.execute(_HEAD)).fetchone())
            found = await (await connection.execute(_UNLINKED, (_bounded(size),))).fetchall()
            links = links_for(_rows(found), head)
            if links:
                seqs = [seq for seq, _ in links]
                made = [link for _, link in links]
                values = (seqs, [link.number for link in made], [link.hash for link in made])
                await connection.execute(_LINK, values)
        return len(links)


def _bounded(size: int) -> int:
    return max(1, min(size, PAGE_MAX))


def _head(row: Row | None) -> AuditLink | None:
    return None if row is None else AuditLink(row[0], bytes(row[1]))


def _rows(rows: Sequence[Row]) -> list[AuditRow]:
    return [_row(row) for row in rows]


def _row(row: Row) -> AuditRow:
    seq, at, principal, user_id, address, request_id, action, target, tenant_id, outcome = row[:10]
    detail, number, hash_ = row[10:]
    actor = Actor(principal, user_id, address, request_id)
    entry = AuditEntry(at, actor, AuditAction(action), target, tenant_id, outcome, detail)
    return AuditRow(seq, entry, None if number is None else AuditLink(number, bytes(hash_)))
