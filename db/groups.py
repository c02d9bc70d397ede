"""Questions about the jobs of a group."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.access import Tenants
from core.groups import only_one
from core.job import JobStatus
from db.rows import JOB_SELECT

# By job id, perhaps of one user, of some tenants or of all.
ONE_JOB = """
j.job_id = %s AND (%s::text IS NULL OR j.user_id = %s)
    AND (%s::text[] IS NULL OR j.tenant_id = ANY(%s::text[]))
"""
# Jumps to the next owner instead of reading all jobs of the first.
_OWNERS = """
WITH first AS (SELECT min(user_id) AS user_id FROM jobs WHERE group_id = %(group)s
    AND (%(user)s::text IS NULL OR user_id = %(user)s)
    AND (%(tenants)s::text[] IS NULL OR tenant_id = ANY(%(tenants)s::text[])))
SELECT user_id, EXISTS (SELECT FROM jobs AS j WHERE j.group_id = %(group)s
    AND j.user_id > first.user_id AND %(user)s::text IS NULL
    AND (%(tenants)s::text[] IS NULL OR j.tenant_id = ANY(%(tenants)s::text[])))
FROM first WHERE user_id IS NOT NULL
"""
_OPEN = f"""
SELECT {JOB_SELECT} FROM jobs AS j
WHERE j.group_id = %s AND j.user_id = %s AND j.ended_at IS NULL AND j.status <> 'STOPPING'
    AND (%s::text[] IS NULL OR j.tenant_id = ANY(%s::text[])) ORDER BY j.uid LIMIT %s
"""
_MEMBERS = f"SELECT {JOB_SELECT} FROM jobs AS j WHERE j.gang = %s ORDER BY j.rank"
_COUNTS = """
SELECT status, count(*) FROM jobs WHERE group_id = %s AND user_id = %s
    AND (%s::text[] IS NULL OR tenant_id = ANY(%s::text[])) GROUP BY 1
"""


def one_job(job_id: str, user_id: str | None, tenants: Tenants) -> tuple[object, ...]:
    """The values of ONE_JOB."""
    return job_id, user_id, user_id, tenants.only, tenants.only


async def find_group(
    connection: AsyncConnection[TupleRow], group: str, user_id: str | None, tenants: Tenants
) -> str:
    """Whose it is; NotFound or Ambiguous."""
    words = {"group": group, "user": user_id, "tenants": tenants.only}
    row = await (await connection.execute(_OWNERS, words)).fetchone()
    owners = [] if row is None else [str(row[0])] * (1 + row[1])
    return only_one("group", group, user_id, owners)


async def open_jobs(
    connection: AsyncConnection[TupleRow], group: str, user_id: str, limit: int, tenants: Tenants
) -> Sequence[TupleRow]:
    """Rows of JOB_SELECT."""
    only = tenants.only
    cursor = await connection.execute(_OPEN, (group, user_id, only, only, limit), binary=True)
    return await cursor.fetchall()


async def members(connection: AsyncConnection[TupleRow], gang: str) -> Sequence[TupleRow]:
    """Rows of JOB_SELECT."""
    return await (await connection.execute(_MEMBERS, (gang,), binary=True)).fetchall()


async def group_counts(
    connection: AsyncConnection[TupleRow], group: str, user_id: str, tenants: Tenants
) -> Mapping[JobStatus, int]:
    only = tenants.only
    rows = await (await connection.execute(_COUNTS, (group, user_id, only, only))).fetchall()
    return {JobStatus(status): count for status, count in rows}
