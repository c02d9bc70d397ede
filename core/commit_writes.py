"""What a commit writes: its accepted atomic batches folded to one entry per row. Pure, and shared
by every store. A commit may move the same job twice: only the last state of each row goes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from core.audit_log import AuditEntry
from core.changes import (
    AtomicBatch,
    Change,
    Charge,
    DropRegionBlock,
    JobMove,
    JobNote,
    JobProgress,
    NewJob,
    NewRequest,
    NewSpec,
    NewVm,
    PendingReason,
    PutRegionBlock,
    PutTenant,
    Reserve,
    Send,
    SettleRequest,
    SmallChange,
    VmHeartbeat,
    VmMove,
)
from core.commit import Locked
from core.groups import Wait
from core.job import Job, JobStatus, Lease, TimelineEntry
from core.job_fields import JobSpec
from core.members import SharedMember
from core.messages import OutMessage
from core.tenants import Tenant, Usage
from core.vm import Vm
from core.waits import WaitNote
from core.wakes import AT_ONCE, Wake, new_jobs_in

WAKES = (
    *(NewJob, JobMove, NewVm, VmMove, Send, NewRequest),
    *(SettleRequest, PutRegionBlock, DropRegionBlock, PutTenant),
)
"""What the loop should look at. Heartbeats, whys and notes are not worth a cycle."""
_UNDER_WAY = frozenset({JobStatus.STARTING, JobStatus.RUNNING})


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to open, or (without a lease) what has become of an open one."""

    uid: str
    number: int
    lease: Lease | None = None
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Charged:
    """What a tenant is charged, as of one moment."""

    usage: Usage
    half_life_s: float


@dataclass(slots=True)
class Writes:
    """The accepted changes, one entry per row."""

    specs: dict[str, JobSpec] = field(default_factory=dict)
    new_jobs: dict[str, Job] = field(default_factory=dict)
    shared: dict[str, SharedMember] = field(default_factory=dict)
    """New jobs whose specs are stored with others'."""
    hashes: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    events: list[tuple[str, TimelineEntry]] = field(default_factory=list)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    progress: dict[tuple[str, int], JobProgress] = field(default_factory=dict)
    reasons: dict[str, PendingReason] = field(default_factory=dict)
    wait_notes: list[WaitNote] = field(default_factory=list)
    waits: list[tuple[str, Wait]] = field(default_factory=list)
    """(hold, what it waits for)."""
    ended: dict[str, Job] = field(default_factory=dict)
    """Jobs that wait for them must hear."""
    unblocked: set[str] = field(default_factory=set)
    """Holds that a job has left."""
    new_vms: dict[str, Vm] = field(default_factory=dict)
    vms: dict[str, Vm] = field(default_factory=dict)
    heartbeats: dict[str, VmHeartbeat] = field(default_factory=dict)
    small: list[SmallChange] = field(default_factory=list)
    sends: list[OutMessage] = field(default_factory=list)
    audited: list[AuditEntry] = field(default_factory=list)
    tenants: dict[str, Tenant] = field(default_factory=dict)
    charged: dict[str, Charged] = field(default_factory=dict)
    wake: Wake | None = None
    """What the loop is told; None: nothing that is worth a cycle."""


def fold(batches: Sequence[AtomicBatch]) -> Writes:
    """The accepted atomic batches as one set of writes."""
    writes = Writes()
    for batch in batches:
        for change in batch:
            _fold_one(change, writes)
            if isinstance(change, NewJob):
                writes.wake = new_jobs_in((change.job.cluster,)).joined(writes.wake)
            elif isinstance(change, WAKES) and not _goes_on(change):
                writes.wake = AT_ONCE
    return writes


def _goes_on(change: Change) -> bool:
    """A job that has a VM is one step further on it: that frees nothing."""
    return isinstance(change, JobMove) and change.after.status in _UNDER_WAY


def _fold_one(change: Change, writes: Writes) -> None:
    match change:
        case NewJob(job, entry, content_hash):
            if change.shared is not None:
                writes.shared[job.uid] = change.shared
            writes.new_jobs[job.uid] = job
            writes.hashes[job.uid] = content_hash
            writes.events.append((job.uid, entry))
            if job.blocked is not None:
                writes.waits += [(job.blocked, wait) for wait in change.waits]
        case JobMove():
            _fold_move(change, writes)
        case JobNote() | JobProgress() | PendingReason() | WaitNote():
            _fold_words(change, writes)
        case NewVm() | VmMove() | VmHeartbeat():
            _fold_vm(change, writes)
        case Send(message):
            writes.sends.append(message)
        case AuditEntry():
            writes.audited.append(change)
        case PutTenant() | Charge() | Reserve():
            _fold_tenant(change, writes)
        case NewSpec(spec_id, spec):
            writes.specs[spec_id] = spec
        case _:
            writes.small.append(change)


def _fold_words(change: JobNote | JobProgress | PendingReason | WaitNote, writes: Writes) -> None:
    """What is known of a job beside its state."""
    match change:
        case JobNote(uid, entry):
            writes.events.append((uid, entry))
        case JobProgress(uid, attempt):
            writes.progress[uid, attempt] = change.joined(writes.progress.get((uid, attempt)))
        case PendingReason(uid):
            writes.reasons[uid] = change
        case WaitNote():
            writes.wait_notes.append(change)


def _fold_vm(change: NewVm | VmMove | VmHeartbeat, writes: Writes) -> None:
    match change:
        case NewVm(vm):
            writes.new_vms[vm.uid] = vm
        case VmMove(_, vm):
            (writes.new_vms if vm.uid in writes.new_vms else writes.vms)[vm.uid] = vm
        case VmHeartbeat(vm_uid):
            newest = writes.heartbeats.get(vm_uid, change)
            writes.heartbeats[vm_uid] = max(newest, change, key=lambda heartbeat: heartbeat.at)


def _fold_tenant(change: PutTenant | Charge | Reserve, writes: Writes) -> None:
    match change:
        case PutTenant(tenant):
            writes.tenants[tenant.tenant_id] = tenant
        case Charge(tenant_id, gpu_s, at, half_life_s):
            known = writes.charged.get(tenant_id)
            usage = known.usage if known is not None else Usage()
            writes.charged[tenant_id] = Charged(usage.plus(gpu_s, at, half_life_s), half_life_s)
        case Reserve():
            pass  # what is held is what the jobs' rows say


def _fold_move(move: JobMove, writes: Writes) -> None:
    before, after = move.before, move.after
    (writes.new_jobs if after.uid in writes.new_jobs else writes.jobs)[after.uid] = after
    writes.events.extend((after.uid, entry) for entry in move.entries)
    if after.status.final:
        writes.ended[after.uid] = after
    if before.blocked is not None and after.blocked is None:
        writes.unblocked.add(before.blocked)
    old, new = before.lease, after.lease
    if old is not None and (new is None or new.lease_id != old.lease_id):
        outcome = move.entries[-1].event if move.entries else str(after.status)
        _patch(writes, before, ended_at=after.status_since, outcome=outcome, code=after.exit_code)
    if new is not None and after.attempt > before.attempt:
        opened = Attempt(after.uid, after.attempt, new, after.status_since, after.started_at)
        writes.attempts[after.uid, after.attempt] = opened
    elif new is not None and after.started_at != before.started_at:
        _patch(writes, after, started_at=after.started_at)


def _patch(
    writes: Writes,
    job: Job,
    *,
    started_at: datetime | None = None,
    ended_at: datetime | None = None,
    outcome: str = "",
    code: int | None = None,
) -> None:
    key = (job.uid, job.attempt)
    known = writes.attempts.get(key) or Attempt(*key)
    writes.attempts[key] = replace(
        known,
        started_at=started_at or known.started_at,
        ended_at=ended_at or known.ended_at,
        outcome=outcome or known.outcome,
        exit_code=code if code is not None else known.exit_code,
    )


@dataclass(frozen=True, slots=True)
class EventWrite:
    """A row of history with its number."""

    uid: str
    seq: int
    entry: TimelineEntry


def number_events(writes: Writes, locked: Locked) -> tuple[list[EventWrite], dict[str, int]]:
    """Rows of history with their numbers, without the repeats, and each job's last number."""
    seqs = dict(locked.last_seqs)
    seen = set(locked.repeats)
    events = []
    for uid, entry in writes.events:
        if entry.dedup_key is not None:
            if (uid, entry.dedup_key) in seen:
                continue
            seen.add((uid, entry.dedup_key))
        seqs[uid] = seqs.get(uid, 0) + 1
        events.append(EventWrite(uid, seqs[uid], entry))
    return events, seqs
