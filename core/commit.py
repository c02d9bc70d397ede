"""The commit kernel: which rows a commit names, and which of its atomic batches may take effect.

Pure, and shared by every store, so that their guards cannot drift apart. A store reads what
`wanted` names under locks that last until the commit, asks `judge`, and writes what
core/commit_writes.py folds out of the accepted ones. A commit may move the same job twice, or make
a VM and move it: each atomic batch is judged as if the ones before it were already written.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from core.audit_log import AuditEntry
from core.changes import (
    AtomicBatch,
    Change,
    Charge,
    ClearAlert,
    DeadLetter,
    DropRegionBlock,
    ForgetRegion,
    JobMove,
    JobNote,
    JobProgress,
    NewJob,
    NewRequest,
    NewSpec,
    NewVm,
    PendingReason,
    PutForecast,
    PutRegionBlock,
    PutRegionStatus,
    PutSupplyHistory,
    PutTenant,
    RaiseAlert,
    ReplayDeadLetter,
    Reserve,
    Send,
    SettleRequest,
    VmHeartbeat,
    VmMove,
)
from core.errors import TermPassed
from core.groups import GroupKey
from core.job import Job, JobKey, TimelineEntry, group_of
from core.reasons import CommitRefusal
from core.reasons import RefusalKind as R
from core.tenants import HOLDS, Holding, ResourceTotals, Tenant, held_by, shortage
from core.text import is_storable
from core.vm import Vm
from core.waits import WaitNote

Moves = (JobMove, VmMove)
Free = (
    *(WaitNote, Send, Charge, NewRequest, SettleRequest, PutRegionBlock, DropRegionBlock),
    *(PutSupplyHistory, PutRegionStatus, ForgetRegion, PutForecast, RaiseAlert, ClearAlert),
    *(DeadLetter, AuditEntry),
)
"""Changes without a guard that name no row to be read beforehand."""


@dataclass(slots=True)
class KnownRows:
    """What is stored, as far as the guards ask, read under locks that last until the commit."""

    job_versions: MutableMapping[str, int] = field(default_factory=dict)
    job_keys: MutableMapping[JobKey, bool] = field(default_factory=dict)
    """Identity → somebody has submitted it."""
    vm_versions: MutableMapping[str, int] = field(default_factory=dict)
    vm_names: MutableMapping[str, bool] = field(default_factory=dict)
    """Name → an active VM has it."""
    vm_counts: MutableMapping[str, int] = field(default_factory=dict)
    """Cluster → VMs that are not gone."""
    dead_letters: MutableMapping[str, bool] = field(default_factory=dict)
    """Message id → its dead letter was sent again already."""
    tenants: MutableMapping[str, Tenant] = field(default_factory=dict)
    held: MutableMapping[str, Holding] = field(default_factory=dict)
    """Tenant with a quota → what its jobs hold."""

    def branch(self) -> KnownRows:
        """A layer over this one, for an atomic batch that may yet be refused."""
        return KnownRows(
            ChainMap({}, self.job_versions),
            ChainMap({}, self.job_keys),
            ChainMap({}, self.vm_versions),
            ChainMap({}, self.vm_names),
            ChainMap({}, self.vm_counts),
            ChainMap({}, self.dead_letters),
            ChainMap({}, self.tenants),
            ChainMap({}, self.held),
        )

    def merge(self, branch: KnownRows) -> None:
        """Takes over what an atomic batch that was not refused has changed."""
        for name in self.__slots__:
            layer = getattr(branch, name)
            assert isinstance(layer, ChainMap)
            getattr(self, name).update(layer.maps[0])


def judge(batches: Sequence[AtomicBatch], known: KnownRows) -> dict[int, CommitRefusal]:
    """The refused atomic batches and why. `known` ends up as it will be after the others."""
    refusals: dict[int, CommitRefusal] = {}
    astray: set[tuple[str, int]] = set()
    """(row, version) that refused atomic batches would have made. A later atomic batch that builds
    on one of them falls too: by now somebody else's step may have made that very number, and it
    stands for something else."""
    for index, batch in enumerate(batches):
        # A guard that refuses has changed nothing, so an atomic batch of one change that has a
        # guard needs no layer of its own: that is most of what heartbeats and submissions bring.
        branch = known if _guarded_once(batch) else known.branch()
        for change in batch:
            refusal = _built_on_sand(change, astray) or _guard(change, branch)
            if refusal is not None:
                refusals[index] = refusal
                astray.update(_makes(move) for move in batch if isinstance(move, Moves))
                break
        else:
            if branch is not known:
                known.merge(branch)
    return refusals


def _guarded_once(batch: AtomicBatch) -> bool:
    return len(batch) == 1 or sum(not isinstance(change, Free) for change in batch) <= 1


def _makes(move: JobMove | VmMove) -> tuple[str, int]:
    return move.after.uid, move.after.version


def _built_on_sand(change: Change, astray: Collection[tuple[str, int]]) -> CommitRefusal | None:
    if not isinstance(change, Moves):
        return None
    if (change.before.uid, change.before.version) not in astray:
        return None
    what = change.before.spec.job_id if isinstance(change, JobMove) else change.before.name
    return CommitRefusal(R.MOVED, f"an earlier step of {what} was refused")


def _guard(change: Change, known: KnownRows) -> CommitRefusal | None:
    if isinstance(change, Free):
        return None
    match change:
        case NewJob():
            return _guard_new_job(change, known)
        case JobMove(before, after):
            return _guard_job_move(before, after, known)
        case JobNote(uid):
            if uid in known.job_versions:
                return None
            return CommitRefusal(R.MISSING, f"there is no job {uid}")
        case NewVm(vm, vm_max):
            return _guard_new_vm(vm, vm_max, known)
        case VmMove(before, after):
            return _guard_vm_move(before, after, known)
        case ReplayDeadLetter(message_id):
            return _guard_replay(message_id, known)
        case PutTenant() | Reserve():
            return _guard_tenant(change, known)
        case JobProgress() | PendingReason() | VmHeartbeat():
            return None
        case NewSpec(_, spec):
            return None if is_storable(spec) else _UNSTORABLE
        case _:
            assert_never(change)


_UNSTORABLE = CommitRefusal(R.UNSTORABLE, "unstorable: the spec contains NUL or half a character")


def _guard_new_job(new: NewJob, known: KnownRows) -> CommitRefusal | None:
    job = new.job
    if known.job_keys.get(job.key) or job.uid in known.job_versions:
        return CommitRefusal(R.EXISTS, "exists")
    # What it shares with others was checked with its NewSpec, once for all of them.
    if new.shared is None and not is_storable(job.spec):
        return _UNSTORABLE
    known.job_keys[job.key] = True
    known.job_versions[job.uid] = job.version
    return None


def _guard_job_move(before: Job, after: Job, known: KnownRows) -> CommitRefusal | None:
    refusal = _guard_version("job", before.spec.job_id, before, after, known.job_versions)
    leaves = before.status in HOLDS and after.status not in HOLDS
    if refusal is None and leaves and before.spec.tenant_id in known.tenants:
        _add_to_holding(
            before.spec.tenant_id, before.cluster, ResourceTotals.of(before.spec), -1, known
        )
    return refusal


def _guard_vm_move(before: Vm, after: Vm, known: KnownRows) -> CommitRefusal | None:
    refusal = _guard_version("VM", before.name, before, after, known.vm_versions)
    if refusal is None and before.counted and not after.counted:
        known.vm_names[before.name] = False
        known.vm_counts[before.cluster] = known.vm_counts.get(before.cluster, 0) - 1
    return refusal


def _guard_version(
    noun: str, name: str, before: Job | Vm, after: Job | Vm, versions: MutableMapping[str, int]
) -> CommitRefusal | None:
    stored = versions.get(before.uid)
    if stored is None:
        return CommitRefusal(R.MISSING, f"there is no {noun} {name} ({before.uid})")
    if stored != before.version:
        words = f"{noun} {name} is at version {stored}, not {before.version}"
        return CommitRefusal(R.MOVED, words)
    versions[before.uid] = after.version
    return None


def _guard_replay(message_id: str, known: KnownRows) -> CommitRefusal | None:
    replayed = known.dead_letters.get(message_id)
    if replayed is None:
        return CommitRefusal(R.MISSING, f"there is no dead letter {message_id}")
    if replayed:
        return CommitRefusal(R.MOVED, f"dead letter {message_id} was sent again already")
    known.dead_letters[message_id] = True
    return None


def _guard_tenant(change: PutTenant | Reserve, known: KnownRows) -> CommitRefusal | None:
    if isinstance(change, Reserve):
        return _guard_reserve(change, known)
    tenant = change.tenant
    stored = known.tenants.get(tenant.tenant_id)
    version = stored.version if stored is not None else 0
    if version != tenant.version - 1:
        words = f"tenant {tenant.tenant_id} is at version {version}, not {tenant.version - 1}"
        return CommitRefusal(R.MOVED, words)
    known.tenants[tenant.tenant_id] = tenant
    return None


def _guard_reserve(reserve: Reserve, known: KnownRows) -> CommitRefusal | None:
    tenant = known.tenants.get(reserve.tenant_id)
    if tenant is not None and tenant.quota.limits:
        used = held_by(known.held.get(reserve.tenant_id, {}), reserve.machines)
        asked = reserve.asks.amounts(reserve.machines.get(reserve.cluster))
        short = shortage(tenant, asked, used)
        if short is not None:
            return CommitRefusal(R.QUOTA, short.words())
    _add_to_holding(reserve.tenant_id, reserve.cluster, reserve.asks, 1, known)
    return None


def _add_to_holding(
    tenant_id: str, cluster: str, asks: ResourceTotals, sign: int, known: KnownRows
) -> None:
    """What a step of this very commit adds to a tenant's holding, or takes from it."""
    holding = known.held.get(tenant_id, {})
    known.held[tenant_id] = {
        **holding,
        cluster: holding.get(cluster, ResourceTotals()).plus(asks, sign),
    }


def _guard_new_vm(vm: Vm, vm_max: int, known: KnownRows) -> CommitRefusal | None:
    if known.vm_names.get(vm.name):
        return CommitRefusal(R.EXISTS, f"an active VM has the name {vm.name}")
    if vm.uid in known.vm_versions:
        return CommitRefusal(R.EXISTS, f"there is a VM with the uid {vm.uid}")
    count = known.vm_counts.get(vm.cluster, 0)
    if count + 1 > vm_max:
        words = f"limit: cluster {vm.cluster} counts {count} VMs, vm_max is {vm_max}"
        return CommitRefusal(R.LIMIT, words)
    known.vm_names[vm.name] = True
    known.vm_versions[vm.uid] = vm.version
    known.vm_counts[vm.cluster] = count + 1
    return None


# --- the rows that a commit names ---------------------------------------------------------


@dataclass(slots=True)
class RowKeys:
    """Which rows a call is about."""

    jobs: set[str] = field(default_factory=set)
    job_keys: set[JobKey] = field(default_factory=set)
    vms: set[str] = field(default_factory=set)
    new_vms: list[Vm] = field(default_factory=list)
    dedup: set[tuple[str, str]] = field(default_factory=set)
    dead_letters: set[str] = field(default_factory=set)
    groups: set[GroupKey] = field(default_factory=set)
    """Groups whose end is waited for, or may be near: one commit at a time decides it."""
    tenants: set[str] = field(default_factory=set)


def wanted(batches: Sequence[AtomicBatch]) -> RowKeys:
    """The rows that these atomic batches name."""
    found = RowKeys()
    for batch in batches:
        for change in batch:
            _want(change, found)
    return found


def _want(change: Change, found: RowKeys) -> None:
    if isinstance(change, (*Free, NewSpec)):
        return
    match change:
        case NewJob(job, entry):
            found.jobs.add(job.uid)
            found.job_keys.add(job.key)
            found.jobs.update(wait.uid for wait in change.waits if wait.uid is not None)
            found.groups.update(wait.group for wait in change.waits if wait.group is not None)
            _want_entries(job.uid, (entry,), found)
        case JobMove(before, after, entries):
            found.jobs.add(before.uid)
            if after.status.final and (group := group_of(before.spec)) is not None:
                found.groups.add(group)
            _want_entries(before.uid, entries, found)
        case JobNote(uid, entry):
            found.jobs.add(uid)
            _want_entries(uid, (entry,), found)
        case JobProgress(uid) | PendingReason(uid):
            found.jobs.add(uid)
        case NewVm(vm):
            found.vms.add(vm.uid)
            found.new_vms.append(vm)
        case VmMove(before):
            found.vms.add(before.uid)
        case VmHeartbeat(vm_uid):
            found.vms.add(vm_uid)
        case ReplayDeadLetter(message_id):
            found.dead_letters.add(message_id)
        case PutTenant(Tenant(tenant_id)) | Reserve(tenant_id):
            found.tenants.add(tenant_id)
        case _:
            assert_never(change)


def _want_entries(uid: str, entries: Iterable[TimelineEntry], found: RowKeys) -> None:
    found.dedup.update((uid, entry.dedup_key) for entry in entries if entry.dedup_key is not None)


@dataclass(slots=True)
class Locked:
    """What the guards need, and what the writes need besides."""

    known: KnownRows
    last_seqs: dict[str, int]
    repeats: set[tuple[str, str]]
    """(uid, dedup key) that are on a timeline already."""


def check_term(leading: int | None, term: int | None) -> None:
    """TermPassed unless the term that writes is the one that leads; None leads nobody."""
    if leading != term:
        raise TermPassed(f"term {term} has passed: the store is at {leading or 'no term'}")
