"""The row of the leader: who leads, in which term, until when."""
# ruff: noqa: S608  # only our own conditions are put into these texts

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.ports import LeaderStatus
from db.leader_session import GONE, OURS, LeaderSession

Connection = AsyncConnection[TupleRow]
log = structlog.get_logger(__name__)
LEAD_WAIT_S = 1.0
"""For the leader's row: longer than any commit takes, short beside the lease."""

# The row is locked before the last condition is looked at: a leader that has just shown its session
# again keeps its lease.
_LEAD = f"""
INSERT INTO leader AS l (one, holder, term, expires_at)
VALUES (true, %(holder)s, 1, clock_timestamp() + make_interval(secs => %(lease_s)s))
ON CONFLICT (one) DO UPDATE SET
    holder = excluded.holder,
    term = l.term + CASE WHEN l.holder = excluded.holder THEN 0 ELSE 1 END,
    expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s),
    session_term = CASE WHEN l.holder = excluded.holder AND {OURS} THEN l.term END
WHERE l.holder = excluded.holder OR l.expires_at <= clock_timestamp()
    OR (l.term = %(gone_term)s AND {GONE})
RETURNING true, term, holder, expires_at, clock_timestamp(), false, session_term IS NOT NULL
"""
# Only reads: a follower that asks must not stand in the way of the leader's own writes.
_LEADER = f"""
SELECT false, term, holder, expires_at, clock_timestamp(), {GONE},
    holder <> %(holder)s AND expires_at > clock_timestamp()
FROM leader AS l
"""
# The sessions of a leader whose lease is over; each replica's bear its name.
_END_SESSIONS = """
SELECT pg_terminate_backend(a.pid) FROM leader AS l
JOIN pg_stat_activity AS a ON a.application_name = left(l.holder, 63)
WHERE l.holder <> %(holder)s AND l.expires_at <= clock_timestamp()
    AND a.datname = current_database() AND a.pid <> pg_backend_pid()
"""
_RESIGN = """
UPDATE leader SET holder = '', expires_at = clock_timestamp() WHERE holder = %s AND term = %s
"""


class LeaderLease:
    """As one replica asks for it, and the session that shows that it lives while it leads."""

    def __init__(
        self,
        connection: Callable[[], AbstractAsyncContextManager[Connection]],
        session: LeaderSession,
    ) -> None:
        self._connection, self.session = connection, session

    async def lead(self, holder: str, lease_s: float, gone_term: int | None) -> LeaderStatus:
        """On the database's clock. The holder keeps its term, also past the expiry, as
        long as nobody else came."""
        assert holder, "an empty holder means that nobody leads"
        asked = {"holder": holder, "lease_s": lease_s, "gone_term": gone_term}
        async with self._connection() as connection:
            seen = await (await connection.execute(_LEADER, asked)).fetchone()
            if seen is not None and seen[6] and not (seen[5] and seen[1] == gone_term):
                row: TupleRow | None = seen
            else:
                row = await self._take(connection, asked)
                if row is None:
                    row = await (await connection.execute(_LEADER, asked)).fetchone()
        assert row is not None, "the row of the leader is never deleted"
        found = LeaderStatus(*row[:6])
        if not found.leading:
            await self.session.end()
            return found
        return await self._show(found, asked, shown=row[6])

    async def _show(
        self, found: LeaderStatus, asked: dict[str, object], *, shown: bool
    ) -> LeaderStatus:
        """A session for this term, if there is none yet. The others go by it once it is in the
        leader's row."""
        if await self.session.hold(found.term):
            async with self._connection() as connection:
                row = await self._take(connection, asked)
            return found if row is None else LeaderStatus(*row[:6])
        if self.session.pid and not shown:
            await self.session.missing()
        return found

    async def _take(self, connection: Connection, asked: dict[str, object]) -> TupleRow | None:
        try:
            return await self._take_lead(connection, asked)
        except psycopg.errors.LockNotAvailable:
            # The old leader froze in the middle of a transaction. Its session holds the row,
            # and in the middle of a pipeline no time-out of the server ends it.
            async with connection.transaction():
                # As the login, whose sessions they are.
                await connection.execute("SET LOCAL ROLE NONE")
                ended = await (await connection.execute(_END_SESSIONS, asked)).fetchall()
            log.warning("sessions of the old leader ended", count=len(ended))
            return await self._take_lead(connection, asked)

    async def _take_lead(self, connection: Connection, asked: dict[str, object]) -> TupleRow | None:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{LEAD_WAIT_S:g}s'")
            words = asked | {"session": self.session.pid}
            return await (await connection.execute(_LEAD, words)).fetchone()

    async def resign(self, holder: str, term: int) -> None:
        """The term stays where it is; the next leader's grows, so ours has passed for good."""
        async with self._connection() as connection:
            await connection.execute(_RESIGN, (holder, term))
        await self.session.end()
