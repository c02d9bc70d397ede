"""The places of waiting jobs in their queues, counted when somebody asks and no further than
anybody would count: higher classes, and those of its own tenant that are due before it. The order
between the tenants of a class is decided anew in every cycle of the loop, so others are not
counted."""
# ruff: noqa: S608  # only our own conditions are put into these texts

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from db.queue_heads import BY_DUE, due_before

POSITION_MAX = 10_000
_QUEUED = "a.status = 'QUEUED' AND a.blocked IS NULL AND a.cluster = k.cluster"
# Each queue is read once, from its head, for all jobs of the page that wait in it.
POSITIONS = f"""
WITH asked AS MATERIALIZED (
    SELECT uid, status, cluster, tier, tenant_id, due_at FROM jobs
    WHERE uid = ANY(%(uids)s::uuid[]) AND status IN ('QUEUED', 'PROVISIONING')
        AND blocked IS NULL
), higher AS MATERIALIZED (
    SELECT k.cluster, k.tier, (SELECT count(*) FROM (
        SELECT 1 FROM jobs AS a WHERE {_QUEUED} AND a.tier > k.tier LIMIT {POSITION_MAX}
    ) AS x) AS jobs FROM (SELECT DISTINCT cluster, tier FROM asked) AS k
), queues AS MATERIALIZED (
    SELECT q.uid, q.place FROM (
        SELECT cluster, tier, tenant_id, max(due_at) AS last FROM asked WHERE status = 'QUEUED'
        GROUP BY 1, 2, 3
    ) AS k CROSS JOIN LATERAL (
        SELECT f.uid, row_number() OVER (ORDER BY {BY_DUE}) AS place FROM (
            SELECT a.uid, a.due_at FROM jobs AS a WHERE {_QUEUED} AND a.tier = k.tier
                AND a.tenant_id = k.tenant_id AND a.due_at <= k.last
            ORDER BY {BY_DUE} LIMIT {POSITION_MAX}
        ) AS f
    ) AS q
), admitted AS MATERIALIZED (
    SELECT uid, cluster, tier, tenant_id, due_at FROM jobs
    WHERE status = 'PROVISIONING' AND blocked IS NULL LIMIT {POSITION_MAX}
), classes AS MATERIALIZED (
    SELECT cluster, tier, count(*) AS jobs FROM admitted GROUP BY 1, 2
)
SELECT k.uid::text, least({POSITION_MAX}, h.jobs
    + CASE WHEN k.status = 'QUEUED' THEN coalesce(q.place, {POSITION_MAX}) ELSE
        (SELECT 1 + count(*) FROM (
            SELECT 1 FROM jobs AS a WHERE {_QUEUED} AND a.tier = k.tier
                AND a.tenant_id = k.tenant_id AND {due_before("a", "k")} LIMIT {POSITION_MAX}
        ) AS x) END
    + coalesce((SELECT sum(c.jobs) FROM classes AS c
        WHERE c.cluster = k.cluster AND c.tier > k.tier), 0)
    + (SELECT count(*) FROM admitted AS a WHERE a.cluster = k.cluster AND a.tier = k.tier
        AND a.tenant_id = k.tenant_id AND {due_before("a", "k")})
)::int
FROM asked AS k JOIN higher AS h USING (cluster, tier) LEFT JOIN queues AS q USING (uid)
"""


async def positions(
    connection: AsyncConnection[TupleRow], uids: Sequence[object]
) -> Mapping[str, int]:
    """Uid → place, of the jobs that wait in a queue; 1 is next."""
    cursor = await connection.execute(POSITIONS, {"uids": list(uids)}, prepare=False)
    return dict(await cursor.fetchall())
