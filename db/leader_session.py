"""A session by which the others see that the leader lives: it holds a lock of the database, which
ends with the process."""

# ruff: noqa: S608  # only our own number is put into these texts

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

LEADER_LOCK = 0x5A454E05
OPEN_S = 2.0
POOLED_S = 1.0
"""A session that ended is noticed long before."""
log = structlog.get_logger(__name__)

# Shared: a session of ours that hangs must not keep the next one out.
_HOLD = "SELECT pg_backend_pid(), pg_try_advisory_lock_shared(%s, %s)"
_LOCKED = f"""
SELECT FROM pg_locks AS k WHERE k.locktype = 'advisory' AND k.granted AND k.objsubid = 2
    AND k.classid = {LEADER_LOCK} AND k.objid = l.term::oid
    AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
# Of a row of `leader AS l`. The column says for which term a session was seen: replicas that have
# none do not write it, and their leases are waited for.
GONE = f"(l.session_term IS NOT DISTINCT FROM l.term AND NOT EXISTS ({_LOCKED}))"
OURS = f"EXISTS ({_LOCKED} AND k.pid = %(session)s)"


class LeaderSession:
    """One connection outside the pool, while its replica leads. Without it the lease alone
    counts."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name
        self._term: int | None = None
        self._pooled = False
        self._watch: asyncio.Task[None] | None = None
        self.pid = 0
        """Of the server's process; 0: there is no session."""
        self.lost = asyncio.Event()
        """Always the same one: who waits for it outlives the sessions."""

    async def hold(self, term: int) -> bool:
        """Whether a session was made now that was not there before."""
        if self._pooled or (self._term == term and not self.lost.is_set()):
            return False
        await self.end()
        try:
            async with asyncio.timeout(OPEN_S):
                connection, self.pid = await self._open(term)
        except (psycopg.Error, OSError, TimeoutError) as fault:
            log.warning("no session of the leader: a successor waits for the lease", why=str(fault))
            return False
        self._term = term
        self._watch = asyncio.create_task(_watch(connection, self.lost), name="leader session")
        return True

    async def _open(self, term: int) -> tuple[AsyncConnection[TupleRow], int]:
        connection = await AsyncConnection.connect(
            self._url,
            autocommit=True,
            connect_timeout=int(OPEN_S),
            application_name=self._name,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
        )
        try:
            row = await (await connection.execute(_HOLD, (LEADER_LOCK, term))).fetchone()
        except BaseException:
            await connection.close()
            raise
        assert row is not None, "a SELECT without a table has one row"
        return connection, row[0]

    async def missing(self) -> None:
        """The database does not see our lock. Unless the session has ended, its connection is not
        ours alone: a pooler gives it away, and may end it while we live."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POOLED_S):
                await self.lost.wait()
                return
        log.warning("the database's connections are pooled: a successor waits for the lease")
        self._pooled = True
        await self.end()

    async def end(self) -> None:
        """Not as one that was lost."""
        self._term, self.pid = None, 0
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.wait([watch])
        self.lost.clear()


async def _watch(connection: AsyncConnection[TupleRow], lost: asyncio.Event) -> None:
    """Nothing is ever said on it; its end is, unless it was us who ended it."""
    ours = False
    try:
        async for _ in connection.notifies():
            pass
    except (psycopg.Error, OSError) as fault:
        log.warning("session of the leader lost", why=str(fault).strip())
    except asyncio.CancelledError:
        ours = True
        raise
    finally:
        if not ours:
            lost.set()
        await connection.close()
