"""A commit in memory: what PostgreSQL's constraints would refuse, then the writes in its order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from core.audit_log import AuditRow
from core.changes import (
    ClearAlert,
    CloudRequest,
    DeadLetter,
    DropRegionBlock,
    ForgetRegion,
    JobProgress,
    NewRequest,
    PendingReason,
    PutForecast,
    PutRegionBlock,
    PutRegionStatus,
    PutSupplyHistory,
    RaiseAlert,
    ReplayDeadLetter,
    SettleRequest,
    SmallChange,
    VmHeartbeat,
)
from core.commit import KnownRows, Locked, RowKeys
from core.commit_writes import Attempt, Writes, number_events
from core.dead_letter_bounds import beyond_bounds
from core.groups import Owner
from core.job import WAITING, Job, JobStatus, TimelineEntry
from core.messages import Progress
from core.reads import AlertRow, AttemptRow, DeadLetterRow, EventRow
from core.tenants import Holding, Quota, Usage, holdings
from core.text import clean, cleaned_mapping
from core.vm import Vm, heard
from core.waits import ROWS_MAX, WaitKind, WaitNote, folded
from sim.memory.tables import Tables

_REQUEST_KINDS = ("create", "delete", "queue", "unqueue")


def known_of(tables: Tables, rows: RowKeys) -> Locked:
    """What is stored of the rows that a call names, and nothing of the others."""
    jobs = {uid: record for uid in rows.jobs if (record := tables.jobs.get(uid)) is not None}
    known = KnownRows(
        job_versions={uid: record.job.version for uid, record in jobs.items()},
        job_keys={
            key: True
            for key in rows.job_keys
            if Owner(key.tenant_id, key.user_id) in tables.owners.get(key.job_id, ())
        },
        vm_versions={uid: tables.vms[uid].vm.version for uid in rows.vms if uid in tables.vms},
        vm_names={vm.name: True for vm in rows.new_vms if vm.name in tables.vm_names},
        vm_counts={vm.cluster: tables.vm_counts[vm.cluster] for vm in rows.new_vms},
        dead_letters={
            message_id: row.replayed_at is not None
            for message_id in rows.dead_letters
            if (row := tables.dead_letters.get(message_id)) is not None
        },
        tenants={name: tables.tenants[name] for name in rows.tenants if name in tables.tenants},
        held=_held(tables, rows.tenants),
    )
    repeats = {(uid, key) for uid, key in rows.dedup if uid in jobs and key in jobs[uid].dedup_keys}
    return Locked(known, {uid: record.last_seq for uid, record in jobs.items()}, repeats)


def _held(tables: Tables, names: Collection[str]) -> dict[str, Holding]:
    """Of those who have a quota."""
    limited = {n for n in names if n in tables.tenants and tables.tenants[n].quota != Quota()}
    if not limited:
        return {}
    mine = (job for job in tables.live.values() if job.spec.tenant_id in limited)
    return dict(holdings(mine))


# --- what the schema forbids ------------------------------------------------------------


def broken_constraint(tables: Tables, writes: Writes) -> str | None:
    """The first constraint of the schema that these writes would break."""
    return next(_broken(tables, writes), None)


def _broken(tables: Tables, writes: Writes) -> Iterator[str]:
    for job in (*writes.new_jobs.values(), *writes.jobs.values()):
        yield from _broken_by_job(job)
    for vm in (*writes.new_vms.values(), *writes.vms.values()):
        yield from _broken_by_vm(vm)
    lease_ids: set[str] = set()
    for attempt in writes.attempts.values():
        if attempt.lease is None:
            continue
        lease_id = attempt.lease.lease_id
        if lease_id in tables.lease_ids or lease_id in lease_ids:
            yield "uq_attempts_lease_id"
        lease_ids.add(lease_id)
        record = tables.jobs.get(attempt.uid)
        if record is not None and attempt.number in record.attempts:
            yield "pk_attempts"
    for change in writes.small:
        if isinstance(change, NewRequest) and change.request.kind not in _REQUEST_KINDS:
            yield "ck_cloud_requests_kind"
        if isinstance(change, PutRegionBlock) and change.block.count < 1:
            yield "ck_troubles_count"


def _broken_by_job(job: Job) -> Iterator[str]:
    status = job.status
    if status.leased != (job.lease is not None):
        yield "ck_jobs_lease"
    if status.leased and job.attempt < 1:
        yield "ck_jobs_lease_attempt"
    if status.final != (job.ended_at is not None):
        yield "ck_jobs_ended"
    if status.final != (job.deadline_at is None):
        yield "ck_jobs_deadline"
    if status is JobStatus.RUNNING and job.started_at is None:
        yield "ck_jobs_started"
    if job.blocked is not None and status is not JobStatus.QUEUED:
        yield "ck_jobs_blocked"
    if job.retry_at is not None and status is not JobStatus.QUEUED:
        yield "ck_jobs_retry"
    if status is JobStatus.STOPPING and job.stop_reason is None:
        yield "ck_jobs_stopping"
    if job.version < 1 or min(job.attempt, job.failures, job.losses, job.preemptions) < 0:
        yield "ck_jobs_counters"


def _broken_by_vm(vm: Vm) -> Iterator[str]:
    if vm.state.gone != (vm.gone_at is not None):
        yield "ck_vms_gone"
    if vm.state.in_flight and vm.leases:
        yield "ck_vms_leases"
    if vm.version < 1 or vm.gpus < 0 or vm.usd_per_hour < 0:
        yield "ck_vms_counters"


# --- the writes, in the order of db/writes.py -------------------------------------------


def apply(tables: Tables, writes: Writes, locked: Locked) -> None:
    """Everything at once."""
    for uid, job in writes.new_jobs.items():
        tables.add_job(_clean_job(job), writes.hashes[uid])
    # Moves go before inserts: a name is free again once its VM is gone.
    for vm in (*writes.vms.values(), *writes.new_vms.values()):
        _write_vm(tables, vm)
    for heartbeat in writes.heartbeats.values():
        _write_heartbeat(tables, heartbeat)
    for job in writes.jobs.values():
        _write_job(tables, job)
    tables.holds.apply(writes, tables.find)
    _write_events(tables, writes, locked)
    for attempt in writes.attempts.values():
        _write_attempt(tables, attempt)
    for progress in writes.progress.values():
        _write_progress(tables, progress)
    for word in writes.reasons.values():
        _write_reason(tables, word)
    for note in writes.wait_notes:
        _write_wait(tables, note)
    for change in writes.small:
        _write_plain(tables, change)
    tables.tenants.update(writes.tenants)
    for name, charged in writes.charged.items():
        usage = tables.usage.get(name, Usage())
        assert charged.usage.at is not None, "a charge has its moment"
        tables.usage[name] = usage.plus(charged.usage.gpu_s, charged.usage.at, charged.half_life_s)
    for message in writes.sends:
        tables.send(message)
    numbered = enumerate(writes.audited, len(tables.audit_log) + 1)
    tables.audit_log += [AuditRow(seq, entry) for seq, entry in numbered]


def _write_events(tables: Tables, writes: Writes, locked: Locked) -> None:
    for event in number_events(writes, locked)[0]:
        record = tables.jobs[event.uid]
        record.events.append(EventRow(event.seq, _clean_entry(event.entry)))
        record.last_seq = event.seq
        if event.entry.dedup_key is not None:
            record.dedup_keys.add(event.entry.dedup_key)


def _write_reason(tables: Tables, word: PendingReason) -> None:
    record = tables.jobs.get(word.uid)
    if record is not None and record.job.status in WAITING:
        record.why = clean(word.why)
        tables.active.say(word.uid, record.why)


def _write_wait(tables: Tables, note: WaitNote) -> None:
    record = tables.jobs.get(note.uid)
    if record is None:
        return
    note = replace(note, region=clean(note.region), reason=clean(note.reason))
    key = note.key
    if key not in record.waits and len(record.waits) >= ROWS_MAX:
        key = (str(WaitKind.OTHER), "", "")
        note = replace(note, kind=WaitKind.OTHER, region="")
    record.waits[key] = folded(record.waits.get(key), note)


def _clean_job(job: Job) -> Job:
    reason = clean(job.reason)
    return job if reason == job.reason else replace(job, reason=reason)


def _clean_entry(entry: TimelineEntry) -> TimelineEntry:
    """As it comes back from PostgreSQL: its data is JSON."""
    event, reason = clean(entry.event), clean(entry.reason)
    if not entry.data and event == entry.event and reason == entry.reason:
        return entry
    return replace(entry, event=event, reason=reason, data=cleaned_mapping(entry.data))


def _write_job(tables: Tables, job: Job) -> None:
    """A move changes the state, never what was fixed at birth."""
    born = tables.jobs[job.uid].job
    if job.spec is not born.spec:
        job = replace(job, spec=born.spec, submitted_at=born.submitted_at)
    tables.set_job(_clean_job(job))


def _write_vm(tables: Tables, vm: Vm) -> None:
    reason, nonce = clean(vm.reason), clean(vm.boot_nonce)
    if (reason, nonce) != (vm.reason, vm.boot_nonce):
        vm = replace(vm, reason=reason, boot_nonce=nonce)
    record = tables.vms.get(vm.uid)
    # A heartbeat that came after the mover looked must not be lost: the newest stays.
    heartbeat_at = _later(record.vm.last_beat_at if record else None, vm.last_beat_at)
    same_boot = record is not None and record.vm.boot_nonce == vm.boot_nonce
    seq = record.vm.heard_seq if record is not None and same_boot else 0
    same = heartbeat_at == vm.last_beat_at and seq <= vm.heard_seq
    tables.set_vm(vm if same else heard(vm, heartbeat_at, seq))


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return max(one, other)


def _write_heartbeat(tables: Tables, heartbeat: VmHeartbeat) -> None:
    record = tables.vms.get(heartbeat.vm_uid)
    if record is None:
        return
    newest = record.vm.last_beat_at
    if newest is not None and newest >= heartbeat.at:
        if heartbeat.seq > record.vm.heard_seq:
            tables.see_heartbeat(record.vm, newest, heartbeat.seq)
        return
    tables.see_heartbeat(record.vm, heartbeat.at, heartbeat.seq)
    record.readings = heartbeat.readings.over(record.readings)


def _write_attempt(tables: Tables, attempt: Attempt) -> None:
    rows = tables.jobs[attempt.uid].attempts
    outcome, lease = clean(attempt.outcome), attempt.lease
    if lease is not None:
        assert attempt.assigned_at is not None, "an attempt opens when it is assigned"
        vm = tables.vms.get(lease.vm_uid)
        tables.lease_ids[lease.lease_id] = lease.vm_uid
        tables.stays[lease.vm_uid].append((attempt.uid, attempt.number))
        rows[attempt.number] = AttemptRow(
            attempt=attempt.number,
            lease_id=lease.lease_id,
            vm_name=lease.vm_name,
            region=lease.region,
            zone=lease.zone,
            slots=lease.slots,
            assigned_at=attempt.assigned_at,
            started_at=attempt.started_at,
            ended_at=attempt.ended_at,
            outcome=outcome,
            exit_code=attempt.exit_code,
            usd_per_hour=vm.vm.usd_per_hour if vm is not None else 0.0,
        )
    elif (row := rows.get(attempt.number)) is not None:
        code = attempt.exit_code
        rows[attempt.number] = replace(
            row,
            started_at=attempt.started_at or row.started_at,
            ended_at=attempt.ended_at or row.ended_at,
            outcome=outcome or row.outcome,
            exit_code=row.exit_code if code is None else code,
        )


def _write_progress(tables: Tables, said: JobProgress) -> None:
    record = tables.jobs.get(said.uid)
    if record is None or record.job.attempt != said.attempt:
        return
    if record.progress_at is not None and record.progress_at >= said.at:
        return
    record.progress_at = said.at
    if said.progress is not None:
        total = said.progress.total
        record.progress = Progress(
            float(said.progress.step), None if total is None else float(total)
        )
    if said.checkpoint_step is not None:
        row = record.attempts.get(said.attempt)
        if row is not None and record.checkpoint_step != float(said.checkpoint_step):
            record.attempts[said.attempt] = replace(row, checkpoint_at=said.at)
        record.checkpoint_step = float(said.checkpoint_step)


# --- changes of which there are few -----------------------------------------------------


def _write_plain(tables: Tables, change: SmallChange) -> None:
    match change:
        case NewRequest(request):
            _new_request(tables, request)
        case SettleRequest():
            _settle(tables, change)
        case PutRegionBlock(block):
            tables.blocks[block.key] = replace(block, message=clean(block.message))
        case DropRegionBlock(key):
            tables.blocks.drop(key)
        case PutSupplyHistory() | PutRegionStatus() | ForgetRegion() | PutForecast():
            _put_known(tables, change)
        case RaiseAlert():
            _raise_alert(tables, change)
        case ClearAlert(kind, subject, at):
            number = tables.open_alerts.pop((kind, clean(subject)), None)
            if number is not None:
                tables.alerts[number] = replace(tables.alerts[number], cleared_at=at)
                tables.cleared.add((at, number))
        case DeadLetter(message_id):
            if message_id not in tables.dead_letters:
                kept = replace(change, reason=clean(change.reason))
                tables.dead_letters[message_id] = DeadLetterRow(kept, None)
                tables.dead_letters_by_age.add((change.at, message_id))
                _trim_dead_letters(tables)
        case ReplayDeadLetter(message_id, at):
            dead_letter = tables.dead_letters[message_id]
            tables.dead_letters[message_id] = replace(dead_letter, replayed_at=at)
        case _:
            assert_never(change)


def _trim_dead_letters(tables: Tables) -> None:
    for letter in beyond_bounds(row.dead_letter for row in tables.dead_letters.values()):
        tables.dead_letters_by_age.discard((letter.at, letter.message_id))
        del tables.dead_letters[letter.message_id]


def _put_known(
    tables: Tables, change: PutSupplyHistory | PutRegionStatus | ForgetRegion | PutForecast
) -> None:
    if isinstance(change, PutSupplyHistory):
        tables.supply[change.supply.place] = change.supply
    elif isinstance(change, PutForecast):
        tables.forecasts[change.forecast.cluster] = change.forecast
    elif isinstance(change, ForgetRegion):
        tables.regions.pop((change.cluster, change.region), None)
    else:
        status = change.status
        tables.regions[status.cluster, status.region] = replace(status, why=clean(status.why))


def _new_request(tables: Tables, request: CloudRequest) -> None:
    if request.request_id in tables.requests:
        return
    kept = replace(request, reason=clean(request.reason), outcome=clean(request.outcome))
    tables.requests[kept.request_id] = kept
    if kept.settled_at is None:
        tables.open_requests[kept.request_id] = kept
    else:
        tables.settled.add((kept.settled_at, kept.request_id))


def _settle(tables: Tables, change: SettleRequest) -> None:
    request = tables.open_requests.pop(change.request_id, None)
    if request is None:
        return
    settled = replace(request, settled_at=change.at, outcome=clean(change.outcome))
    tables.requests[change.request_id] = settled
    tables.settled.add((change.at, change.request_id))


def _raise_alert(tables: Tables, change: RaiseAlert) -> None:
    key = (change.kind, clean(change.subject))
    message = clean(change.message)
    number = tables.open_alerts.get(key)
    if number is not None:
        known = tables.alerts[number]
        tables.alerts[number] = replace(
            known,
            severity=change.severity,
            message=message,
            last_seen_at=change.at,
            count=known.count + 1,
        )
        return
    tables.alert_ids += 1
    tables.open_alerts[key] = tables.alert_ids
    tables.alerts[tables.alert_ids] = AlertRow(
        tables.alert_ids, *key, change.severity, message, change.at, change.at, None, 1
    )
