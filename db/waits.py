"""What waiting jobs met, folded into few rows. The rule is core.waits.folded.

A row is found by the hash of (kind, region, reason without its numbers); the words themselves are
packed (db/packed.py), because thousands of jobs meet the same.
"""
# ruff: noqa: S608  # only our own pieces of text are put together here

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.text import clean
from core.waits import REASON_MAX, ROWS_MAX, WaitKind, WaitNote, WaitRow, fold_key
from db.packed import pack, unpack
from db.rows import BulkColumn, Row, Shape

Connection = AsyncConnection[TupleRow]
_CACHED = 4096
_words = msgspec.json.Decoder(tuple[str, str, str])


@dataclass(frozen=True, slots=True)
class _Words:
    """A note without its job and its time."""

    key: int
    packed: bytes


@lru_cache(_CACHED)
def _stored(kind: str, region: str, reason: str) -> _Words:
    """As a waiting job's neighbours meet the same, most notes find it ready."""
    key = "\n".join((kind, region, fold_key(reason)))
    # As in SQL: ('x' || left(md5(…), 16))::bit(64)::bigint.
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    words = msgspec.json.encode((kind, region, reason[:REASON_MAX]))
    return _Words(int.from_bytes(digest[:8], "big", signed=True), pack(words))


def _of(note: WaitNote) -> _Words:
    return _stored(str(note.kind), clean(note.region), clean(note.reason))


def _other(note: WaitNote) -> bytes:
    return _stored(str(WaitKind.OTHER), "", clean(note.reason)).packed


_OTHER_KEY = _stored(str(WaitKind.OTHER), "", "").key
_NOTE: Shape[tuple[int, WaitNote]] = Shape(
    (
        BulkColumn("place", "int", lambda n: n[0]),
        BulkColumn("uid", "uuid", lambda n: n[1].uid),
        BulkColumn("key", "bigint", lambda n: _of(n[1]).key),
        BulkColumn("words", "bytea", lambda n: _of(n[1]).packed),
        BulkColumn("other", "bytea", lambda n: _other(n[1])),
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
    SELECT x.uid, x.key, min(x.place) AS place, count(w.uid) > 0 AS known
    FROM notes AS x JOIN jobs AS j ON j.uid = x.uid LEFT JOIN job_waits AS w
        ON w.uid = x.uid AND w.key = x.key
    GROUP BY 1, 2
), fitting AS (
    SELECT f.uid, f.key, f.known OR
        (SELECT count(*) FROM job_waits AS c WHERE c.uid = f.uid)
        + row_number() OVER (PARTITION BY f.uid, f.known ORDER BY f.place) <= {ROWS_MAX} AS fits
    FROM first AS f
)
INSERT INTO job_waits AS w (uid, key, words, first_at, last_at, count)
SELECT uid, key, (array_agg(words ORDER BY at DESC))[1], min(at), max(at), sum(count)
FROM (
    SELECT x.uid, CASE WHEN f.fits THEN x.key ELSE {_OTHER_KEY} END AS key,
        CASE WHEN f.fits THEN x.words ELSE x.other END AS words, x.at, x.count
    FROM notes AS x JOIN fitting AS f USING (uid, key)
) AS n
GROUP BY uid, key ORDER BY uid, key
ON CONFLICT (uid, key) DO UPDATE SET
    words = CASE WHEN excluded.last_at >= w.last_at THEN excluded.words ELSE w.words END,
    first_at = least(w.first_at, excluded.first_at),
    last_at = greatest(w.last_at, excluded.last_at), count = w.count + excluded.count
"""
SELECT = "SELECT words, first_at, last_at, count FROM job_waits WHERE uid = %s"


async def write_waits(connection: Connection, notes: Sequence[WaitNote]) -> None:
    """All notes of a commit, by one statement."""
    if notes:
        await connection.execute(_INSERT, _NOTE.arrays(list(enumerate(notes))))


def waits_of(rows: Sequence[Row]) -> list[WaitRow]:
    """Of SELECT: what was met first comes first."""
    found = [_wait(*row) for row in rows]
    return sorted(found, key=lambda w: (w.first_at, w.kind, w.region, fold_key(w.reason)))


def _wait(words: bytes, first_at: datetime, last_at: datetime, count: int) -> WaitRow:
    kind, region, reason = _words.decode(unpack(words))
    known = WaitKind(kind) if kind in set(WaitKind) else WaitKind.OTHER
    return WaitRow(known, region, reason, first_at, last_at, count)
