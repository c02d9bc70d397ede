"""The scheduling cycle's snapshot, read in one transaction."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

import structlog
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow

from core.active import ActiveIndex, ActiveRows
from core.changes import PendingReason, Snapshot, VmHeartbeat
from core.job import LEASED, WAITING, Job, JobStatus
from core.queueing import Ask, HeadsOf, Live
from core.supply import ARRIVALS_HORIZON_S, ARRIVALS_MAX, arrivals_by_cluster
from core.tenants import Tenant, Usage
from db.dependencies import READY_JOBS, VERDICTS, verdicts_of
from db.queue_heads import KINDS, queue_heads
from db.rows import (
    JOB_SELECT,
    JOB_WIDTH,
    REGION_BLOCK_SELECT,
    REQUEST_SELECT,
    SUPPLY_HISTORY_SELECT,
    VM_SELECT,
    block_of,
    job_of,
    request_of,
    supply_of,
    vm_of,
)
from db.shared_specs import SharedSpecs
from db.tenants import TENANT_SELECT, tenant_of, usage_of
from db.vm_states import COUNTED, GONE

Connection = AsyncConnection[TupleRow]
Cursor = AsyncCursor[TupleRow]
log = structlog.get_logger(__name__)
HEADS_KEPT = 10_000
"""Heads that are kept from snapshot to snapshot, and as many older ones."""
SETTLE_MIN = 5_000
"""Fewer rows than this are no burden to the garbage collector."""
READ_AT_ONCE = 2_000
"""Of a whole snapshot: all rows at once would take as much memory again as what is made of them,
and the process would keep it."""
# The same words as in the partial indexes, or they would not be used.
_LIVE = ", ".join(f"'{s}'" for s in sorted([*LEASED, JobStatus.PROVISIONING]))
# A VM that is gone stays in the snapshot until the jobs that it held have been told.
_SEEN = f"(v.{COUNTED} OR (v.{GONE} AND v.leases <> '[]'::jsonb))"
# `moved` is the transaction that changed the row last. Whatever the last snapshot did not see was
# written by a transaction not older than the oldest one that was under way then: rows from that one
# on are all that can have changed, though a few of them were seen already.
_CLOCK = """
SELECT now(), pg_postmaster_start_time(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint
"""
_JOBS = f"SELECT {JOB_SELECT}, j.why FROM jobs AS j WHERE"
JOBS = f"{_JOBS} j.status IN ({_LIVE})"
# The index of active rows, which is the longer one here, must not be thought of.
JOBS_MOVED = f"{_JOBS} j.moved >= %s AND coalesce(j.status, '') IN ({_LIVE})"
JOBS_LEFT = f"SELECT uid::text FROM jobs WHERE moved >= %s AND status NOT IN ({_LIVE})"
_VMS = f"SELECT {VM_SELECT} FROM vms AS v WHERE {_SEEN}"
_VMS_LEFT = f"SELECT v.uid::text FROM vms AS v WHERE v.moved >= %s AND NOT {_SEEN}"
_TENANTS = f"SELECT {TENANT_SELECT} FROM tenants"
# Those whose time is over, wherever they stand.
LATE = """
SELECT uid::text, version, why FROM jobs
WHERE status = 'QUEUED' AND deadline_at <= now() ORDER BY deadline_at LIMIT %(limit)s
"""
# Active members are known; gangs of which all are active are not asked for.
_FELLOWS = f"""
SELECT uid::text, version, why FROM jobs
WHERE gang = ANY(%s::uuid[]) AND status NOT IN ({_LIVE}) ORDER BY gang, rank
"""
_NAMED = f"SELECT {JOB_SELECT} FROM jobs AS j WHERE j.uid = ANY(%s::uuid[])"
_REGION_BLOCKS = f"SELECT {REGION_BLOCK_SELECT} FROM troubles ORDER BY 1, 2, 3, 4, 5"
_SUPPLY_HISTORY = f"SELECT {SUPPLY_HISTORY_SELECT} FROM experience ORDER BY 1, 2, 3, 4"
# The newest of all clusters, by an index, which has the first member of each gang: the same cost
# for a queue of any length.
_ARRIVALS = """
SELECT cluster, submitted_at, gang_size FROM jobs
WHERE rank = 0 AND submitted_at > now() - make_interval(secs => %(horizon)s)
ORDER BY submitted_at DESC, uid DESC LIMIT %(limit)s
"""
_REQUESTS = f"""
SELECT {REQUEST_SELECT} FROM cloud_requests WHERE settled_at IS NULL
ORDER BY created_at, request_id
"""
_ALERTS = "SELECT kind, subject, raised_at FROM alerts WHERE cleared_at IS NULL"


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a snapshot has seen."""

    server: datetime
    """When the server was started: after a fail-over its numbers may be others."""
    oldest: int
    """All transactions below this one are over, and seen."""


@dataclass(frozen=True, slots=True)
class _Moved:
    """Answers about what has moved of what lives."""

    jobs: Cursor
    vms: Cursor
    tenants: Cursor
    jobs_left: Cursor
    vms_left: Cursor


@dataclass(frozen=True, slots=True)
class _Rest:
    """Answers that are small."""

    blocks: Cursor
    requests: Cursor
    supply: Cursor
    arrivals: Cursor
    alerts: Cursor


@dataclass(frozen=True, slots=True)
class _Queued:
    """Answers about waiting jobs."""

    kinds: Cursor
    late: Cursor
    freed: Cursor
    verdicts: Cursor


class SnapshotReader:
    """Takes snapshots, one at a time. What lives is kept from one to the next, and only what has
    moved since is read: a cycle costs that, not what is there."""

    def __init__(self, specs: SharedSpecs) -> None:
        self._specs = specs
        self._active = ActiveIndex()
        self._heads: dict[str, Job] = {}
        self._older_heads: Mapping[str, Job] = {}
        """What was seen before `_heads` had as many as are kept: queues are looked at in turns."""
        self._tenants: dict[str, Tenant] = {}
        self._usage: dict[str, Usage] = {}
        self._mark: Mark | None = None
        self._forgotten = False
        self._proven: dict[str, int] = {}
        self._taken = 0

    # --- what others know ----------------------------------------------------------------

    def forget(self) -> None:
        """What is kept may be old: the next snapshot is read as a whole. The one that is being
        taken may be, too."""
        self._mark, self._forgotten = None, True

    def wrote(self, heartbeats: Iterable[VmHeartbeat], reasons: Iterable[PendingReason]) -> None:
        """A commit of ours that grows no version. Only the leader writes such things, and a replica
        that begins to lead reads the whole snapshot first."""
        for heartbeat in heartbeats:
            self._active.hear(heartbeat.vm_uid, heartbeat.at, heartbeat.seq)
        for word in reasons:
            self._active.say(word.uid, word.why)

    def refused(self, versions: Mapping[str, int]) -> None:
        """The rows of a step that was refused are at these versions: the next snapshot must have
        come as far, or what is kept is wrong."""
        self._proven.update(versions)

    # --- the snapshot ---------------------------------------------------------------------

    async def snapshot(
        self, connection: Connection, queue_limit: int, ask: Ask | None = None
    ) -> Snapshot:
        """One consistent snapshot, with the database's time."""
        # Until all of it has been read, nothing is certain.
        mark, self._mark = self._mark, None
        knew_nothing = not self._active.jobs and not self._active.vms
        # What was proven by now, the snapshot must show; what will be meanwhile, the next one.
        proven, self._proven, self._forgotten = self._proven, {}, False
        # One snapshot for all questions; nothing is locked, so the loop never waits for a writer.
        async with connection.pipeline(), connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            clock = await connection.execute(_CLOCK, binary=True)
            moved = await _ask_moved(connection, mark) if mark is not None else None
            queued = await _ask_queued(connection, queue_limit) if queue_limit else None
            rest = await _ask_rest(connection)
            moment = await clock.fetchone()
            assert moment is not None
            now, seen = moment[0], Mark(moment[1], moment[2])
            await self._catch_up(connection, mark, seen, moved, proven)
            heads, reasons, verdicts = await self._look_at_queues(
                connection, now, queued, queue_limit, ask
            )
            active = self._active
            snapshot = Snapshot(
                now=now,
                jobs=ActiveRows(active.jobs, heads),
                vms=ActiveRows(active.vms),
                blocks=tuple(block_of(row) for row in await rest.blocks.fetchall()),
                requests=tuple(request_of(row) for row in await rest.requests.fetchall()),
                reasons={**active.reasons, **reasons},
                open_alerts={(kind, what): at for kind, what, at in await rest.alerts.fetchall()},
                supply=tuple(supply_of(row) for row in await rest.supply.fetchall()),
                arrivals=arrivals_by_cluster(_each_member(await rest.arrivals.fetchall()), now),
                tenants=self._tenants,
                usage=self._usage,
                verdicts=verdicts,
                active=active,
                heads=heads,
            )
        self._mark = None if self._forgotten else seen
        if self._taken >= max(SETTLE_MIN, len(active.jobs) + len(active.vms)):
            self._settle_down(all_new=knew_nothing)
        return snapshot

    async def _catch_up(
        self,
        connection: Connection,
        mark: Mark | None,
        seen: Mark,
        moved: _Moved | None,
        proven: Mapping[str, int],
    ) -> None:
        """What lives is as the snapshot has it."""
        if moved is not None and mark is not None:
            await self._take_in(connection, moved)
            same = mark.server == seen.server and mark.oldest <= seen.oldest
            if same and self._has_come_to(proven):
                return
            log.warning("what was kept is not what is stored, reading all of it", same_server=same)
        with _no_collections():
            await self._take_all(connection)

    def _settle_down(self, *, all_new: bool) -> None:
        """As many rows have come as there are, and will stay for long. The garbage collector, which
        would stop the loop for a fifth of a second every few seconds to look at ten thousand of
        them, does so once more and leaves them alone then. They go when nobody has them any more,
        as everything does that is in no circle. `all_new`: nothing was known
        before, so none of them can be garbage yet."""
        self._taken = 0
        if not all_new:
            gc.unfreeze()
            gc.collect()
        gc.freeze()

    def _has_come_to(self, proven: Mapping[str, int]) -> bool:
        active = self._active
        known = ((active.jobs.get(uid) or active.vms.get(uid), v) for uid, v in proven.items())
        return all(row is None or row.version >= version for row, version in known)

    async def _take_in(self, connection: Connection, moved: _Moved) -> None:
        """What has moved since the last snapshot."""
        self._put_vms(await moved.vms.fetchall())
        await self._put_jobs(connection, await moved.jobs.fetchall())
        for (uid,) in await moved.vms_left.fetchall():
            self._active.drop_vm(uid)
        for (uid,) in await moved.jobs_left.fetchall():
            self._active.drop_job(uid)
        self._put_tenants(await moved.tenants.fetchall())

    async def _take_all(self, connection: Connection) -> None:
        """Everything; what is not there any more has left."""
        active = self._active
        vms, jobs = set[str](), set[str]()
        async for rows in _in_parts(connection, "all_vms", _VMS):
            self._put_vms(rows)
            vms.update(row[0] for row in rows)
        async for rows in _in_parts(connection, "all_jobs", JOBS):
            await self._put_jobs(connection, rows)
            jobs.update(row[0] for row in rows)
        for uid in [uid for uid in active.vms if uid not in vms]:
            active.drop_vm(uid)
        for uid in [uid for uid in active.jobs if uid not in jobs]:
            active.drop_job(uid)
        tenants = await connection.execute(_TENANTS)
        self._put_tenants(await tenants.fetchall())

    def _put_vms(self, rows: Iterable[TupleRow]) -> None:
        active = self._active
        for row in rows:
            known = active.vms.get(row[0])
            vm = vm_of(row)
            if known is None or known.version != vm.version:
                active.put_vm(vm)
                self._taken += 1
            elif vm.last_beat_at is not None:
                active.hear(vm.uid, vm.last_beat_at, vm.heard_seq)

    async def _put_jobs(self, connection: Connection, rows: Sequence[TupleRow]) -> None:
        active = self._active
        specs = await self._specs.of_rows(connection, rows)
        for row in rows:
            job = active.jobs.get(row[0])
            if job is None or job.version != row[4]:
                active.put_job(job_of(row, specs), row[JOB_WIDTH])
                self._taken += 1
            else:
                active.say(row[0], row[JOB_WIDTH])

    def _put_tenants(self, rows: Sequence[TupleRow]) -> None:
        if rows:
            # In new ones: a reader of the last snapshot is not surprised.
            self._tenants = self._tenants | {row[0]: tenant_of(row) for row in rows}
            self._usage = self._usage | {row[0]: usage_of(*row[7:9]) for row in rows}

    async def _look_at_queues(
        self,
        connection: Connection,
        now: datetime,
        queued: _Queued | None,
        limit: int,
        ask: Ask | None,
    ) -> tuple[Sequence[Job], dict[str, str], Mapping[str, str | None]]:
        """The heads, why they wait, and what those wait for whose waiting is over."""
        if queued is None:  # the heads of the loop's last snapshot stay: it will ask for them again
            return (), {}, {}
        active = self._active
        known = await queued.kinds.fetchall()
        queues = sorted({row[0] for row in known})
        world = Live(
            now, ActiveRows(active.jobs), self._tenants, self._usage, queues, active.census
        )
        wanted = ask(world) if ask is not None else [HeadsOf(name, limit) for name in queues]
        first = await queue_heads(connection, wanted, known, limit)
        rows = chain(first, await queued.late.fetchall(), await queued.freed.fetchall())
        # A job whose time is over may be a head as well.
        heads = {row[0]: row for row in rows if row[0] not in active.jobs}
        found = await self._fetch(connection, heads.values())
        fellows = await self._fellows(connection, found)
        found |= await self._fetch(connection, fellows)
        self._keep_heads(found)
        reasons = {row[0]: row[2] for row in chain(heads.values(), fellows)}
        waiting = {uid: reasons[uid] for uid, job in found.items() if job.status in WAITING}
        verdicts = verdicts_of(await queued.verdicts.fetchall())
        return tuple(found.values()), waiting, verdicts

    async def _fellows(self, connection: Connection, heads: Mapping[str, Job]) -> list[TupleRow]:
        """Gangs are looked at whole, wherever their members stand: also ended ones."""
        wanted = dict(self._active.partial)
        wanted |= {job.gang.uid: None for job in heads.values() if job.gang is not None}
        if not wanted:
            return []
        cursor = await connection.execute(_FELLOWS, (sorted(wanted),), binary=True)
        return [row for row in await cursor.fetchall() if row[0] not in heads]

    def _keep_heads(self, found: Mapping[str, Job]) -> None:
        if len(self._heads) + len(found) > HEADS_KEPT:
            self._heads, self._older_heads = {}, self._heads
        self._heads.update(found)

    async def _fetch(self, connection: Connection, heads: Iterable[TupleRow]) -> dict[str, Job]:
        """In the order of the heads. A row at a version never changes, so those of the last
        snapshots are not fetched again."""
        seen, older = self._heads, self._older_heads
        found: dict[str, Job | None] = {
            (uid := head[0]): job
            if (job := seen.get(uid) or older.get(uid)) and job.version == head[1]
            else None
            for head in heads
        }
        missing = [uid for uid, job in found.items() if job is None]
        if missing:
            cursor = await connection.execute(_NAMED, (missing,), binary=True)
            jobs = await self._specs.jobs(connection, await cursor.fetchall())
            found.update((job.uid, job) for job in jobs)
        return {uid: job for uid, job in found.items() if job is not None}


@contextmanager
def _no_collections() -> Iterator[None]:
    """While all rows are read, the garbage collector would look at all that were read so far, again
    and again, and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def _in_parts(
    connection: Connection, name: str, query: str
) -> AsyncIterator[Sequence[TupleRow]]:
    """The answer a few rows at a time. Its cursor closes with the transaction."""
    # Prepared, each would be thought to have the columns of an earlier one.
    await connection.execute(f"DECLARE {name} NO SCROLL CURSOR FOR {query}", prepare=False)
    fetch = f"FETCH {READ_AT_ONCE} FROM {name}"
    while True:
        cursor = await connection.execute(fetch, prepare=False, binary=True)
        rows = await cursor.fetchall()
        if not rows:
            return
        yield rows


def _each_member(newest: Iterable[TupleRow]) -> list[tuple[str, datetime]]:
    """All members of a gang came with its first."""
    each = [(cluster, at) for cluster, at, size in newest for _ in range(size)]
    return each[:ARRIVALS_MAX]


async def _ask_moved(connection: Connection, mark: Mark) -> _Moved:
    since = (mark.oldest,)
    return _Moved(
        jobs=await connection.execute(JOBS_MOVED, since, binary=True),
        jobs_left=await connection.execute(JOBS_LEFT, since, binary=True),
        vms=await connection.execute(f"{_VMS} AND v.moved >= %s", since, binary=True),
        vms_left=await connection.execute(_VMS_LEFT, since, binary=True),
        tenants=await connection.execute(f"{_TENANTS} WHERE moved >= %s", since),
    )


async def _ask_queued(connection: Connection, limit: int) -> _Queued:
    most = {"limit": limit}
    return _Queued(
        kinds=await connection.execute(KINDS, binary=True),
        late=await connection.execute(LATE, most, binary=True),
        freed=await connection.execute(READY_JOBS, most, binary=True),
        verdicts=await connection.execute(VERDICTS, most, binary=True),
    )


async def _ask_rest(connection: Connection) -> _Rest:
    return _Rest(
        blocks=await connection.execute(_REGION_BLOCKS, binary=True),
        requests=await connection.execute(_REQUESTS, binary=True),
        supply=await connection.execute(_SUPPLY_HISTORY, binary=True),
        arrivals=await connection.execute(
            _ARRIVALS, {"horizon": ARRIVALS_HORIZON_S, "limit": ARRIVALS_MAX}, binary=True
        ),
        alerts=await connection.execute(_ALERTS),
    )
