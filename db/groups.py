"""Questions about the jobs of a group."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.access import Tenants
from core.groups import GroupKey, Owner, only_one
from core.job import JobStatus
from db.rows import JOB_SELECT

# By job id, perhaps of one user, of some tenants or of all. Two tell that there are several.
ONE_JOB = """
j.job_id = %s AND (%s::text IS NULL OR j.user_id = %s)
    AND (%s::text[] IS NULL OR j.tenant_id = ANY(%s::text[]))
ORDER BY j.user_id, j.tenant_id LIMIT 2
"""
# The first owner, another user if there is one (found by a jump in the index instead of reading all
# jobs of the first), and another tenant of the same user.
_SEEN = "(%(tenants)s::text[] IS NULL OR j.tenant_id = ANY(%(tenants)s::text[]))"
_OWNERS = f"""
WITH first AS (
    SELECT j.tenant_id, j.user_id FROM jobs AS j WHERE j.group_id = %(group)s
        AND (%(user)s::text IS NULL OR j.user_id = %(user)s) AND {_SEEN}
    ORDER BY j.user_id LIMIT 1
)
SELECT tenant_id, user_id FROM first
UNION ALL (
    SELECT j.tenant_id, j.user_id FROM first JOIN jobs AS j ON j.user_id > first.user_id
    WHERE j.group_id = %(group)s AND %(user)s::text IS NULL AND {_SEEN} LIMIT 1
) UNION ALL (
    SELECT j.tenant_id, j.user_id FROM first JOIN jobs AS j ON j.user_id = first.user_id
    WHERE j.group_id = %(group)s AND j.tenant_id <> first.tenant_id AND {_SEEN} LIMIT 1
)
"""
_OPEN = f"""
SELECT {JOB_SELECT} FROM jobs AS j
WHERE j.tenant_id = %s AND j.user_id = %s AND j.group_id = %s AND j.ended_at IS NULL
    AND j.status <> 'STOPPING' ORDER BY j.uid LIMIT %s
"""
_MEMBERS = f"SELECT {JOB_SELECT} FROM jobs AS j WHERE j.gang = %s ORDER BY j.rank"
_COUNTS = """
SELECT status, count(*) FROM jobs WHERE tenant_id = %s AND user_id = %s AND group_id = %s
GROUP BY 1
"""


def one_job(job_id: str, user_id: str | None, tenants: Tenants) -> tuple[object, ...]:
    """The values of ONE_JOB."""
    return job_id, user_id, user_id, tenants.only, tenants.only


async def find_group(
    connection: AsyncConnection[TupleRow], group: str, user_id: str | None, tenants: Tenants
) -> GroupKey:
    """With its owner; NotFound or Ambiguous."""
    words = {"group": group, "user": user_id, "tenants": tenants.only}
    rows = await (await connection.execute(_OWNERS, words)).fetchall()
    owner = only_one("group", group, user_id, [Owner(*row) for row in rows])
    return GroupKey(owner.tenant_id, owner.user_id, group)


async def open_jobs(
    connection: AsyncConnection[TupleRow], group: GroupKey, limit: int
) -> Sequence[TupleRow]:
    """Rows of JOB_SELECT."""
    return await (await connection.execute(_OPEN, (*group, limit), binary=True)).fetchall()


async def members(connection: AsyncConnection[TupleRow], gang: str) -> Sequence[TupleRow]:
    """Rows of JOB_SELECT."""
    return await (await connection.execute(_MEMBERS, (gang,), binary=True)).fetchall()


async def group_counts(
    connection: AsyncConnection[TupleRow], group: GroupKey
) -> Mapping[JobStatus, int]:
    rows = await (await connection.execute(_COUNTS, group)).fetchall()
    return {JobStatus(status): count for status, count in rows}
