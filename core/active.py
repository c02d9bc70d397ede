"""What lives: jobs that hold or await a VM, and VMs, with indexes that are kept from snapshot to
snapshot. A reader pays for what has moved since, never for what is there.

A store keeps one and puts into it what has changed; a cycle reads it and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import TypeVar, overload

from core.job import LEASED, Job, JobStatus
from core.tenants import HOLDS, Holding, ResourceTotals
from core.vm import Vm, heard

STALE_MAX = 1000
"""Entries of a heap that speak of what is over are dropped when there are as many as others, and
this many more."""
T = TypeVar("T")
Uids = dict[str, None]
"""A set that keeps its order: decisions must not depend on hashes."""


@dataclass(slots=True)
class Census:
    """All jobs that hold or await a VM, in sums: one that comes or goes costs a few additions."""

    leased: Counter[str] = field(default_factory=Counter)
    """Cluster → jobs with a VM."""
    awaiting: Counter[str] = field(default_factory=Counter)
    """Cluster → jobs that are admitted and have no VM."""
    gpus: Counter[str] = field(default_factory=Counter)
    """Tenant → GPUs at work; a job without GPUs counts as one."""
    began: dict[str, float] = field(default_factory=dict)
    """Tenant → sum of GPUs × the moment since which they work."""
    holding: dict[str, Holding] = field(default_factory=dict)
    """Tenant → cluster → what its leased jobs hold."""
    counted: int = 0
    """How often something has changed: as long as it stays, so does all else."""

    def count(self, job: Job, sign: int = 1) -> None:
        """The job gets a VM, or loses it."""
        self.counted += 1
        tenant, gpus = job.spec.tenant_id, job.spec.slots * sign
        since = (job.started_at or job.status_since).timestamp()
        self.leased[job.cluster] += sign
        self.gpus[tenant] += gpus
        self.began[tenant] = self.began.get(tenant, 0.0) + gpus * since
        mine = self.holding.get(tenant, {})
        tally = mine.get(job.cluster, ResourceTotals()).plus(ResourceTotals.of(job.spec), sign)
        self.holding[tenant] = {**mine, job.cluster: tally}
        if not self.gpus[tenant]:
            self.began[tenant] = 0.0  # what rounding has left in the sum is not carried on

    def after(self, moves: Iterable[tuple[Job, Job]]) -> Census:
        """The same after the steps of a cycle."""
        copy = Census(
            Counter(self.leased),
            Counter(self.awaiting),
            Counter(self.gpus),
            dict(self.began),
            dict(self.holding),
        )
        for before, after in moves:
            copy.see(before, -1)
            copy.see(after)
        return copy

    def see(self, job: Job, sign: int = 1) -> None:
        """The job is as it is from now on, or was so until now."""
        if job.status in LEASED:
            self.count(job, sign)
        elif job.status is JobStatus.PROVISIONING:
            self.awaiting[job.cluster] += sign

    def gpu_s(self, tenant: str, now: datetime, ahead_s: float) -> float:
        """What its jobs that run have used, and will."""
        gpus = self.gpus.get(tenant, 0)
        return gpus * (now.timestamp() + ahead_s) - self.began[tenant] if gpus else 0.0


def take_census(jobs: Iterable[Job]) -> Census:
    """One look at all jobs."""
    found = Census()
    for job in jobs:
        found.see(job)
    return found


class ActiveIndex:
    """Jobs in HOLDS and VMs of the snapshot (not gone, or gone with leases)."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.vms: dict[str, Vm] = {}
        self.reasons: dict[str, str] = {}
        """Of jobs that await a VM: why, as stored."""
        self.census = Census()
        self.marks: Counter[str] = Counter()
        """Cluster → a number that grows with each change of its VMs and of its demand."""
        self.leases: dict[str, str] = {}
        """Lease → job."""
        self.names: dict[str, str] = {}
        """Name → the active VM that has it."""
        self.admitted: Uids = {}
        """Jobs that await a VM."""
        self.gangs: dict[str, Uids] = {}
        """Gang → those of its members that live."""
        self.partial: Uids = {}
        """Gangs of which not all members live."""
        self.in_flight: Uids = {}
        """VMs that are asked for and have not said READY."""
        self.beyond_use: Uids = {}
        """VMs that are gone or being deleted."""
        self.ailing: Uids = {}
        """VMs against which something is known."""
        self.homeless: Uids = {}
        """VMs that jobs hold and that are not in the snapshot."""
        self._on: dict[str, Uids] = {}
        self._leased_in: dict[str, Uids] = {}
        self._vms_of: dict[str, Uids] = {}
        self._idle_in: dict[str, Uids] = {}
        self._ends: list[tuple[datetime, str, int]] = []
        self._due: Uids = {}
        self._heartbeats: list[tuple[datetime, str]] = []
        self._quiet: Uids = {}

    @staticmethod
    def of(jobs: Iterable[Job], vms: Iterable[Vm]) -> ActiveIndex:
        """From a snapshot that has no index; jobs that do not live are left out."""
        active = ActiveIndex()
        for vm in vms:
            active.put_vm(vm)
        for job in jobs:
            if job.status in HOLDS:
                active.put_job(job)
        return active

    # --- asking --------------------------------------------------------------------------

    def jobs_on(self, vm_uid: str) -> Iterable[str]:
        """Jobs that hold a lease there."""
        return self._on.get(vm_uid, ())

    def leased_in(self, cluster: str) -> Iterable[str]:
        """Jobs of a cluster that hold a VM."""
        return self._leased_in.get(cluster, ())

    def vms_of(self, cluster: str) -> Iterable[str]:
        return self._vms_of.get(cluster, ())

    def counted_in(self, cluster: str) -> int:
        """VMs of a cluster that count against its limit."""
        gone = (self.vms[uid] for uid in self.beyond_use)
        return len(self._vms_of.get(cluster, ())) - sum(
            vm.cluster == cluster and not vm.counted for vm in gone
        )

    def idle_in(self, cluster: str) -> Iterable[str]:
        """VMs of a cluster that are ready and have no work."""
        return self._idle_in.get(cluster, ())

    def clusters(self) -> Iterator[str]:
        """Clusters that have VMs."""
        return (name for name, vms in self._vms_of.items() if vms)

    def due(self, now: datetime) -> list[Job]:
        """Jobs whose deadline has come."""
        ends = self._ends
        while ends and ends[0][0] <= now:
            _, uid, version = heappop(ends)
            job = self.jobs.get(uid)
            if job is not None and job.version == version:
                self._due[uid] = None
        return [self.jobs[uid] for uid in self._due]

    def quiet(self, before: datetime) -> list[Vm]:
        """VMs whose newest heartbeat is older than that."""
        heartbeats = self._heartbeats
        while heartbeats and heartbeats[0][0] < before:
            _, uid = heappop(heartbeats)
            vm = self.vms.get(uid)
            if vm is None or vm.last_beat_at is None:
                continue
            if vm.last_beat_at < before:
                self._quiet[uid] = None
            else:
                heappush(heartbeats, (vm.last_beat_at, uid))
        return [self.vms[uid] for uid in self._quiet]

    # --- changing ------------------------------------------------------------------------

    def put_job(self, job: Job, why: str = "") -> None:
        """New, or moved."""
        before = self.jobs.get(job.uid)
        if before is not None:
            self._forget(before)
        self.jobs[job.uid] = job
        if job.gang is not None:
            members = self.gangs.setdefault(job.gang.uid, {})
            members[job.uid] = None
            _keep(self.partial, job.gang.uid, wanted=len(members) < job.gang.size)
        if job.deadline_at is not None:
            self._remember_end(job.deadline_at, job)
        if job.status is JobStatus.PROVISIONING:
            self.admitted[job.uid] = None
            self.reasons[job.uid] = why
            self.marks[job.cluster] += 1
        self.census.see(job)
        if job.status in LEASED:
            self._leased_in.setdefault(job.cluster, {})[job.uid] = None
        if job.lease is not None:
            self.leases[job.lease.lease_id] = job.uid
            self._on.setdefault(job.lease.vm_uid, {})[job.uid] = None
            if job.lease.vm_uid not in self.vms:
                self.homeless[job.lease.vm_uid] = None

    def drop_job(self, uid: str) -> None:
        """It does not live any more, or never did."""
        job = self.jobs.pop(uid, None)
        if job is not None:
            self._forget(job)

    def put_vm(self, vm: Vm) -> None:
        """New, or moved. A heartbeat that was heard meanwhile stays."""
        known = self.vms.get(vm.uid)
        if known is not None:
            newest = _later(known.last_beat_at, vm.last_beat_at)
            seq = known.heard_seq if known.boot_nonce == vm.boot_nonce else 0
            if newest != vm.last_beat_at or seq > vm.heard_seq:
                vm = heard(vm, newest, seq)
        self._see(vm, fresh=known is None or known.last_beat_at is None)
        if known is None or _worth(known) != _worth(vm):
            self.marks[vm.cluster] += 1
        self._vms_of.setdefault(vm.cluster, {})[vm.uid] = None
        _keep(self._idle_in.setdefault(vm.cluster, {}), vm.uid, wanted=vm.idle)
        self.homeless.pop(vm.uid, None)
        _keep(self.in_flight, vm.uid, wanted=vm.state.in_flight)
        _keep(self.beyond_use, vm.uid, wanted=vm.state.beyond_use)
        _keep(self.ailing, vm.uid, wanted=bool(vm.health.gpus or vm.health.failures))
        if vm.counted:
            self.names[vm.name] = vm.uid
        elif self.names.get(vm.name) == vm.uid:
            del self.names[vm.name]

    def drop_vm(self, uid: str) -> None:
        """It has left the snapshot, or was never in it."""
        vm = self.vms.pop(uid, None)
        if vm is None:
            return
        self.marks[vm.cluster] += 1
        self._vms_of[vm.cluster].pop(uid)
        _keep(self._idle_in[vm.cluster], uid, wanted=False)
        for kept in (self.in_flight, self.beyond_use, self.ailing, self._quiet):
            kept.pop(uid, None)
        if self.names.get(vm.name) == uid:
            del self.names[vm.name]
        if self._on.get(uid):
            self.homeless[uid] = None

    def hear(self, uid: str, at: datetime, seq: int = 0) -> None:
        """A heartbeat: nothing else of the VM has changed."""
        vm = self.vms.get(uid)
        if vm is None:
            return
        # A higher number may come by an older heartbeat, after a later one was sent again.
        if vm.last_beat_at is None or vm.last_beat_at < at:
            self._see(heard(vm, at, seq), fresh=vm.last_beat_at is None)
        elif vm.heard_seq < seq:
            self._see(heard(vm, vm.last_beat_at, seq), fresh=False)

    def say(self, uid: str, why: str) -> None:
        """Why a job waits, as it is stored from now on."""
        if uid in self.reasons:
            self.reasons[uid] = why

    def _see(self, vm: Vm, *, fresh: bool) -> None:
        self.vms[vm.uid] = vm
        if vm.last_beat_at is not None and (fresh or vm.uid in self._quiet):
            self._quiet.pop(vm.uid, None)
            heappush(self._heartbeats, (vm.last_beat_at, vm.uid))

    def _remember_end(self, at: datetime, job: Job) -> None:
        if len(self._ends) > 2 * len(self.jobs) + STALE_MAX:
            kept = (known for known in self.jobs.values() if known.deadline_at is not None)
            self._ends = [(j.deadline_at, j.uid, j.version) for j in kept if j.deadline_at]
            heapify(self._ends)
        heappush(self._ends, (at, job.uid, job.version))

    def _forget(self, job: Job) -> None:
        self._due.pop(job.uid, None)
        if job.gang is not None:
            _take(self.gangs, job.gang.uid, job.uid)
            _keep(self.partial, job.gang.uid, wanted=job.gang.uid in self.gangs)
        if job.status is JobStatus.PROVISIONING:
            self.admitted.pop(job.uid, None)
            self.reasons.pop(job.uid, None)
            self.marks[job.cluster] += 1
        self.census.see(job, -1)
        if job.status in LEASED:
            _take(self._leased_in, job.cluster, job.uid)
        if job.lease is not None:
            self.leases.pop(job.lease.lease_id, None)
            _take(self._on, job.lease.vm_uid, job.uid)
            if job.lease.vm_uid not in self._on:
                self.homeless.pop(job.lease.vm_uid, None)


def _worth(vm: Vm) -> tuple[object, ...]:
    """What a VM is to the plan of how many there should be: one that goes from job to job is the
    same all the time."""
    seen = (vm.instance_id, vm.zone, vm.running_since, vm.stopped_at, vm.refused, vm.taken)
    return (vm.state, len(vm.leases), vm.kept_until, *seen)


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return max(one, other)


def _keep(kept: Uids, uid: str, *, wanted: bool) -> None:
    if wanted:
        kept[uid] = None
    else:
        kept.pop(uid, None)


def _take(groups: dict[str, Uids], group: str, uid: str) -> None:
    """Empty groups go: names come and go for years."""
    groups[group].pop(uid)
    if not groups[group]:
        del groups[group]


class ActiveRows(Sequence[T]):
    """All that live and a few more, without a copy of them: a snapshot of ten thousand rows is
    handed on many times a second. True until the store that made it makes its next one."""

    def __init__(self, active: Mapping[str, T], more: Sequence[T] = ()) -> None:
        self._active, self._more = active, more

    def __len__(self) -> int:
        return len(self._active) + len(self._more)

    def __iter__(self) -> Iterator[T]:
        return chain(self._active.values(), self._more)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # what it shows changes
