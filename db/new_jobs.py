"""Jobs as they begin: most columns of their rows are the same for all of them, so those are not
sent.

Nothing is read beforehand: a job that exists is found by the insert itself, and the caller then
takes the way that looks first and can say which guard refuses.
"""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow

from core.audit_log import AuditEntry
from core.changes import AtomicBatch, Change, NewJob
from core.job import Job, JobStatus
from db.job_rows import AT_DEFAULT, JOB_NEW, JobWrite
from db.rows import Shape

Connection = AsyncConnection[TupleRow]
_SAME = {
    "status": f"'{JobStatus.QUEUED}'",
    "version": "1",
    "attempt": "0",
    "last_seq": "1",
    "rank": "0",
    "gang_size": "1",
    "status_since": "submitted_at",
    "queued_since": "submitted_at",
}
"""Column → what it holds in every row."""
_LEFT_OUT = AT_DEFAULT | {"blocked", "gang", "spec_id", *_SAME}
_SENT: Shape[JobWrite] = Shape(
    tuple(field for field in JOB_NEW.fields if field.name not in _LEFT_OUT)
)
# Sorted, so that two commits that bring the same keys cannot wait for each other in a circle.
_INSERT_JOBS = f"""
INSERT INTO jobs ({JOB_NEW.names}) SELECT {JOB_NEW.names} FROM {JOB_NEW.rows}
ORDER BY tenant_id, user_id, job_id ON CONFLICT DO NOTHING
"""
_INSERT_BEGUN = f"""
INSERT INTO jobs ({_SENT.names}, {", ".join(_SAME)})
SELECT {_SENT.names}, {", ".join(_SAME.values())} FROM {_SENT.rows}
ORDER BY tenant_id, user_id, job_id ON CONFLICT DO NOTHING
"""
_DIFFERENT = frozenset(
    {
        *("uid", "spec", "cluster", "submitted_at", "status_since", "queued_since"),
        *("deadline_at", "reason", "due_at", "starts_by"),
    }
)
"""Attributes in which jobs differ when they begin; the times of three of them are one."""
_BEGINS = {"status": JobStatus.QUEUED, "version": 1}
_same = attrgetter(*(f.name for f in fields(Job) if f.name not in _DIFFERENT))
_BEGUN = tuple(
    _BEGINS.get(field.name, field.default) for field in fields(Job) if field.name not in _DIFFERENT
)


def all_begin(batches: Iterable[AtomicBatch]) -> bool:
    """Whether nothing has to be read for them: jobs of single submissions, and what the audit log
    says of them."""
    return all(_begins(change) for batch in batches for change in batch)


def _begins(change: Change) -> bool:
    if not isinstance(change, NewJob):
        return isinstance(change, AuditEntry)
    return not change.waits and change.shared is None and change.entry.dedup_key is None


async def insert_jobs(connection: Connection, rows: Sequence[JobWrite]) -> AsyncCursor[TupleRow]:
    """Its row count says how many of them nobody had stored before."""
    if all(_as_begun(row) for row in rows):
        return await connection.execute(_INSERT_BEGUN, _SENT.arrays(rows))
    return await connection.execute(_INSERT_JOBS, JOB_NEW.arrays(rows))


def _as_begun(row: JobWrite) -> bool:
    job, at = row.job, row.job.submitted_at
    return (
        row.shared is None
        and row.last_seq == 1
        and job.status_since == at
        and job.queued_since == at
        and _same(job) == _BEGUN
    )
