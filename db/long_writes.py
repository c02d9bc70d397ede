"""The jobs of one large submission: rows that differ in a few columns only, written part by part
while the next part is made.

Nothing is read beforehand. A job that exists makes the transaction fail, and the caller takes the
way that looks first and can say which guard refuses.
"""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.changes import AtomicBatch, NewJob, NewSpec
from core.commit import KnownRows, Locked, judge
from core.commit_writes import EventWrite, fold
from core.wakes import new_jobs_in
from db.job_rows import AT_DEFAULT, JOB_NEW, JobWrite
from db.rows import Shape
from db.shared_specs import write_specs
from db.timelines import TIMELINE, PackedEvents, packed_events
from db.writes import ensure_tenants, wake, write

Connection = AsyncConnection[TupleRow]
Item = TypeVar("Item")
Row = list[object]
_LEFT_OUT = AT_DEFAULT | {"region", "dedup_key"}
"""Columns that stand at the default of their table when a job begins."""
_OWN = frozenset({"uid", "job_id", "group_id", "spec", "blocked", "gang", "rank", "deadline_at"})
"""Columns in which the jobs of one submission differ."""


class NotPlain(Exception):
    """There is more than new jobs that share a spec: it needs the guards."""


class LikeRows(Generic[Item]):
    """An INSERT of rows that have most columns in common."""

    def __init__(self, table: str, shape: Shape[Item]) -> None:
        fields = [field for field in shape.fields if field.name not in _LEFT_OUT]
        self._own = Shape(tuple(field for field in fields if field.name in _OWN))
        self._same = Shape(tuple(field for field in fields if field.name not in _OWN))
        same = ", ".join(f"%b::{field.kind}" for field in self._same.fields)
        self._insert = (
            f"INSERT INTO {table} ({self._own.names}, {self._same.names}) "
            f"SELECT {self._own.names}, {same} FROM {self._own.rows}"
        )
        self._first: Row | None = None

    async def write(self, connection: Connection, items: Sequence[Item]) -> None:
        """NotPlain if one differs from the first of all in what they should have in common."""
        for item in items:
            same = [field.value(item) for field in self._same.fields]
            if self._first is None:
                self._first = same
            elif same != self._first:
                raise NotPlain
        if items and self._first is not None:
            await connection.execute(self._insert, [*self._first, *self._own.arrays(items)])


async def write_long(connection: Connection, parts: Iterator[AtomicBatch]) -> None:
    """Within a transaction of the caller's; NotPlain, or the database's own error for a job that
    exists."""
    part = next(parts, ())
    await _write_specs(connection, part)
    jobs: LikeRows[JobWrite] = LikeRows("jobs", JOB_NEW)
    events: LikeRows[PackedEvents] = LikeRows("timelines", TIMELINE)
    rest: list[AtomicBatch] = []
    clusters: set[str] = set()
    async with connection.pipeline():
        while part:
            new = [change for change in part if isinstance(change, NewJob)]
            rest.append(tuple(c for c in part if not isinstance(c, NewJob | NewSpec)))
            clusters.update(change.job.cluster for change in new)
            await jobs.write(connection, [_job(change) for change in new])
            entries = [EventWrite(change.job.uid, 1, change.entry) for change in new]
            await events.write(connection, packed_events(entries))
            await asyncio.sleep(0)  # others are served between two parts
            part = next(parts, ())
    await write(connection, fold(rest), Locked(KnownRows(), {}, set()))
    await wake(connection, new_jobs_in(clusters))


async def _write_specs(connection: Connection, part: AtomicBatch) -> None:
    """What the jobs refer to: their spec and their tenant."""
    specs = tuple(change for change in part if isinstance(change, NewSpec))
    if not specs or judge([specs], KnownRows()):
        raise NotPlain
    await ensure_tenants(connection, {change.spec.tenant_id for change in specs})
    await write_specs(connection, fold([specs]).specs)


def _job(new: NewJob) -> JobWrite:
    if new.shared is None or new.waits or new.entry.dedup_key is not None:
        raise NotPlain
    return JobWrite(new.job, new.content_hash, 1, new.shared)
