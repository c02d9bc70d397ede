"""Questions over the histories of several jobs at once."""
# ruff: noqa: S608  # only our own list of columns is put into these texts

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.job import JobStatus
from core.reads import Milestones
from db.timelines import PACKED_SELECT, unpacked

# Notes leave a job where it is: only rows that moved it count.
_CAME = """
SELECT uid::text, to_status, max(at) FROM job_events
WHERE uid = ANY(%s::uuid[]) AND from_status IS DISTINCT FROM to_status GROUP BY 1, 2
"""
_PACKED = f"SELECT uid, {PACKED_SELECT} FROM timelines WHERE uid = ANY(%s::uuid[])"
_WAS = """
SELECT DISTINCT ON (uid) uid::text, vm_name, region FROM attempts
WHERE uid = ANY(%s::uuid[]) ORDER BY uid, attempt DESC
"""
_RUNNING = """
SELECT cluster, lease_region, count(*) FROM jobs WHERE status IN ('RUNNING', 'PREEMPTING')
GROUP BY 1, 2
"""


async def milestones(
    connection: AsyncConnection[TupleRow], uids: Sequence[str]
) -> Mapping[str, Milestones]:
    came: dict[str, dict[JobStatus, datetime]] = {}
    for uid, status, at in await (await connection.execute(_CAME, (list(uids),))).fetchall():
        came.setdefault(uid, {})[JobStatus(status)] = at
    packed = await connection.execute(_PACKED, (list(uids),), binary=True)
    for uid, *row in await packed.fetchall():
        for entry in (event.entry for event in unpacked(*row)):
            if entry.from_status is not entry.to_status:
                times = came.setdefault(str(uid), {})
                times[entry.to_status] = max(entry.at, times.get(entry.to_status, entry.at))
    found = {uid: Milestones(times) for uid, times in came.items()}
    for uid, vm, region in await (await connection.execute(_WAS, (list(uids),))).fetchall():
        found[uid] = replace(found.get(uid, Milestones()), vm_name=vm, region=region)
    return found


async def running_by_region(
    connection: AsyncConnection[TupleRow],
) -> Mapping[tuple[str, str], int]:
    rows = await (await connection.execute(_RUNNING)).fetchall()
    return {(cluster, region): count for cluster, region, count in rows}
