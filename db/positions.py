"""The places of waiting jobs in their queues, counted when somebody asks and no further than
anybody would count: higher classes, and those of its own tenant that are due before it. The order
between the tenants of a class is decided anew in every cycle of the loop, so others are not
counted."""
# ruff: noqa: S608  # only our own conditions are put into these texts

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from db.queue_heads import BY_DUE, due_before

POSITION_MAX = 10_000
_QUEUED = "a.status = 'QUEUED' AND a.blocked IS NULL AND a.cluster = k.cluster"
_QUEUE = "cluster, tier, tenant_id"
# Each queue is read once, from its head to the last job of the page that waits in it: of each job
# what stands between it and the one before, then the sums of these.
POSITIONS = f"""
WITH asked AS MATERIALIZED (
    SELECT uid, {_QUEUE}, due_at, coalesce(lag(due_at) OVER queue, '-infinity') AS since_due,
        coalesce(lag(uid) OVER queue, '{UUID(int=0)}') AS since_uid
    FROM jobs WHERE uid = ANY(%(uids)s::uuid[]) AND status IN ('QUEUED', 'PROVISIONING')
        AND blocked IS NULL WINDOW queue AS (PARTITION BY {_QUEUE} ORDER BY {BY_DUE})
), higher AS MATERIALIZED (
    SELECT k.cluster, k.tier, (SELECT count(*) FROM (
        SELECT 1 FROM jobs AS a WHERE {_QUEUED} AND a.tier > k.tier LIMIT {POSITION_MAX}
    ) AS x) AS jobs FROM (SELECT DISTINCT cluster, tier FROM asked) AS k
), spans AS MATERIALIZED (
    SELECT k.*, (SELECT count(*) FROM (
        SELECT 1 FROM jobs AS a WHERE {_QUEUED} AND a.tier = k.tier
            AND a.tenant_id = k.tenant_id AND {due_before("a", "k")}
            AND (a.due_at, a.uid) >= (k.since_due, k.since_uid) LIMIT {POSITION_MAX}
    ) AS x) AS jobs FROM asked AS k
), places AS (
    SELECT *, sum(jobs) OVER (PARTITION BY {_QUEUE} ORDER BY {BY_DUE}) AS before FROM spans
), admitted AS MATERIALIZED (
    SELECT uid, {_QUEUE}, due_at FROM jobs
    WHERE status = 'PROVISIONING' AND blocked IS NULL LIMIT {POSITION_MAX}
), classes AS MATERIALIZED (
    SELECT cluster, tier, count(*) AS jobs FROM admitted GROUP BY 1, 2
)
SELECT k.uid::text, least({POSITION_MAX}, h.jobs + k.before + 1
    + coalesce((SELECT sum(c.jobs) FROM classes AS c
        WHERE c.cluster = k.cluster AND c.tier > k.tier), 0)
    + (SELECT count(*) FROM admitted AS a WHERE a.cluster = k.cluster AND a.tier = k.tier
        AND a.tenant_id = k.tenant_id AND {due_before("a", "k")})
)::int
FROM places AS k JOIN higher AS h USING (cluster, tier)
"""


async def positions(
    connection: AsyncConnection[TupleRow], uids: Sequence[object]
) -> Mapping[str, int]:
    """Uid → place, of the jobs that wait in a queue; 1 is next."""
    cursor = await connection.execute(POSITIONS, {"uids": list(uids)}, prepare=False)
    return dict(await cursor.fetchall())
