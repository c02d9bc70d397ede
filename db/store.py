"""PostgreSQL behind core.ports.Store."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from weakref import WeakSet

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from core.access import EVERY_TENANT, Tenants
from core.changes import AtomicBatch, BatchParts, Committed, Snapshot
from core.commit import KnownRows, Locked, Moves, judge, wanted
from core.commit_writes import Writes, fold
from core.cost import SettledBills, Spent
from core.errors import StoreDown
from core.forecast import Forecast, PastRun
from core.groups import GroupKey, only_one
from core.job import Job, JobKey, owner_of
from core.messages import OutboxRow, OutMessage
from core.ports import LeaderStatus
from core.queueing import Ask, HeadsOf
from core.reasons import CommitRefusal
from core.retention import RetentionRules
from core.tenants import Holding, TenantRow
from db.cost import settle_costs, spent
from db.forecasts import QueueReader, forecasts, runs
from db.groups import ONE_JOB, find_group, members, one_job, open_jobs
from db.leader_lease import LeaderLease
from db.leader_session import LeaderSession
from db.locks import lock
from db.long_writes import NotPlain, write_long
from db.new_jobs import all_begin
from db.retention import prune
from db.roles import LEADER
from db.rows import JOB_SELECT, mapping_of
from db.shared_specs import SharedSpecs
from db.snapshot import SnapshotReader
from db.snapshot_gate import Looks
from db.tenants import all_tenants, holdings
from db.writes import Raced, write

Connection = AsyncConnection[TupleRow]
log = structlog.get_logger(__name__)

# The last one meets a replica that stood still within a transaction and goes on.
_AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
POOL_WAIT_S = 1.5
AWAY_WAIT_S = 0.3
"""Once connections are refused, callers need not wait for long to hear so. A request that waits for
both pools, the first of which finds out, hears it within two seconds."""
STATEMENT_S = 10.0
IDLE_S = 4.0
"""A writer that froze in the middle of a transaction holds the leader's row: nobody else could
take the lease before the server ends its session. Ours are never idle for longer than a blink."""
_MEND_ROLE = "run zen db roles as one who may create roles, or set database_roles: false"
_RACES_MAX = 5
_RACED = f"{_RACES_MAX} times in a row somebody else submitted the same job first"
LONG_S = 60.0
"""For a long atomic batch, which is written in parts."""

# NOT IN is hashed in every plan; <> ALL of a parameter would be compared one by one.
_OUTBOX = """
SELECT outbox_id, topic, body, attributes::text, ordering_key FROM outbox
WHERE published_at IS NULL AND (topic = ANY(%s)) <> %s
    AND outbox_id NOT IN (SELECT unnest(%s::bigint[]))
ORDER BY outbox_id LIMIT %s
"""
# From the index alone, and no further than anybody would count.
_QUEUED = """
SELECT count(*) FROM (
    SELECT 1 FROM jobs WHERE status = 'QUEUED' AND blocked IS NULL
        AND cluster = %s AND tier = %s AND tenant_id = %s LIMIT %s
) AS waiting
"""
# What it said is on the bus now; nobody asks when it went there.
_PUBLISHED = "DELETE FROM outbox WHERE outbox_id = ANY(%s::bigint[])"


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of a commit."""

    committed: Committed
    writes: Writes
    proven: Mapping[str, int]
    """Rows of refused steps → the versions that they are stored at."""


@dataclass(slots=True)
class Reachability:
    """Of the database server, as the pools of one process know it together."""

    refused: bool = False
    """It refused connections of late."""


class PostgresStore:
    """One pool of connections. Every way the database can be away is StoreDown."""

    def __init__(
        self,
        url: str,
        *,
        pool_max: int = 8,
        operation_s: float = 15.0,
        name: str = "zen",
        role: str = LEADER,
        role_required: bool = False,
        server: Reachability | None = None,
    ) -> None:
        """`name` is how the database's own tables of activity show us; `role`: what our sessions
        become (db/roles.py). `role_required`: a session that cannot become it is not used;
        else the rights of its login count."""
        self._role, self._role_missing = role, False
        self._role_required = role_required
        self._lacking: WeakSet[Connection] = WeakSet()
        self._operation_s = operation_s
        self.specs = SharedSpecs()
        self._viewer = SnapshotReader(self.specs)
        self._looks = Looks(operation_s)
        self._term = 0
        self._lease = LeaderLease(self.connection, LeaderSession(url, name))
        self._queue = QueueReader(self.specs)
        self.server = server or Reachability()
        self._refused = 0
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=pool_max,
            timeout=POOL_WAIT_S,
            # A short span: after an outage the next caller tries at once instead of waiting
            # for a back-off that has grown for minutes.
            reconnect_timeout=POOL_WAIT_S,
            check=AsyncConnectionPool.check_connection,
            configure=self._become_role,
            open=False,
            kwargs={
                "autocommit": True,
                "connect_timeout": 2,
                "application_name": name,
                "options": f"-c statement_timeout={STATEMENT_S:g}s -c lock_timeout=5s "
                f"-c idle_in_transaction_session_timeout={IDLE_S:g}s -c timezone=UTC",
            },
        )

    async def _become_role(self, connection: Connection) -> None:
        """Row-level security and the limits of our rights hold for our roles alone."""
        try:
            await connection.execute(f"SET ROLE {self._role}")
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.InsufficientPrivilege) as why:
            self._lacking.add(connection)
            if not self._role_missing:
                self._role_missing = True
                log.warning("database role missing", role=self._role, why=str(why), mend=_MEND_ROLE)
        else:
            self._lacking.discard(connection)

    async def _check_role(self, connection: Connection) -> None:
        """StoreDown: it has not become our role, also not now."""
        if self._role_required and connection in self._lacking:
            await self._become_role(connection)
            if connection in self._lacking:
                raise StoreDown(f"the database's login cannot become {self._role}: {_MEND_ROLE}")

    async def open(self) -> None:
        """Does not wait for the database: the first use tells whether it is there."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._lease.session.end()
        await self._pool.close(timeout=5)

    @asynccontextmanager
    async def connection(self, operation_s: float | None = None) -> AsyncIterator[Connection]:
        """A connection in autocommit, or StoreDown."""
        try:
            # The server's own time-out does not help when the server has stopped answering.
            seconds = operation_s or self._operation_s
            async with asyncio.timeout(seconds), self._from_pool() as connection:
                yield connection
        except (*_AWAY, TimeoutError) as fault:
            if _is_cancelled():
                # The driver asks the server to cancel; if that fails, its error hides that we
                # were told to end. A caller that catches StoreDown and goes on would go on for
                # ever.
                raise asyncio.CancelledError from fault
            raise StoreDown(f"the database does not answer: {str(fault) or 'timed out'}") from fault
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as fault:
            words = "the database does not have our schema yet (zen db upgrade makes it)"
            raise StoreDown(f"{words}: {fault.diag.message_primary}") from fault
        except psycopg.errors.InsufficientPrivilege as fault:
            words = "the database does not let us (zen db roles gives our roles their rights)"
            raise StoreDown(f"{words}: {fault.diag.message_primary}") from fault
        if _is_cancelled():
            # The driver waits with asyncio.wait_for, which drops a cancellation that comes at the
            # same moment as the answer (until Python 3.12). A leader that thaws meets just that.
            raise asyncio.CancelledError

    @asynccontextmanager
    async def _from_pool(self) -> AsyncIterator[Connection]:
        """A pool that is only busy is worth waiting for; one that cannot connect is not."""
        try:
            wait_s = AWAY_WAIT_S if self.server.refused else POOL_WAIT_S
            async with self._pool.connection(timeout=wait_s) as connection:
                self.server.refused, self._refused = False, self._refusals()
                await self._check_role(connection)
                yield connection
        except PoolTimeout:
            self.server.refused = self._refusals() > self._refused
            raise

    def _refusals(self) -> int:
        return self._pool.get_stats().get("connections_errors", 0)

    async def lead(self, holder: str, lease_s: float, gone_term: int | None = None) -> LeaderStatus:
        found = await self._lease.lead(holder, lease_s, gone_term)
        if found.leading and found.term != self._term:
            self._term = found.term
            self._viewer.forget()
        return found

    async def resign(self, holder: str, term: int) -> None:
        await self._lease.resign(holder, term)

    async def session_lost(self) -> None:
        await self._lease.session.lost.wait()

    async def snapshot(self, queue_limit: int, ask: Ask | None = None) -> Snapshot:
        if not queue_limit:
            return await self._looks.share(self._look)
        async with self._looks.alone():
            return await self._look(queue_limit, ask)

    async def _look(self, queue_limit: int = 0, ask: Ask | None = None) -> Snapshot:
        async with self.connection() as connection:
            return await self._viewer.snapshot(connection, queue_limit, ask)

    async def heads(self, wanted: Sequence[HeadsOf], limit: int) -> Sequence[Job]:
        async with self.connection() as connection:
            return await self._queue.heads(connection, wanted, limit)

    async def runs(self, since: datetime, limit: int) -> Sequence[PastRun]:
        async with self.connection() as connection:
            return await runs(connection, self.specs, since, limit)

    async def forecasts(self) -> Sequence[Forecast]:
        async with self.connection() as connection:
            return await forecasts(connection)

    async def driven(self) -> Sequence[tuple[str, str]]:
        async with self.connection() as connection:
            found = await connection.execute(
                "SELECT cluster, region FROM region_status ORDER BY 1, 2"
            )
            return [(cluster, region) for cluster, region in await found.fetchall()]

    async def tenants(self) -> Sequence[TenantRow]:
        async with self.connection() as connection:
            return await all_tenants(connection)

    async def holdings(self, tenant_id: str | None = None) -> Mapping[str, Holding]:
        async with self.connection() as connection:
            return await holdings(connection, tenant_id)

    async def commit(self, batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        """All in one transaction, except when an atomic batch holds what cannot be stored at all
        (which is a fault of ours): then each goes alone, so that the others are not held up by
        it."""
        if not batches:
            return Committed(())
        try:
            return await self._commit(batches, term)
        except (psycopg.IntegrityError, psycopg.DataError) as fault:
            if len(batches) == 1:
                log.error("batch_unstorable", batch=repr(batches[0])[:2000], fault=str(fault))
                return Committed.unstorable(fault)
        return Committed.joined([await self.commit([batch], term) for batch in batches])

    async def _commit(self, batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        looks = term is not None or not all_begin(batches)
        for _ in range(_RACES_MAX):
            try:
                async with self.connection() as connection, connection.transaction():
                    done = await self._write(connection, batches, term, looks=looks)
            except Raced:
                looks = True
                continue
            self._viewer.wrote(done.writes.heartbeats.values(), done.writes.reasons.values())
            self._viewer.refused(done.proven)
            return done.committed
        raise StoreDown(_RACED)

    async def commit_long(self, parts: BatchParts) -> CommitRefusal | None:
        """One transaction: what a part does not find, an earlier one of its own may have written,
        and the guards see it. First as if nothing could refuse it, which needs no questions."""
        try:
            async with self.connection(LONG_S) as connection, connection.transaction():
                await write_long(connection, iter(parts()))
            return None
        except (NotPlain, psycopg.IntegrityError, psycopg.DataError):
            pass  # the guards say what is wrong with it
        for _ in range(_RACES_MAX):
            refusal: CommitRefusal | None = None
            try:
                async with self.connection(LONG_S) as connection, connection.transaction():
                    for part in parts():
                        done = await self._write(connection, [part], None)
                        refusal = done.committed.refusals.get(0)
                        if refusal is not None:
                            raise psycopg.Rollback
                return refusal
            except Raced:
                continue
            except (psycopg.IntegrityError, psycopg.DataError) as fault:
                log.error("long_batch_unstorable", fault=str(fault))
                return Committed.unstorable(fault).refusals[0]
        raise StoreDown(_RACED)

    async def _write(
        self,
        connection: Connection,
        batches: Sequence[AtomicBatch],
        term: int | None,
        *,
        looks: bool = True,
    ) -> _Done:
        """Raced also if it did not look and one of the jobs exists."""
        if looks:
            locked = await lock(connection, wanted(batches), term)
        else:
            locked = Locked(KnownRows(), {}, set())
        refusals = judge(batches, locked.known)
        writes = fold([batch for index, batch in enumerate(batches) if index not in refusals])
        if len(refusals) < len(batches):
            await write(connection, writes, locked)
        moves = (c for i in refusals for c in batches[i] if isinstance(c, Moves))
        uids = {move.before.uid for move in moves}
        stored = {**locked.known.job_versions, **locked.known.vm_versions} if uids else {}
        proven = {uid: stored[uid] for uid in uids if uid in stored}
        return _Done(Committed.of(len(batches), refusals), writes, proven)

    async def find_job(
        self, job_id: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> Job:
        query = f"SELECT {JOB_SELECT} FROM jobs AS j WHERE {ONE_JOB}"
        async with self.connection() as connection:
            values = one_job(job_id, user_id, tenants)
            cursor = await connection.execute(query, values, binary=True)
            jobs = await self.specs.jobs(connection, await cursor.fetchall())
        only_one("job", job_id, user_id, [owner_of(job.spec) for job in jobs])
        return jobs[0]

    async def find_group(
        self, group: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> GroupKey:
        async with self.connection() as connection:
            return await find_group(connection, group, user_id, tenants)

    async def open_jobs(self, group: GroupKey, limit: int) -> Sequence[Job]:
        async with self.connection() as connection:
            rows = await open_jobs(connection, group, limit)
            return await self.specs.jobs(connection, rows)

    async def members(self, gang: str) -> Sequence[Job]:
        async with self.connection() as connection:
            return await self.specs.jobs(connection, await members(connection, gang))

    async def queued(self, cluster: str, tier: int, tenant_id: str, most: int) -> int:
        async with self.connection() as connection:
            found = await connection.execute(_QUEUED, (cluster, tier, tenant_id, most))
            row = await found.fetchone()
        return 0 if row is None else int(row[0])

    async def content_hash(self, key: JobKey) -> tuple[str, str] | None:
        query = (
            "SELECT uid::text, content_hash FROM jobs "
            "WHERE tenant_id = %s AND user_id = %s AND job_id = %s"
        )
        async with self.connection() as connection:
            row = await (await connection.execute(query, key)).fetchone()
        return None if row is None else (row[0], row[1])

    async def outbox(
        self,
        limit: int,
        topics: Collection[str] = (),
        *,
        besides: bool = True,
        without: Collection[int] = (),
    ) -> Sequence[OutboxRow]:
        asked = (list(topics), besides, list(without), limit)
        async with self.connection() as connection:
            rows = await (await connection.execute(_OUTBOX, asked, binary=True)).fetchall()
        return [OutboxRow(r[0], OutMessage(r[1], r[2], mapping_of(r[3]), r[4])) for r in rows]

    async def published(self, outbox_ids: Sequence[int]) -> None:
        if not outbox_ids:
            return
        async with self.connection() as connection:
            await connection.execute(_PUBLISHED, (list(outbox_ids),))

    async def settle_costs(self, batch: int) -> SettledBills:
        async with self.connection() as connection:
            return await settle_costs(connection, batch)

    async def spent(self) -> Mapping[str, Spent]:
        async with self.connection() as connection:
            return await spent(connection)

    async def prune(self, rules: RetentionRules, batch: int) -> Mapping[str, int]:
        async with self.connection() as connection:
            return await prune(connection, rules, batch)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
