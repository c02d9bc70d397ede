"""PostgreSQL behind core.sessions.SessionStore."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from core.audit_log import AuditEntry
from core.errors import NotFound
from core.sessions import KEPT_S, OPEN_MAX, SESSIONS_MAX, BrowserSession
from db.audited_changes import AuditedTables
from db.rows import Row

_SESSION = (
    "session_id, hash, principal, created_at, expires_at, last_seen_at, issuer, groups, "
    "key_hash, ended_at"
)
_ONE = f"SELECT {_SESSION} FROM sessions WHERE session_id = %s"
_PAGE = f"""
SELECT {_SESSION} FROM sessions
WHERE session_id > coalesce(%s, '') AND principal = coalesce(%s, principal)
ORDER BY session_id LIMIT %s
"""
_ADD = f"INSERT INTO sessions ({_SESSION}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_END_OLDEST = """
UPDATE sessions SET ended_at = %s WHERE session_id IN (
    SELECT session_id FROM sessions WHERE principal = %s AND ended_at IS NULL
    ORDER BY created_at DESC, session_id DESC OFFSET %s)
"""
_FORGET = "DELETE FROM sessions WHERE least(expires_at, ended_at) < %s"
_END = f"""
UPDATE sessions SET ended_at = coalesce(ended_at, %s) WHERE session_id = %s RETURNING {_SESSION}
"""
_SEEN = """
UPDATE sessions SET last_seen_at = greatest(last_seen_at, %s) WHERE session_id = ANY(%s::text[])
"""


class PostgresSessions(AuditedTables):
    """Sessions of browsers."""

    async def session(self, session_id: str) -> BrowserSession | None:
        rows = await self._run(_ONE, (session_id,))
        return _session(rows[0]) if rows else None

    async def sessions(
        self, size: int, after: str | None, principal: str | None = None
    ) -> Sequence[BrowserSession]:
        rows = await self._run(_PAGE, (after, principal, max(1, min(size, SESSIONS_MAX))))
        return [_session(row) for row in rows]

    async def add_session(self, session: BrowserSession, audited: AuditEntry) -> None:
        values = (
            *(session.session_id, session.hash, session.principal, session.created_at),
            *(session.expires_at, session.last_seen_at, session.issuer, list(session.groups)),
            *(session.key_hash, session.ended_at),
        )
        now = session.created_at
        async with self._change(audited) as connection:
            await connection.execute(_ADD, values)
            await connection.execute(_END_OLDEST, (now, session.principal, OPEN_MAX))
            await connection.execute(_FORGET, (now - timedelta(seconds=KEPT_S),))

    async def end_session(
        self, session_id: str, at: datetime, audited: AuditEntry
    ) -> BrowserSession:
        async with self._change(audited) as connection:
            rows = await (await connection.execute(_END, (at, session_id))).fetchall()
            if not rows:
                raise NotFound(f"there is no session {session_id}")
            return _session(rows[0])

    async def seen(self, session_ids: Sequence[str], at: datetime) -> None:
        async with self._store.connection() as connection:
            await connection.execute(_SEEN, (at, sorted(session_ids)))


def _session(row: Row) -> BrowserSession:
    session_id, hash_, principal, *times, issuer, groups, key_hash, ended_at = row
    created_at, expires_at, last_seen_at = times
    return BrowserSession(
        session_id=session_id,
        hash=bytes(hash_),
        principal=principal,
        created_at=created_at,
        expires_at=expires_at,
        last_seen_at=last_seen_at,
        issuer=issuer,
        groups=tuple(groups),
        key_hash=bytes(key_hash),
        ended_at=ended_at,
    )
