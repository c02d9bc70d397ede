"""What forecasts are made of, and where they are kept."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.forecast import Forecast, PastRun
from core.job import Job
from core.job_fields import JobSpec
from core.queueing import HeadsOf
from core.slots import slots_of
from db.queue_heads import KINDS, queue_heads
from db.rows import JOB_SELECT
from db.shared_specs import SharedSpecs

Connection = AsyncConnection[TupleRow]
_document = msgspec.json.Decoder(Forecast)
_words = msgspec.json.Decoder(tuple[str, ...])
BITE = 500
_JOBS = f"SELECT {JOB_SELECT} FROM jobs AS j WHERE j.uid = ANY(%s::uuid[])"
_FORECASTS = "SELECT document::text FROM forecasts ORDER BY cluster"
# A fixed number of the newest ends by index, whatever they were, so that a million cancelled ones
# cost no more than a few; of these the ones that ran (the rule is core.forecast.run_of's).
_RUNS = """
SELECT uid::text, tenant_id, name, coalesce(spec ->> 'workflow', ''),
    coalesce(spec -> 'command', '[]')::text, cluster,
    greatest(coalesce((spec ->> 'gpu_count')::int, 1), 1), coalesce((spec ->> 'replicas')::int, 1),
    attained_gpu_s, ended_at, spec_id::text
FROM (
    SELECT * FROM jobs WHERE ended_at IS NOT NULL AND NOT history_pruned AND ended_at > %s
    ORDER BY ended_at DESC, uid DESC LIMIT %s
) AS newest
WHERE rank = 0 AND attained_gpu_s > 0
    AND (stop_reason = 'max_runtime' OR stop_reason IS NULL
        AND (status = 'SUCCEEDED' OR status = 'FAILED' AND exit_code IS NOT NULL))
ORDER BY ended_at DESC, newest.uid DESC
"""


class QueueReader:
    """The first jobs of queues. A row at a version never changes, so those of the last answer are
    not fetched again."""

    def __init__(self, specs: SharedSpecs) -> None:
        self._specs = specs
        self._seen: Mapping[str, Job] = {}

    async def heads(
        self, connection: Connection, wanted: Sequence[HeadsOf], limit: int
    ) -> Sequence[Job]:
        async with connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            known = await (await connection.execute(KINDS, binary=True)).fetchall()
            rows = await queue_heads(connection, wanted, known, limit)
            versions = {row[0]: row[1] for row in rows}
            seen = self._seen
            fresh = {u: j for u, v in versions.items() if (j := seen.get(u)) and j.version == v}
            missing = [uid for uid in versions if uid not in fresh]
            # In parts: other tasks of this process need not wait for all of them.
            for begin in range(0, len(missing), BITE):
                bite = missing[begin : begin + BITE]
                cursor = await connection.execute(_JOBS, (bite,), binary=True)
                jobs = await self._specs.jobs(connection, await cursor.fetchall())
                fresh.update((job.uid, job) for job in jobs)
        self._seen = fresh
        return [fresh[uid] for uid in versions if uid in fresh]


async def runs(
    connection: Connection, specs: SharedSpecs, since: datetime, limit: int
) -> list[PastRun]:
    rows = await (await connection.execute(_RUNS, (since, limit), binary=True)).fetchall()
    shared = await specs.of(connection, (row[-1] for row in rows if row[-1] is not None))
    return [_run(row, shared.get(row[-1])) for row in rows]


def _run(row: TupleRow, shared: JobSpec | None) -> PastRun:
    uid, tenant_id, name, workflow, command, cluster, gpus, replicas, gpu_s, ended_at = row[:-1]
    words, ran_s = _words.decode(command), gpu_s / slots_of(gpus)
    if shared is not None:
        workflow, words, replicas = shared.workflow, shared.command, shared.replicas
    return PastRun(uid, tenant_id, name, workflow, words, cluster, gpus * replicas, ran_s, ended_at)


async def forecasts(connection: Connection) -> list[Forecast]:
    rows = await (await connection.execute(_FORECASTS)).fetchall()
    return [_document.decode(row[0]) for row in rows]
