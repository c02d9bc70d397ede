"""Decides which units may take effect, and folds them into what is to be written. Pure.

A call may move the same job twice, or make a VM and move it: each unit is judged as if the
ones before it were already written, and only the last state of each row goes out.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from core.changes import (
    Change,
    Charge,
    ClearAlert,
    DeadLetter,
    DropTrouble,
    ForgetRegion,
    JobMove,
    JobNote,
    JobProgress,
    JobWhy,
    NewJob,
    NewRequest,
    NewVm,
    PutExperience,
    PutForecast,
    PutRegionStatus,
    PutTenant,
    PutTrouble,
    RaiseAlert,
    ReplayLetter,
    Reserve,
    Send,
    SettleRequest,
    Unit,
    VmBeat,
    VmMove,
)
from core.groups import Wait
from core.job import Job, Lease, TimelineEntry
from core.messages import OutMessage
from core.tenants import HOLDS, Holding, Tally, Tenant, Usage, held_by, shortage
from core.vm import Vm
from core.waits import WaitNote
from db.rows import storable

Plain = (
    NewRequest
    | SettleRequest
    | PutTrouble
    | DropTrouble
    | PutExperience
    | PutRegionStatus
    | ForgetRegion
    | PutForecast
    | RaiseAlert
    | ClearAlert
    | DeadLetter
    | ReplayLetter
)
"""Changes of which there are few: written one by one, in their order."""

Moves = (JobMove, VmMove)

WAKES = (
    *(NewJob, JobMove, NewVm, VmMove, Send, NewRequest),
    *(SettleRequest, PutTrouble, DropTrouble, PutTenant),
)
"""What the loop should look at at once. Beats, whys and notes are not worth a turn."""


@dataclass(slots=True)
class Known:
    """What is stored, as far as the guards ask, read under locks that last until the commit."""

    job_versions: MutableMapping[str, int] = field(default_factory=dict)
    job_keys: MutableMapping[tuple[str, str], bool] = field(default_factory=dict)
    """(user, job id) → somebody has submitted it."""
    vm_versions: MutableMapping[str, int] = field(default_factory=dict)
    vm_names: MutableMapping[str, bool] = field(default_factory=dict)
    """Name → a living VM has it."""
    vm_counts: MutableMapping[str, int] = field(default_factory=dict)
    """Cluster → VMs that are not gone."""
    letters: MutableMapping[str, bool] = field(default_factory=dict)
    """Message id → its dead letter was sent again already."""
    tenants: MutableMapping[str, Tenant] = field(default_factory=dict)
    held: MutableMapping[str, Holding] = field(default_factory=dict)
    """Tenant with a quota → what its jobs hold."""

    def branch(self) -> Known:
        """A layer over this one, for a unit that may yet be refused."""
        return Known(
            ChainMap({}, self.job_versions),
            ChainMap({}, self.job_keys),
            ChainMap({}, self.vm_versions),
            ChainMap({}, self.vm_names),
            ChainMap({}, self.vm_counts),
            ChainMap({}, self.letters),
            ChainMap({}, self.tenants),
            ChainMap({}, self.held),
        )

    def merge(self, branch: Known) -> None:
        """Takes over what a unit that was not refused has changed."""
        for name in self.__slots__:
            layer = getattr(branch, name)
            assert isinstance(layer, ChainMap)
            getattr(self, name).update(layer.maps[0])


def judge(units: Sequence[Unit], known: Known) -> dict[int, str]:
    """The refused units and why. `known` ends up as it will be after the others."""
    refusals: dict[int, str] = {}
    astray: set[tuple[str, int]] = set()
    """(row, version) that refused units would have made. A later unit that builds on one of them
    falls too: by now somebody else's step may have made that very number, and it stands for
    something else."""
    for index, unit in enumerate(units):
        # A guard that refuses has changed nothing, so a unit of one change needs no layer of its
        # own: that is most of what heartbeats bring.
        branch = known if len(unit) == 1 else known.branch()
        for change in unit:
            refusal = _built_on_sand(change, astray) or _guard(change, branch)
            if refusal is not None:
                refusals[index] = refusal
                astray.update(_makes(move) for move in unit if isinstance(move, Moves))
                break
        else:
            if branch is not known:
                known.merge(branch)
    return refusals


def _makes(move: JobMove | VmMove) -> tuple[str, int]:
    return move.after.uid, move.after.version


def _built_on_sand(change: Change, astray: Collection[tuple[str, int]]) -> str | None:
    if not isinstance(change, Moves):
        return None
    if (change.before.uid, change.before.version) not in astray:
        return None
    what = change.before.spec.job_id if isinstance(change, JobMove) else change.before.name
    return f"an earlier step of {what} was refused"


def _guard(change: Change, known: Known) -> str | None:
    match change:
        case NewJob():
            return _guard_new_job(change.job, known)
        case JobMove(before, after):
            return _guard_job_move(before, after, known)
        case JobNote(uid):
            return None if uid in known.job_versions else f"there is no job {uid}"
        case NewVm(vm, vm_max):
            return _guard_new_vm(vm, vm_max, known)
        case VmMove(before, after):
            return _guard_vm_move(before, after, known)
        case ReplayLetter(message_id):
            return _guard_replay(message_id, known)
        case PutTenant() | Reserve():
            return _guard_tenant(change, known)
        case JobProgress() | JobWhy() | WaitNote() | VmBeat() | Send() | Charge():
            return None
        case NewRequest() | SettleRequest() | PutTrouble() | DropTrouble() | PutRegionStatus():
            return None
        case RaiseAlert() | ClearAlert() | DeadLetter() | PutExperience() | PutForecast():
            return None
        case ForgetRegion():
            return None
        case _:
            assert_never(change)


def _guard_new_job(job: Job, known: Known) -> str | None:
    if known.job_keys.get(job.key) or job.uid in known.job_versions:
        return "exists"
    if not storable(job.spec):
        return "unstorable: the spec contains NUL or half a character"
    known.job_keys[job.key] = True
    known.job_versions[job.uid] = job.version
    return None


def _guard_job_move(before: Job, after: Job, known: Known) -> str | None:
    refusal = _guard_version("job", before.spec.job_id, before, after, known.job_versions)
    leaves = before.status in HOLDS and after.status not in HOLDS
    if refusal is None and leaves and before.spec.tenant_id in known.tenants:
        _hold(before.spec.tenant_id, before.cluster, Tally.of(before.spec), -1, known)
    return refusal


def _guard_vm_move(before: Vm, after: Vm, known: Known) -> str | None:
    refusal = _guard_version("VM", before.name, before, after, known.vm_versions)
    if refusal is None and before.counted and not after.counted:
        known.vm_names[before.name] = False
        known.vm_counts[before.cluster] = known.vm_counts.get(before.cluster, 0) - 1
    return refusal


def _guard_version(
    noun: str, name: str, before: Job | Vm, after: Job | Vm, versions: MutableMapping[str, int]
) -> str | None:
    stored = versions.get(before.uid)
    if stored is None:
        return f"there is no {noun} {name} ({before.uid})"
    if stored != before.version:
        return f"{noun} {name} is at version {stored}, not {before.version}"
    versions[before.uid] = after.version
    return None


def _guard_replay(message_id: str, known: Known) -> str | None:
    replayed = known.letters.get(message_id)
    if replayed is None:
        return f"there is no dead letter {message_id}"
    if replayed:
        return f"dead letter {message_id} was sent again already"
    known.letters[message_id] = True
    return None


def _guard_tenant(change: PutTenant | Reserve, known: Known) -> str | None:
    if isinstance(change, Reserve):
        return _guard_reserve(change, known)
    tenant = change.tenant
    stored = known.tenants.get(tenant.tenant_id)
    version = stored.version if stored is not None else 0
    if version != tenant.version - 1:
        return f"tenant {tenant.tenant_id} is at version {version}, not {tenant.version - 1}"
    known.tenants[tenant.tenant_id] = tenant
    return None


def _guard_reserve(reserve: Reserve, known: Known) -> str | None:
    tenant = known.tenants.get(reserve.tenant_id)
    if tenant is not None and tenant.quota.limits:
        used = held_by(known.held.get(reserve.tenant_id, {}), reserve.machines)
        asked = reserve.asks.amounts(reserve.machines.get(reserve.cluster))
        short = shortage(tenant, asked, used)
        if short is not None:
            return short.words()
    _hold(reserve.tenant_id, reserve.cluster, reserve.asks, 1, known)
    return None


def _hold(tenant_id: str, cluster: str, asks: Tally, sign: int, known: Known) -> None:
    """What a step of this very commit adds to a tenant's holding, or takes from it."""
    holding = known.held.get(tenant_id, {})
    known.held[tenant_id] = {**holding, cluster: holding.get(cluster, Tally()).plus(asks, sign)}


def _guard_new_vm(vm: Vm, vm_max: int, known: Known) -> str | None:
    if known.vm_names.get(vm.name):
        return f"a living VM has the name {vm.name}"
    if vm.uid in known.vm_versions:
        return f"there is a VM with the uid {vm.uid}"
    count = known.vm_counts.get(vm.cluster, 0)
    if count + 1 > vm_max:
        return f"limit: cluster {vm.cluster} counts {count} VMs, vm_max is {vm_max}"
    known.vm_names[vm.name] = True
    known.vm_versions[vm.uid] = vm.version
    known.vm_counts[vm.cluster] = count + 1
    return None


# --- what is to be written --------------------------------------------------------------


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

    new_jobs: dict[str, Job] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    events: list[tuple[str, TimelineEntry]] = field(default_factory=list)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    progress: dict[tuple[str, int], JobProgress] = field(default_factory=dict)
    whys: dict[str, JobWhy] = field(default_factory=dict)
    wait_notes: list[WaitNote] = field(default_factory=list)
    waits: list[tuple[str, Wait]] = field(default_factory=list)
    """(hold, what it waits for)."""
    ended: dict[str, Job] = field(default_factory=dict)
    """Whoever waits for them must hear."""
    unblocked: set[str] = field(default_factory=set)
    """Holds that a job has left."""
    new_vms: dict[str, Vm] = field(default_factory=dict)
    vms: dict[str, Vm] = field(default_factory=dict)
    beats: dict[str, VmBeat] = field(default_factory=dict)
    plain: list[Plain] = field(default_factory=list)
    sends: list[OutMessage] = field(default_factory=list)
    tenants: dict[str, Tenant] = field(default_factory=dict)
    charged: dict[str, Charged] = field(default_factory=dict)
    wakes: bool = False


def fold(units: Sequence[Unit]) -> Writes:
    """The accepted units as one set of writes."""
    writes = Writes()
    for unit in units:
        for change in unit:
            _fold_one(change, writes)
            writes.wakes = writes.wakes or isinstance(change, WAKES)
    return writes


def _fold_one(change: Change, writes: Writes) -> None:
    match change:
        case NewJob(job, entry, content_hash):
            writes.new_jobs[job.uid] = job
            writes.hashes[job.uid] = content_hash
            writes.events.append((job.uid, entry))
            if job.blocked is not None:
                writes.waits += [(job.blocked, wait) for wait in change.waits]
        case JobMove():
            _fold_move(change, writes)
        case JobNote() | JobProgress() | JobWhy() | WaitNote():
            _fold_words(change, writes)
        case NewVm() | VmMove() | VmBeat():
            _fold_vm(change, writes)
        case Send(message):
            writes.sends.append(message)
        case NewRequest() | SettleRequest() | PutTrouble() | DropTrouble() | PutRegionStatus():
            writes.plain.append(change)
        case (
            RaiseAlert()
            | ClearAlert()
            | DeadLetter()
            | ReplayLetter()
            | PutExperience()
            | PutForecast()
            | ForgetRegion()
        ):
            writes.plain.append(change)
        case PutTenant() | Charge() | Reserve():
            _fold_tenant(change, writes)


def _fold_words(change: JobNote | JobProgress | JobWhy | WaitNote, writes: Writes) -> None:
    """What is known of a job beside its state."""
    match change:
        case JobNote(uid, entry):
            writes.events.append((uid, entry))
        case JobProgress():
            _fold_progress(change, writes)
        case JobWhy(uid):
            writes.whys[uid] = change
        case WaitNote():
            writes.wait_notes.append(change)


def _fold_vm(change: NewVm | VmMove | VmBeat, writes: Writes) -> None:
    match change:
        case NewVm(vm):
            writes.new_vms[vm.uid] = vm
        case VmMove(_, vm):
            (writes.new_vms if vm.uid in writes.new_vms else writes.vms)[vm.uid] = vm
        case VmBeat(vm_uid):
            newest = writes.beats.get(vm_uid, change)
            writes.beats[vm_uid] = max(newest, change, key=lambda beat: beat.at)


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


def _fold_progress(change: JobProgress, writes: Writes) -> None:
    key = (change.uid, change.attempt)
    known = writes.progress.get(key)
    if known is None:
        writes.progress[key] = change
        return
    older, newer = (known, change) if known.at <= change.at else (change, known)
    step = newer.checkpoint_step
    writes.progress[key] = replace(
        newer,
        progress=newer.progress or older.progress,
        checkpoint_step=older.checkpoint_step if step is None else step,
    )
