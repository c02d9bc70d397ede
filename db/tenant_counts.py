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
_KEYS = "coalesce(%(tenants)s::text[], ARRAY[''])"
_COUNTS = f"""
SELECT cluster, status, sum(counted)::bigint FROM job_counts WHERE tenant_id = ANY({_KEYS})
GROUP BY 1, 2 HAVING sum(counted) > 0
"""
_RUNNING = f"""
SELECT cluster, lease_region, count(*) FROM jobs
WHERE status IN ('RUNNING', 'PREEMPTING') AND {_OWN} GROUP BY 1, 2
"""
# Of one status each: so it is plain to the planner that an index of the waiting ones has them.
_WAITING = sorted(map(str, WAITING))
_WAITING_WORDS = ", ".join(f"'{status}'" for status in _WAITING)
# Spare members of elastic jobs are left out: nobody waits for them.
_FIRST = """
SELECT queued_since FROM jobs
WHERE {} AND (blocked IS DISTINCT FROM uid OR rank = 0) ORDER BY queued_since LIMIT 1
"""
_FIRSTS = [_FIRST.format(f"status = '{status}'") for status in _WAITING]
OLDEST = f"SELECT least(({'), ('.join(_FIRSTS)}))"
_OLDEST_OF = f"""
SELECT min(f.queued_since) FROM unnest(%(tenants)s::text[]) AS t(tenant_id) CROSS JOIN LATERAL (
    {_FIRST.format(f"jobs.tenant_id = t.tenant_id AND status IN ({_WAITING_WORDS})")}
) AS f
"""
_ON = f"""
SELECT vm_uid::text, count(*) FROM jobs WHERE vm_uid = ANY(%(vms)s::uuid[]) AND {_OWN} GROUP BY 1
"""


async def tenant_counts(connection: AsyncConnection[TupleRow], tenants: Tenants) -> TenantCounts:
    asked = {"tenants": tenants.only}
    oldest = OLDEST if tenants.only is None else _OLDEST_OF
    async with connection.pipeline():
        jobs = await connection.execute(_COUNTS, asked)
        running = await connection.execute(_RUNNING, asked)
        since = await connection.execute(oldest, asked)
    return TenantCounts(
        {(cluster, JobStatus(word)): n for cluster, word, n in await jobs.fetchall()},
        {(cluster, region): n for cluster, region, n in await running.fetchall()},
        (await since.fetchall())[0][0],
    )


async def counts_on(
    connection: AsyncConnection[TupleRow], vms: Sequence[str], tenants: Tenants
) -> Mapping[str, int]:
    asked = {"vms": list(vms), "tenants": tenants.only}
    return dict(await (await connection.execute(_ON, asked)).fetchall())
