"""Who waits for whose end. A hold keeps jobs out of the queue until all that it waits for is over;
the commit in which a job ends says so here, and the loop's next cycle lets the jobs go."""
# ruff: noqa: S608  # only our own pieces of text are put together here

from __future__ import annotations

from collections.abc import Sequence

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.commit_writes import Writes
from core.groups import Wait, bad_end
from core.job import group_of
from db.rows import Row

_SAME_GROUP = "j.tenant_id = w.tenant_id AND j.user_id = w.user_id AND j.group_id = w.group_id"
_ENDED_GROUPS = "(SELECT * FROM unnest(%(tenants)s::text[], %(users)s::text[], %(groups)s::text[]))"
_INSERT = """
INSERT INTO waits (hold, needs, job, tenant_id, user_id, group_id, good_only)
SELECT * FROM
    unnest(%s::uuid[], %s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[], %s::bool[])
"""
# What just ended, for all who wait for it; and what had ended before, for a hold that is new.
_JOBS_OVER = """
UPDATE waits AS w SET over = true,
    bad = CASE WHEN w.good_only AND j.status <> 'SUCCEEDED' THEN j.status END
FROM jobs AS j
WHERE NOT w.over AND j.uid = w.job AND j.ended_at IS NOT NULL
    AND (w.job = ANY(%(ended)s::uuid[]) OR w.hold = ANY(%(holds)s::uuid[]))
"""
# FAILED comes after CANCELLED in the alphabet: the worse of the two is told.
_GROUPS_OVER = f"""
UPDATE waits AS w SET over = true,
    bad = CASE WHEN w.good_only THEN (
        SELECT max(j.status) FROM jobs AS j
        WHERE {_SAME_GROUP} AND j.status <> 'SUCCEEDED') END
WHERE NOT w.over AND w.group_id IS NOT NULL
    AND ((w.tenant_id, w.user_id, w.group_id) IN {_ENDED_GROUPS} OR w.hold = ANY(%(holds)s::uuid[]))
    AND NOT EXISTS (SELECT FROM jobs AS j WHERE {_SAME_GROUP} AND j.ended_at IS NULL)
"""
# One bad end decides; good ones must be all there.
_READY = f"""
UPDATE waits AS w SET ready = true
WHERE NOT w.ready AND w.hold IN (
    SELECT h.hold FROM waits AS h WHERE h.job = ANY(%(ended)s::uuid[])
    UNION SELECT h.hold FROM waits AS h
        WHERE (h.tenant_id, h.user_id, h.group_id) IN {_ENDED_GROUPS}
    UNION SELECT unnest(%(holds)s::uuid[]))
    AND (EXISTS (SELECT FROM waits AS b WHERE b.hold = w.hold AND b.bad IS NOT NULL)
        OR NOT EXISTS (SELECT FROM waits AS o WHERE o.hold = w.hold AND NOT o.over))
"""
_DROP = """
DELETE FROM waits AS w WHERE w.hold = ANY(%s::uuid[])
    AND NOT EXISTS (SELECT FROM jobs AS j WHERE j.blocked = w.hold)
"""
# The jobs behind holds that are over, and why some of them cannot run.
READY_JOBS = """
SELECT j.uid::text, j.version, j.why FROM jobs AS j WHERE j.blocked IN (
    SELECT hold FROM waits WHERE ready GROUP BY hold ORDER BY hold LIMIT %(limit)s
) ORDER BY j.blocked, j.uid LIMIT %(limit)s
"""
VERDICTS = """
SELECT hold::text, needs, group_id IS NOT NULL, bad FROM waits WHERE ready AND hold IN (
    SELECT hold FROM waits WHERE ready GROUP BY hold ORDER BY hold LIMIT %(limit)s
) ORDER BY hold, needs
"""


async def write_dependencies(connection: AsyncConnection[TupleRow], writes: Writes) -> None:
    """After the jobs' own rows. Jobs and groups that these speak of are locked by now."""
    if writes.waits:
        await connection.execute(_INSERT, _columns(writes.waits))
    if writes.waits or writes.ended:
        ended = (group_of(job.spec) for job in writes.ended.values())
        groups = sorted({group for group in ended if group is not None})
        words = {
            "ended": list(writes.ended),
            "tenants": [group.tenant_id for group in groups],
            "users": [group.user_id for group in groups],
            "groups": [group.group for group in groups],
            "holds": sorted({dependency for dependency, _ in writes.waits}),
        }
        await connection.execute(_JOBS_OVER, words)
        await connection.execute(_GROUPS_OVER, words)
        await connection.execute(_READY, words)
    if writes.unblocked:
        await connection.execute(_DROP, (sorted(writes.unblocked),))


def _columns(waits: Sequence[tuple[str, Wait]]) -> list[list[object]]:
    rows = [
        (
            dependency,
            w.after.needs,
            w.uid,
            w.group and w.group.tenant_id,
            w.group and w.group.user_id,
            w.group and w.group.group,
            w.after.good_only,
        )
        for dependency, w in waits
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def verdicts_of(rows: Sequence[Row]) -> dict[str, str | None]:
    """Hold → what ended badly, in words; None: nothing did."""
    found: dict[str, str | None] = {}
    for dependency, needs, group, bad in rows:
        words = bad_end(needs, bad, group=group) if bad is not None else None
        found[dependency] = found.get(dependency) or words
    return found
