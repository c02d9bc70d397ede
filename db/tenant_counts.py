"""The jobs of some tenants, counted."""

# ruff: noqa: S608  # only our own texts are put into these
from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.access import Tenants
from core.job import WAITING, JobStatus
from core.reads import TenantCounts

_OWN = "(%(tenants)s::text[] IS NULL OR tenant_id = ANY(%(tenants)s::text[]))"
# One pass over the tenants' rows. Spare members of elastic jobs are left out.
_COUNTS = f"""
SELECT cluster, status, coalesce(lease_region, ''), count(*), min(queued_since) FROM jobs
WHERE {_OWN} AND NOT (blocked IS NOT NULL AND blocked = uid AND rank > 0)
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
_ON = f"""
SELECT vm_uid::text, count(*) FROM jobs WHERE vm_uid = ANY(%(vms)s::uuid[]) AND {_OWN} GROUP BY 1
"""
_COMPUTING = frozenset({JobStatus.RUNNING, JobStatus.PREEMPTING})


async def tenant_counts(connection: AsyncConnection[TupleRow], tenants: Tenants) -> TenantCounts:
    rows = await (await connection.execute(_COUNTS, {"tenants": tenants.only})).fetchall()
    jobs: dict[tuple[str, JobStatus], int] = {}
    running: dict[tuple[str, str], int] = {}
    since = []
    for cluster, word, region, count, queued_since in rows:
        status = JobStatus(word)
        jobs[cluster, status] = jobs.get((cluster, status), 0) + count
        if status in _COMPUTING and region:
            running[cluster, region] = running.get((cluster, region), 0) + count
        if status in WAITING:
            since.append(queued_since)
    return TenantCounts(jobs, running, min(since, default=None))


async def counts_on(
    connection: AsyncConnection[TupleRow], vms: Sequence[str], tenants: Tenants
) -> Mapping[str, int]:
    asked = {"vms": list(vms), "tenants": tenants.only}
    return dict(await (await connection.execute(_ON, asked)).fetchall())
