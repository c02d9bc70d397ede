"""How many jobs there are, without reading them: each change of `jobs` leaves its differences in
`job_counts` (by trigger, so in the same transaction), and the sum of a key's rows is its count.

Rows are only added, so that no two writers wait for each other; `FOLD` makes one of many now and
then. Rows of the tenant '' are the sums over all tenants.
"""
# ruff: noqa: S608  # only our own conditions are put into these texts

from __future__ import annotations

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

KEY = "tenant_id, user_id, cluster, status"
OF_ALL = "tenant_id = ''"
BY_STATUS = f"""
SELECT cluster, status, sum(counted)::bigint FROM job_counts WHERE {OF_ALL}
GROUP BY 1, 2 HAVING sum(counted) > 0 ORDER BY 1, 2
"""
# Rows that another one folds are left to it.
FOLD = f"""
WITH several AS MATERIALIZED (
    SELECT {KEY} FROM job_counts GROUP BY {KEY} HAVING count(*) > 1
), folded AS (
    DELETE FROM job_counts WHERE ctid = ANY(ARRAY(
        SELECT c.ctid FROM job_counts AS c JOIN several USING ({KEY}) FOR UPDATE OF c SKIP LOCKED
    )) RETURNING {KEY}, listed, counted
)
INSERT INTO job_counts ({KEY}, listed, counted)
SELECT {KEY}, sum(listed), sum(counted) FROM folded
GROUP BY {KEY} HAVING sum(listed) <> 0 OR sum(counted) <> 0
"""


def listed(conditions: list[str], *, every_tenant: bool) -> str:
    """The query that counts what a list shows. `conditions` are on columns of the key; without any
    on a tenant or a user the sums over all tenants are enough, if the caller sees them."""
    of_all = every_tenant and not any("tenant_id" in c or "user_id" in c for c in conditions)
    where = " AND ".join([*conditions, OF_ALL if of_all else "tenant_id <> ''"])
    return f"SELECT coalesce(sum(listed), 0)::bigint FROM job_counts AS j WHERE {where}"


async def fold(connection: AsyncConnection[TupleRow]) -> None:
    await connection.execute(FOLD.encode(), prepare=False)
