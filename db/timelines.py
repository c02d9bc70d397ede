"""What happened to jobs. The rows that one commit adds to a job's history are stored as one, packed
(db/packed.py): its number is that of the last of them. Rows of releases before stand in
`job_events`, one for each, until retention takes them.
"""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import msgspec

from core.commit_writes import EventWrite
from core.job import JobEvent, JobStatus, TimelineEntry
from core.reads import EventRow
from core.text import clean
from db.packed import pack, plain, unpack
from db.rows import ENTRY_SELECT, BulkColumn, Row, Shape, entry_of, to_json

PACKED_MAX = 100
"""So many rows of history in one, at most."""
_MICROSECOND = timedelta(microseconds=1)
# What anybody may write besides the first row. It stays plain, so that SQL sees who wrote what
# only the leader may: db/history_check.py.
_OPEN_TO_ALL = str(JobEvent.STOP_ASKED)


class _Step(msgspec.Struct, array_like=True):
    """One row of history, without what its packed row says of all."""

    after_us: int
    event: str
    from_status: str | None
    to_status: str
    attempt: int
    reason: str
    vm_name: str | None
    region: str | None
    data: dict[str, Any]


_steps = msgspec.json.Decoder(list[_Step])


@dataclass(frozen=True, slots=True)
class PackedEvents:
    """A row of `timelines`."""

    uid: str
    seq: int
    at: datetime
    packed: bytes
    dedup_key: str | None


TIMELINE: Shape[PackedEvents] = Shape(
    (
        BulkColumn("uid", "uuid", lambda p: p.uid),
        BulkColumn("at", "timestamptz", lambda p: p.at),
        BulkColumn("seq", "int", lambda p: p.seq),
        BulkColumn("packed", "bytea", lambda p: p.packed),
        BulkColumn("dedup_key", "text", lambda p: p.dedup_key),
    )
)
INSERT_TIMELINES = (
    f"INSERT INTO timelines ({TIMELINE.names}) SELECT {TIMELINE.names} FROM {TIMELINE.rows}"
)
PACKED_SELECT = "seq, at, packed, dedup_key"
EVENTS = f"""
SELECT {ENTRY_SELECT}, seq FROM job_events WHERE uid = %(uid)s AND seq > %(after)s
ORDER BY seq LIMIT %(size)s
"""
PACKED_EVENTS = f"""
SELECT {PACKED_SELECT} FROM timelines WHERE uid = %(uid)s AND seq > %(after)s
ORDER BY seq LIMIT %(size)s
"""
REPEATS = """
SELECT e.uid::text, e.dedup_key
FROM unnest(%s::uuid[], %s::text[]) AS x(uid, dedup_key) CROSS JOIN LATERAL (
    SELECT uid, dedup_key FROM job_events AS o WHERE o.uid = x.uid AND o.dedup_key = x.dedup_key
    UNION ALL
    SELECT uid, dedup_key FROM timelines AS t WHERE t.uid = x.uid AND t.dedup_key = x.dedup_key
) AS e
"""


def packed_events(events: Iterable[EventWrite]) -> list[PackedEvents]:
    """Numbers of a job that come in one commit follow each other. An entry that must not come
    twice has a row of its own, so that the database sees to it."""
    by_job: dict[str, list[EventWrite]] = {}
    for event in events:
        by_job.setdefault(event.uid, []).append(event)
    found: list[PackedEvents] = []
    last: EventWrite | None = None
    for uid, rows in by_job.items():
        only = rows[0] if len(rows) == 1 else None
        if only is not None and last is not None and only.entry == last.entry:
            # Members of an array begin alike.
            found.append(replace(found[-1], uid=uid, seq=only.seq))
        else:
            found += _packed(rows)
        last = only
    return found


def _packed(events: Sequence[EventWrite]) -> Iterator[PackedEvents]:
    first = events[0].seq
    kinds = groupby(events, lambda e: (e.entry.dedup_key, (e.seq - first) // PACKED_MAX))
    for (dedup_key, _), some in kinds:
        rows = list(some)
        at = rows[0].entry.at
        said = _said([row.entry for row in rows], at)
        yield PackedEvents(rows[0].uid, rows[-1].seq, at, said, dedup_key)


def _said(entries: Sequence[TimelineEntry], since: datetime) -> bytes:
    text = to_json([_step(entry, since) for entry in entries]).encode()
    alone = len(entries) == 1 and entries[0].event == _OPEN_TO_ALL
    return plain(text) if alone else pack(text)


def _step(entry: TimelineEntry, since: datetime) -> list[object]:
    return [
        (entry.at - since) // _MICROSECOND,
        clean(entry.event),
        None if entry.from_status is None else str(entry.from_status),
        str(entry.to_status),
        entry.attempt,
        clean(entry.reason),
        entry.vm_name,
        entry.region,
        entry.data,
    ]


def unpacked(seq: int, at: datetime, packed: bytes, dedup_key: str | None) -> list[EventRow]:
    """Of PACKED_SELECT: one row each, as it was."""
    steps = _steps.decode(unpack(packed))
    first = seq - len(steps) + 1
    return [
        EventRow(first + number, _entry(step, at, dedup_key)) for number, step in enumerate(steps)
    ]


def _entry(step: _Step, at: datetime, dedup_key: str | None) -> TimelineEntry:
    return TimelineEntry(
        at=at + step.after_us * _MICROSECOND,
        event=step.event,
        from_status=None if step.from_status is None else JobStatus(step.from_status),
        to_status=JobStatus(step.to_status),
        attempt=step.attempt,
        reason=step.reason,
        vm_name=step.vm_name,
        region=step.region,
        data=step.data,
        dedup_key=dedup_key,
    )


def event_rows(old: Iterable[Row], packed: Iterable[Row], after: int, size: int) -> list[EventRow]:
    """Of both tables, in order: rows of releases before have the lower numbers."""
    found = [EventRow(row[-1], entry_of(row)) for row in old]
    found += [event for row in packed for event in unpacked(*row)]
    return [event for event in found if event.seq > after][:size]
