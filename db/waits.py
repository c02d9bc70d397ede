"""What waiting jobs met, folded into few rows. The rule is core.waits.folded."""
# ruff: noqa: S608  # only our own pieces of text are put together here

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.waits import REASON_MAX, ROWS_MAX, WaitKind, WaitNote, WaitRow, fold_key
from db.rows import Field, Shape, clean

Connection = AsyncConnection[TupleRow]

_NOTE: Shape[WaitNote] = Shape(
    (
        Field("uid", "uuid", lambda n: n.uid),
        Field("kind", "text", lambda n: str(n.kind)),
        Field("region", "text", lambda n: clean(n.region)),
        Field("key", "text", lambda n: fold_key(clean(n.reason))),
        Field("reason", "text", lambda n: clean(n.reason)[:REASON_MAX]),
        Field("at", "timestamptz", lambda n: n.at),
        Field("count", "int", lambda n: n.count),
    )
)
# A job that has all its rows gets one more for whatever else comes. Sorted, so that two commits
# that bring the same rows cannot wait for each other in a circle.
_INSERT = f"""
INSERT INTO job_waits AS w (uid, kind, region, key, reason, first_at, last_at, count)
SELECT uid, kind, region, key, (array_agg(reason ORDER BY at DESC))[1], min(at), max(at), sum(count)
FROM (
    SELECT x.uid, CASE WHEN f.fits THEN x.kind ELSE '{WaitKind.OTHER}' END AS kind,
        CASE WHEN f.fits THEN x.region ELSE '' END AS region,
        CASE WHEN f.fits THEN x.key ELSE '' END AS key, x.reason, x.at, x.count
    FROM {_NOTE.rows} JOIN jobs AS j ON j.uid = x.uid CROSS JOIN LATERAL (
        SELECT (SELECT count(*) FROM job_waits AS c WHERE c.uid = x.uid) < {ROWS_MAX} OR EXISTS (
            SELECT FROM job_waits AS c WHERE c.uid = x.uid AND c.kind = x.kind
                AND c.region = x.region AND c.key = x.key) AS fits
    ) AS f
) AS n
GROUP BY uid, kind, region, key ORDER BY uid, kind, region, key
ON CONFLICT (uid, kind, region, key) DO UPDATE SET
    reason = CASE WHEN excluded.last_at >= w.last_at THEN excluded.reason ELSE w.reason END,
    first_at = least(w.first_at, excluded.first_at),
    last_at = greatest(w.last_at, excluded.last_at), count = w.count + excluded.count
"""
SELECT = """
SELECT kind, region, reason, first_at, last_at, count FROM job_waits WHERE uid = %s
ORDER BY first_at, kind, region, key
"""


async def write_waits(connection: Connection, notes: Sequence[WaitNote]) -> None:
    """All notes of a commit, by one statement."""
    if notes:
        await connection.execute(_INSERT, _NOTE.arrays(notes))


def wait_of(row: Sequence[Any]) -> WaitRow:
    """In the order of SELECT."""
    kind = row[0] if row[0] in set(WaitKind) else WaitKind.OTHER
    return WaitRow(WaitKind(kind), *row[1:])
