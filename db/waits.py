"""What waiting jobs met, folded into few rows. The rule is core.waits.folded."""
# ruff: noqa: S608  # only our own pieces of text are put together here

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.text import clean
from core.waits import REASON_MAX, ROWS_MAX, WaitKind, WaitNote, WaitRow, fold_key
from db.rows import BulkColumn, Shape

Connection = AsyncConnection[TupleRow]

_NOTE: Shape[tuple[int, WaitNote]] = Shape(
    (
        BulkColumn("place", "int", lambda n: n[0]),
        BulkColumn("uid", "uuid", lambda n: n[1].uid),
        BulkColumn("kind", "text", lambda n: str(n[1].kind)),
        BulkColumn("region", "text", lambda n: clean(n[1].region)),
        BulkColumn("key", "text", lambda n: fold_key(clean(n[1].reason))),
        BulkColumn("reason", "text", lambda n: clean(n[1].reason)[:REASON_MAX]),
        BulkColumn("at", "timestamptz", lambda n: n[1].at),
        BulkColumn("count", "int", lambda n: n[1].count),
    )
)
# A job that has all its rows gets one more for whatever else comes; the new rows of a commit are
# counted in its order. Sorted, so that two commits that bring the same rows cannot wait for each
# other in a circle.
_INSERT = f"""
WITH notes AS (
    SELECT x.* FROM {_NOTE.rows}
), first AS (
    SELECT x.uid, x.kind, x.region, x.key, min(x.place) AS place, count(w.uid) > 0 AS known
    FROM notes AS x JOIN jobs AS j ON j.uid = x.uid LEFT JOIN job_waits AS w
        ON w.uid = x.uid AND w.kind = x.kind AND w.region = x.region AND w.key = x.key
    GROUP BY 1, 2, 3, 4
), fitting AS (
    SELECT f.uid, f.kind, f.region, f.key, f.known OR
        (SELECT count(*) FROM job_waits AS c WHERE c.uid = f.uid)
        + row_number() OVER (PARTITION BY f.uid, f.known ORDER BY f.place) <= {ROWS_MAX} AS fits
    FROM first AS f
)
INSERT INTO job_waits AS w (uid, kind, region, key, reason, first_at, last_at, count)
SELECT uid, kind, region, key, (array_agg(reason ORDER BY at DESC))[1], min(at), max(at), sum(count)
FROM (
    SELECT x.uid, CASE WHEN f.fits THEN x.kind ELSE '{WaitKind.OTHER}' END AS kind,
        CASE WHEN f.fits THEN x.region ELSE '' END AS region,
        CASE WHEN f.fits THEN x.key ELSE '' END AS key, x.reason, x.at, x.count
    FROM notes AS x JOIN fitting AS f USING (uid, kind, region, key)
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
        await connection.execute(_INSERT, _NOTE.arrays(list(enumerate(notes))))


def wait_of(row: Sequence[Any]) -> WaitRow:
    """In the order of SELECT."""
    kind = row[0] if row[0] in set(WaitKind) else WaitKind.OTHER
    return WaitRow(WaitKind(kind), *row[1:])
