"""The loop's picture of the world, taken in one snapshot."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Mapping

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.changes import View
from core.job import LEASED, WAITING, Job, JobStatus
from db.rows import (
    JOB_SELECT,
    REQUEST_SELECT,
    TROUBLE_SELECT,
    VM_SELECT,
    job_of,
    request_of,
    trouble_of,
    vm_of,
)

# The same words as in the partial indexes, or they would not be used.
_LIVE_STATUSES = ", ".join(f"'{s}'" for s in sorted([*LEASED, JobStatus.PROVISIONING]))
LIVE = f"""
SELECT uid::text, version, why FROM jobs WHERE status IN ({_LIVE_STATUSES}) ORDER BY jobs.uid
"""
# Jumps from cluster to cluster in the index instead of reading the whole queue, takes the head of
# each, and adds those whose time is over wherever they stand.
QUEUE = """
WITH RECURSIVE clusters AS (
    (SELECT cluster FROM jobs WHERE status = 'QUEUED' ORDER BY cluster LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.cluster FROM jobs AS j WHERE j.status = 'QUEUED' AND j.cluster > c.cluster
        ORDER BY j.cluster LIMIT 1
    ) FROM clusters AS c WHERE c.cluster IS NOT NULL
)
SELECT head.uid::text, head.version, head.why
FROM clusters AS c CROSS JOIN LATERAL (
    SELECT uid, version, why FROM jobs
    WHERE status = 'QUEUED' AND cluster = c.cluster
    ORDER BY priority DESC, queued_since, uid LIMIT %(limit)s
) AS head WHERE c.cluster IS NOT NULL
UNION
SELECT late.uid::text, late.version, late.why FROM (
    SELECT uid, version, why FROM jobs
    WHERE status = 'QUEUED' AND deadline_at <= now() ORDER BY deadline_at LIMIT %(limit)s
) AS late
"""
_JOBS = f"SELECT {JOB_SELECT} FROM jobs AS j WHERE j.uid = ANY(%s::uuid[])"
# A VM that is gone stays in the picture until the jobs that it held have been told.
_VMS = f"""
SELECT {VM_SELECT} FROM vms AS v
WHERE v.state <> 'GONE' OR (v.state = 'GONE' AND v.leases <> '[]'::jsonb) ORDER BY v.uid
"""
_TROUBLES = f"SELECT {TROUBLE_SELECT} FROM troubles ORDER BY 1, 2, 3, 4, 5"
_REQUESTS = f"""
SELECT {REQUEST_SELECT} FROM cloud_requests WHERE settled_at IS NULL
ORDER BY created_at, request_id
"""
_ALERTS = "SELECT kind, subject FROM alerts WHERE cleared_at IS NULL"


class Viewer:
    """Takes pictures. A job at a version never changes, so those of the last picture are not
    fetched again: a turn costs what has moved, not what is there."""

    def __init__(self) -> None:
        self._seen: Mapping[str, Job] = {}

    async def view(self, connection: AsyncConnection[TupleRow], queue_limit: int) -> View:
        """One consistent picture, with the database's time."""
        # One snapshot for all questions; nothing is locked, so the loop never waits for a writer.
        async with connection.pipeline(), connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            now = await connection.execute("SELECT now()", binary=True)
            live = await connection.execute(LIVE, binary=True)
            queue = await connection.execute(QUEUE, {"limit": queue_limit}, binary=True)
            vms = await connection.execute(_VMS, binary=True)
            troubles = await connection.execute(_TROUBLES, binary=True)
            requests = await connection.execute(_REQUESTS, binary=True)
            alerts = await connection.execute(_ALERTS)
            heads = [*await live.fetchall(), *await queue.fetchall()]
            jobs = await self._jobs(connection, heads, whole=queue_limit > 0)
            moment = await now.fetchone()
            assert moment is not None
            return View(
                now=moment[0],
                jobs=jobs,
                vms=tuple(vm_of(row) for row in await vms.fetchall()),
                troubles=tuple(trouble_of(row) for row in await troubles.fetchall()),
                requests=tuple(request_of(row) for row in await requests.fetchall()),
                whys={
                    job.uid: head[2]
                    for job, head in zip(jobs, heads, strict=True)
                    if job.status in WAITING
                },
                open_alerts=frozenset(await alerts.fetchall()),
            )

    async def _jobs(
        self, connection: AsyncConnection[TupleRow], heads: list[TupleRow], *, whole: bool
    ) -> tuple[Job, ...]:
        seen = self._seen
        found = {
            uid: job
            for uid, version, _ in heads
            if (job := seen.get(uid)) is not None and job.version == version
        }
        missing = [uid for uid, _, _ in heads if uid not in found]
        if missing:
            cursor = await connection.execute(_JOBS, (missing,), binary=True)
            found |= {row[0]: job_of(row) for row in await cursor.fetchall()}
        # A reader without a queue must not make the loop fetch its whole queue again.
        self._seen = found if whole else {**self._seen, **found}
        return tuple(found[uid] for uid, _, _ in heads)
