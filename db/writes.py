"""The bulk writes of a commit: one statement per kind of row, whatever the number of rows."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.changes import JobProgress, PendingReason, VmHeartbeat
from core.commit import Locked
from core.commit_writes import Attempt, Writes, number_events
from core.job import WAITING
from core.messages import OutMessage
from core.text import clean
from core.wakes import Wake
from db.audit_rows import AUDIT, INSERT_AUDIT
from db.dependencies import write_dependencies
from db.job_rows import JOB_MOVE, JobWrite
from db.locks import OUTBOX_LOCK
from db.new_jobs import insert_jobs
from db.rows import VM, BulkColumn, Shape, to_json
from db.shared_specs import write_specs
from db.small_writes import write_plain
from db.tenants import ENSURE, REVIVE, write_tenants
from db.timelines import INSERT_TIMELINES, TIMELINE, packed_events
from db.waits import write_waits

Connection = AsyncConnection[TupleRow]
Item = TypeVar("Item")
WAKE_CHANNEL = "zen_wake"
_WAITING = ", ".join(f"'{status}'" for status in sorted(WAITING))


class Raced(Exception):
    """Somebody submitted the same job in the meantime: look again."""


_OPENED: Shape[Attempt] = Shape(
    (
        BulkColumn("uid", "uuid", lambda a: a.uid),
        BulkColumn("attempt", "int", lambda a: a.number),
        BulkColumn("lease_id", "text", lambda a: a.lease and a.lease.lease_id),
        BulkColumn("vm_uid", "uuid", lambda a: a.lease and a.lease.vm_uid),
        BulkColumn("vm_name", "text", lambda a: a.lease and a.lease.vm_name),
        BulkColumn("region", "text", lambda a: a.lease and a.lease.region),
        BulkColumn("zone", "text", lambda a: a.lease and a.lease.zone),
        BulkColumn("slots", "jsonb", lambda a: a.lease and to_json(a.lease.slots)),
        BulkColumn("assigned_at", "timestamptz", lambda a: a.assigned_at),
        BulkColumn("started_at", "timestamptz", lambda a: a.started_at),
        BulkColumn("ended_at", "timestamptz", lambda a: a.ended_at),
        BulkColumn("outcome", "text", lambda a: clean(a.outcome)),
        BulkColumn("exit_code", "int", lambda a: a.exit_code),
    )
)
_PATCHED: Shape[Attempt] = Shape(
    tuple(
        field
        for field in _OPENED.fields
        if field.name in {"uid", "attempt", "started_at", "ended_at", "outcome", "exit_code"}
    )
)
_PROGRESS: Shape[JobProgress] = Shape(
    (
        BulkColumn("uid", "uuid", lambda p: p.uid),
        BulkColumn("attempt", "int", lambda p: p.attempt),
        BulkColumn("step", "float8", lambda p: p.progress and float(p.progress.step)),
        BulkColumn(
            "total",
            "float8",
            lambda p: (
                float(p.progress.total)
                if p.progress is not None and p.progress.total is not None
                else None
            ),
        ),
        BulkColumn(
            "checkpoint_step",
            "float8",
            lambda p: None if p.checkpoint_step is None else float(p.checkpoint_step),
        ),
        BulkColumn("at", "timestamptz", lambda p: p.at),
    )
)
_REASON: Shape[PendingReason] = Shape(
    (
        BulkColumn("uid", "uuid", lambda w: w.uid),
        BulkColumn("why", "text", lambda w: clean(w.why)),
    )
)
_HEARTBEAT: Shape[VmHeartbeat] = Shape(
    (
        BulkColumn("uid", "uuid", lambda b: b.vm_uid),
        BulkColumn("at", "timestamptz", lambda b: b.at),
        BulkColumn("readings", "jsonb", lambda b: to_json(b.readings.said())),
        BulkColumn("seq", "bigint", lambda b: b.seq),
    )
)
_SEND: Shape[OutMessage] = Shape(
    (
        BulkColumn("topic", "text", lambda m: m.topic),
        BulkColumn("body", "bytea", lambda m: m.body),
        BulkColumn("attributes", "jsonb", lambda m: to_json(m.attributes)),
        BulkColumn("ordering_key", "text", lambda m: m.ordering_key),
    )
)

_UPDATE_JOBS = f"""
UPDATE jobs AS j SET {JOB_MOVE.assignments("uid")},
    why = CASE WHEN x.status IN ({_WAITING}) THEN j.why ELSE '' END
FROM {JOB_MOVE.rows} WHERE j.uid = x.uid
"""
_UPDATE_SEQS = """
UPDATE jobs AS j SET last_seq = x.last_seq
FROM unnest(%s::uuid[], %s::int[]) AS x(uid, last_seq) WHERE j.uid = x.uid
"""
# The price is written down with the attempt: a later change of prices does not rewrite history.
_INSERT_ATTEMPTS = f"""
INSERT INTO attempts ({_OPENED.names}, usd_per_hour)
SELECT {", ".join(f"x.{field.name}" for field in _OPENED.fields)}, coalesce(v.usd_per_hour, 0)
FROM {_OPENED.rows} LEFT JOIN vms AS v ON v.uid = x.vm_uid
"""
_UPDATE_ATTEMPTS = f"""
UPDATE attempts AS a SET
    started_at = coalesce(x.started_at, a.started_at),
    ended_at = coalesce(x.ended_at, a.ended_at),
    outcome = CASE WHEN x.outcome = '' THEN a.outcome ELSE x.outcome END,
    exit_code = coalesce(x.exit_code, a.exit_code)
FROM {_PATCHED.rows} WHERE a.uid = x.uid AND a.attempt = x.attempt
"""
_UPDATE_PROGRESS = f"""
UPDATE jobs AS j SET
    progress_at = x.at,
    progress_step = coalesce(x.step, j.progress_step),
    progress_total = CASE WHEN x.step IS NULL THEN j.progress_total ELSE x.total END,
    checkpoint_step = coalesce(x.checkpoint_step, j.checkpoint_step)
FROM {_PROGRESS.rows}
WHERE j.uid = x.uid AND j.attempt = x.attempt
    AND (j.progress_at IS NULL OR j.progress_at < x.at)
"""
# Before the job's own row learns the step: only a new one is a new checkpoint. A VM's costs up to
# here are not lost with it.
_UPDATE_CHECKPOINTS = f"""
UPDATE attempts AS a SET checkpoint_at = x.at
FROM {_PROGRESS.rows} JOIN jobs AS j ON j.uid = x.uid AND j.attempt = x.attempt
WHERE a.uid = x.uid AND a.attempt = x.attempt
    AND x.checkpoint_step IS DISTINCT FROM j.checkpoint_step
    AND (j.progress_at IS NULL OR j.progress_at < x.at)
"""
_UPDATE_REASONS = f"""
UPDATE jobs AS j SET why = x.why FROM {_REASON.rows}
WHERE j.uid = x.uid AND j.status IN ({_WAITING})
    AND j.why <> x.why
"""
_INSERT_VMS = f"INSERT INTO vms ({VM.names}) SELECT {VM.names} FROM {VM.rows}"
# A heartbeat that came after the mover looked must not be lost: the newest stays.
_UPDATE_VMS = f"""
UPDATE vms AS v SET {VM.assignments("uid", "last_beat_at", "heard_seq")},
    last_beat_at = greatest(v.last_beat_at, x.last_beat_at),
    heard_seq = CASE WHEN v.boot_nonce = x.boot_nonce
        THEN greatest(v.heard_seq, x.heard_seq) ELSE x.heard_seq END
FROM {VM.rows} WHERE v.uid = x.uid
"""
# Earlier releases stored a list: the readings of the GPUs alone.
_OF_GPUS = "jsonb_build_object('gpus', v.readings)"
_UPDATE_HEARTBEATS = f"""
UPDATE vms AS v SET last_beat_at = greatest(v.last_beat_at, x.at),
    heard_seq = greatest(v.heard_seq, x.seq),
    readings = CASE WHEN v.last_beat_at >= x.at THEN v.readings ELSE
        CASE jsonb_typeof(v.readings) WHEN 'array' THEN {_OF_GPUS} ELSE v.readings END
        || x.readings END
FROM {_HEARTBEAT.rows} WHERE v.uid = x.uid
    AND (v.last_beat_at IS NULL OR v.last_beat_at < x.at OR v.heard_seq < x.seq)
"""
_INSERT_SENDS = f"""
INSERT INTO outbox ({_SEND.names})
SELECT {_SEND.names} FROM unnest(%s::text[], %s::bytea[], %s::jsonb[], %s::text[])
    WITH ORDINALITY AS x({_SEND.names}, place) ORDER BY place
"""


async def write(connection: Connection, writes: Writes, locked: Locked) -> None:
    """Everything but the commit itself."""
    events, last_seqs = number_events(writes, locked)
    await _write_new_jobs(connection, writes, last_seqs)
    async with connection.pipeline():
        # Moves go before inserts: a name is free again once its VM is gone.
        await _bulk(connection, _UPDATE_VMS, VM, list(writes.vms.values()))
        await _bulk(connection, _INSERT_VMS, VM, list(writes.new_vms.values()))
        await _bulk(connection, _UPDATE_HEARTBEATS, _HEARTBEAT, list(writes.heartbeats.values()))
        await _write_jobs(connection, writes, locked, last_seqs)
        await write_dependencies(connection, writes)
        await _bulk(connection, INSERT_TIMELINES, TIMELINE, packed_events(events))
        opened = [attempt for attempt in writes.attempts.values() if attempt.lease is not None]
        patched = [attempt for attempt in writes.attempts.values() if attempt.lease is None]
        await _bulk(connection, _UPDATE_ATTEMPTS, _PATCHED, patched)
        await _bulk(connection, _INSERT_ATTEMPTS, _OPENED, opened)
        saved = [said for said in writes.progress.values() if said.checkpoint_step is not None]
        await _bulk(connection, _UPDATE_CHECKPOINTS, _PROGRESS, saved)
        await _bulk(connection, _UPDATE_PROGRESS, _PROGRESS, list(writes.progress.values()))
        await _bulk(connection, _UPDATE_REASONS, _REASON, list(writes.reasons.values()))
        await write_waits(connection, writes.wait_notes)
        await write_plain(connection, writes.small)
        await write_tenants(connection, list(writes.tenants.values()), writes.charged)
        await _write_sends(connection, writes.sends)
        await _bulk(connection, INSERT_AUDIT, AUDIT, writes.audited)
        if writes.wake is not None:
            await wake(connection, writes.wake)


async def wake(connection: Connection, wake: Wake) -> None:
    """The leader hears of it once this is committed."""
    await connection.execute("SELECT pg_notify(%s, %s)", (WAKE_CHANNEL, wake.text))


async def _write_new_jobs(
    connection: Connection, writes: Writes, last_seqs: dict[str, int]
) -> None:
    if not writes.new_jobs:
        return
    rows = [
        JobWrite(job, writes.hashes[uid], last_seqs[uid], writes.shared.get(uid))
        for uid, job in writes.new_jobs.items()
    ]
    async with connection.pipeline():
        await ensure_tenants(connection, {job.spec.tenant_id for job in writes.new_jobs.values()})
        await write_specs(connection, writes.specs)
        cursor = await insert_jobs(connection, rows)
    if cursor.rowcount != len(rows):
        raise Raced


async def ensure_tenants(connection: Connection, tenant_ids: Collection[str]) -> None:
    """Each is known from now on, and so is one that was deleted."""
    names = sorted(tenant_ids)
    await connection.execute(ENSURE, (names,))
    await connection.execute(REVIVE, (names,))


async def _write_jobs(
    connection: Connection, writes: Writes, locked: Locked, last_seqs: dict[str, int]
) -> None:
    moved = [JobWrite(job, "", last_seqs[uid]) for uid, job in writes.jobs.items()]
    await _bulk(connection, _UPDATE_JOBS, JOB_MOVE, moved)
    noted = [
        uid
        for uid, seq in locked.last_seqs.items()
        if uid not in writes.jobs and last_seqs[uid] != seq
    ]
    if noted:
        await connection.execute(_UPDATE_SEQS, (noted, [last_seqs[uid] for uid in noted]))


async def _write_sends(connection: Connection, sends: Sequence[OutMessage]) -> None:
    if not sends:
        return
    # Numbers are given out before the commit; without this lock a later number could become
    # visible first, and a stop would overtake its start. It is taken last and held briefly.
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (OUTBOX_LOCK,))
    await _bulk(connection, _INSERT_SENDS, _SEND, sends)


async def _bulk(
    connection: Connection, query: str, shape: Shape[Item], items: Sequence[Item]
) -> None:
    if items:
        await connection.execute(query, shape.arrays(items))
