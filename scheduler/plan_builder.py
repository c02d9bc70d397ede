"""A cycle's decisions as they are made: jobs and VMs after each step, and the atomic batches to
write.

Later steps of the same cycle see what earlier ones did; the store checks every step again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import TypedDict, Unpack

from core.active import ActiveIndex
from core.changes import AtomicBatch, Change, Charge, JobMove, JobProgress, Send, Snapshot, VmMove
from core.job import WAITING, Job, JobEvent, Lease, Rules, SavedWork, TimelineEntry
from core.job_steps import NO_FACTS, EventFacts, advance, entry_for
from core.messages import Control, OutMessage, StopJob
from core.overlay import Layer
from core.remaining import DeadlineSlack, nothing_saved
from core.vm import Vm, VmEvent, VmFacts, advance_vm, drop_lease, with_facts
from core.waits import WaitNote

Encode = Callable[[Control], OutMessage]


class PlanBuilder:
    """Collects atomic batches. Nothing here waits or asks: it is a value under construction."""

    def __init__(self, snapshot: Snapshot, rules: Rules, encode: Encode) -> None:
        self.now: datetime = snapshot.now
        self.rules = rules
        self.active = snapshot.active or ActiveIndex.of(snapshot.jobs, snapshot.vms)
        """As the cycle began. A step that is taken each cycle asks this, or the questions below:
        what goes through all jobs or VMs costs too much where there are many."""
        heads = snapshot.heads if snapshot.active is not None else snapshot.jobs
        active = self.active.jobs
        self._heads = {job.uid: job for job in heads if job.uid not in active}
        self.jobs: Layer[Job] = Layer(active, self._heads)
        self.vms: Layer[Vm] = Layer(self.active.vms)
        self.batches: list[AtomicBatch] = []
        self.moves: list[tuple[Job, Job]] = []
        self._gangs = _gangs_of(self.active, self._heads)
        self.claims: set[str] = set()
        """Jobs whose workers said in this cycle that they have them and do not run them yet."""
        self.charges: list[Charge] = []
        """What tenants have used, of attempts that ended in this cycle."""
        self.admitted: Mapping[str, Sequence[str]] = {}
        """Cluster → the jobs that have or await a VM, in the order of admission."""
        self.wait_notes: list[WaitNote] = []
        """What waiting jobs met in this cycle."""
        self.progress: list[JobProgress] = []
        """What jobs said of themselves in this cycle."""
        self.heartbeats: dict[str, datetime] = {}
        """VM → its newest heartbeat, of the ones that came in this cycle."""
        self.recalled: Mapping[str, Collection[str]] = {}
        """Start messages for v1 workers that are not out any more (by their lease), with the VMs
        that may have taken them."""
        self.hear: Callable[[JobProgress], None] = lambda _: None
        """Told of each word about progress as it comes: the same word may end the attempt."""
        self.saved: Callable[[Job], SavedWork | None] = nothing_saved
        """What a job's present attempt has saved."""
        self.deadline_slack = DeadlineSlack()
        """How much of each job is left to run, and what one with a deadline may pay."""
        self.supply = snapshot.supply
        """What places have delivered and refused."""
        self._encode = encode
        self._placed: dict[str, list[str]] = {}
        self._waiting: tuple[int, list[Job], dict[str, list[Job]]] | None = None

    def vms_of(self, cluster: str) -> list[Vm]:
        """The cluster's VMs as they are after the steps so far."""
        # None comes during a cycle, and none changes its cluster.
        return [self.vms[uid] for uid in self.active.vms_of(cluster)]

    def idle_in(self, cluster: str) -> list[Vm]:
        """Those of them that are ready and have no work."""
        known = dict.fromkeys((*self.active.idle_in(cluster), *self.vms.news))
        vms = map(self.vms.__getitem__, known)
        return [vm for vm in vms if vm.idle and vm.cluster == cluster]

    def heads(self) -> list[Job]:
        """Jobs of the snapshot that held and awaited no VM when the cycle began."""
        return [self.jobs[uid] for uid in self._heads]

    def waiting(self) -> Sequence[Job]:
        """Jobs that wait, after the steps so far: admitted ones first, then the heads."""
        return self._who_waits()[1]

    def waiting_by_cluster(self) -> Mapping[str, Sequence[Job]]:
        """Jobs that may be admitted: whatever is behind a hold waits for something else."""
        return self._who_waits()[2]

    def _who_waits(self) -> tuple[int, Sequence[Job], Mapping[str, Sequence[Job]]]:
        """Worked out again after each step that changed something: most cycles change nothing."""
        if self._waiting is None or self._waiting[0] != self.jobs.puts:
            news, active, groups = self.jobs.news, self.active.jobs, dict[str, list[Job]]()
            first = (news[uid] if uid in news else active[uid] for uid in self.active.admitted)
            rest = (job for uid, job in news.items() if uid not in self.active.admitted)
            found = [job for job in chain(first, rest) if job.status in WAITING]
            for job in found:
                if not job.out_of_queue:
                    groups.setdefault(job.cluster, []).append(job)
            self._waiting = (self.jobs.puts, found, groups)
        return self._waiting

    def jobs_on(self, vm_uid: str) -> list[Job]:
        """Jobs that hold a lease on a VM, after the steps so far."""
        known = dict.fromkeys((*self.active.jobs_on(vm_uid), *self._placed.get(vm_uid, ())))
        jobs = map(self.jobs.__getitem__, known)
        return [job for job in jobs if job.lease is not None and job.lease.vm_uid == vm_uid]

    def leased_in(self, cluster: str) -> list[Job]:
        """Jobs of a cluster that hold a VM, after the steps so far. There may be hundreds."""
        placed = (uid for uids in self._placed.values() for uid in uids)
        known = dict.fromkeys((*self.active.leased_in(cluster), *placed))
        jobs = map(self.jobs.__getitem__, known)
        return [job for job in jobs if job.lease is not None and job.cluster == cluster]

    def gangs(self) -> Iterator[list[Job]]:
        """Members by rank, as they are after the steps so far; a gang is here whole."""
        return (self.gang(uid) for uid in self._gangs)

    def gang_uids(self) -> Iterable[str]:
        """Of their first members."""
        return self._gangs.keys()

    def gang(self, uid: str) -> list[Job]:
        return [self.jobs[member] for member in self._gangs[uid]]

    def step(
        self,
        job: Job,
        event: JobEvent,
        reason: str,
        *,
        facts: EventFacts = NO_FACTS,
        vm: Vm | None = None,
        tell: Iterable[Control] = (),
        also: Iterable[Change] = (),
        **data: object,
    ) -> Job:
        """Move a job, with the VM and the messages that belong to the same step. `vm` is the VM
        after the step; if the step ends a lease, the VM that held it lets go of it as well, and its
        tenant is charged. `also`: what stands or falls with the step."""
        if job.lease is not None:
            facts = replace(facts, saved=self.saved(job))
        after = advance(job, event, self.now, self.rules, reason=reason, facts=facts)
        if after is job:
            return job
        changes: list[Change] = [JobMove(job, after, (entry_for(job, after, event, **data),))]
        if vm is not None:
            changes.append(VmMove(self.vms[vm.uid], vm))
            self.vms[vm.uid] = vm
        changes += also
        if job.lease is not None and after.lease is None:
            changes += self._let_go(job.lease)
            changes += self._charge(job)
        changes += [Send(self._encode(message)) for message in tell]
        self.jobs[job.uid] = after
        if facts.lease is not None:
            self._placed.setdefault(facts.lease.vm_uid, []).append(job.uid)
        self.moves.append((job, after))
        self.batches.append(tuple(changes))
        return after

    def advance_vm(self, vm: Vm, event: VmEvent, reason: str, **facts: Unpack[VmFacts]) -> Vm:
        """Move a VM on its own."""
        return self._put_vm(vm, advance_vm(vm, event, self.now, reason, **facts))

    def learn_vm(self, vm: Vm, **facts: Unpack[VmFacts]) -> Vm:
        """Write what was learned of a VM; its state stays."""
        return self._put_vm(vm, with_facts(vm, **facts))

    def put_job(
        self,
        before: Job,
        after: Job,
        *entries: TimelineEntry,
        tell: Iterable[Control] = (),
    ) -> Job:
        """Write a job that is not another step further, with what is told along with it."""
        sends = [Send(self._encode(message)) for message in tell]
        self.jobs[after.uid] = after
        self.batches.append((JobMove(before, after, entries), *sends))
        return after

    def _put_vm(self, before: Vm, after: Vm) -> Vm:
        if after is not before:
            self.vms[after.uid] = after
            self.batches.append((VmMove(before, after),))
        return after

    @contextmanager
    def together(self) -> Iterator[None]:
        """Whatever is decided inside stands or falls as one atomic batch."""
        begin = len(self.batches)
        yield
        joined = tuple(change for batch in self.batches[begin:] for change in batch)
        self.batches[begin:] = [joined] if joined else []

    def tell(self, message: Control) -> None:
        """A message that belongs to no change (an answer to a stray worker)."""
        self.batches.append((Send(self._encode(message)),))

    def add(self, change: Change) -> None:
        """A change that stands alone."""
        self.batches.append((change,))

    def delete_vm(self, vm: Vm, reason: str, **facts: Unpack[VmFacts]) -> Vm:
        """The VM is beyond use: delete it, whatever it holds. Its jobs go back when no worker
        can be alive on it any more."""
        return self.advance_vm(vm, VmEvent.DELETE_ASKED, reason, **facts)

    def retire_vm(self, vm: Vm, reason: str, lease_id: str = "", **facts: Unpack[VmFacts]) -> Vm:
        """Its worker did not do as told (for that lease). Neighbours on a shared VM are left to
        end in peace: it takes nothing new and goes when it is empty. Without neighbours it goes
        now."""
        others = [lease for lease in vm.leases if lease != lease_id]
        if not others:
            return self.delete_vm(vm, reason, **facts)
        return self.advance_vm(vm, VmEvent.DRAIN_ASKED, reason, **facts)

    def _charge(self, job: Job) -> list[Change]:
        """What the attempt has used counts from its start on; one that never ran is free."""
        if job.started_at is None or self.now <= job.started_at:
            return []
        gpu_s = (self.now - job.started_at).total_seconds() * job.spec.slots
        tenant = job.spec.tenant_id
        charge = Charge(tenant, gpu_s, self.now, self.rules.queue.half_life_s)
        self.charges.append(charge)
        return [charge]

    def _let_go(self, lease: Lease) -> list[Change]:
        vm = self.vms.get(lease.vm_uid)
        if vm is None or lease.lease_id not in vm.leases:
            return []
        after = drop_lease(vm, lease.lease_id, self.now)
        self.vms[vm.uid] = after
        return [VmMove(vm, after)]


def _gangs_of(active: ActiveIndex, heads: Mapping[str, Job]) -> dict[str, list[str]]:
    """Gang → its members by rank."""
    members = {gang: list(uids) for gang, uids in active.gangs.items()}
    for job in heads.values():
        if job.gang is not None:
            members.setdefault(job.gang.uid, []).append(job.uid)
    ranks: dict[str, list[tuple[int, str]]] = {}
    for gang, uids in members.items():
        jobs = (heads.get(uid) or active.jobs[uid] for uid in uids)
        ranks[gang] = [(job.gang.rank, job.uid) for job in jobs if job.gang is not None]
    return {gang: [uid for _, uid in sorted(found)] for gang, found in ranks.items()}


class AttemptAddress(TypedDict):
    """Which attempt a message to its VM speaks of."""

    vm_name: str
    boot_nonce: str
    job_id: str
    user_id: str
    attempt: int
    lease_id: str


def address_of(job: Job, boot_nonce: str) -> AttemptAddress:
    """Of the job's live lease. No boot nonce: the lease alone decides."""
    assert job.lease is not None, f"{job.spec.job_id} is {job.status} and holds no lease"
    return AttemptAddress(
        vm_name=job.lease.vm_name,
        boot_nonce=boot_nonce,
        job_id=job.spec.job_id,
        user_id=job.spec.user_id,
        attempt=job.attempt,
        lease_id=job.lease.lease_id,
    )


def stop_message(job: Job, boot_nonce: str, reason: str) -> StopJob:
    """The stop that belongs to the job's live lease."""
    return StopJob(**address_of(job, boot_nonce), grace_s=job.spec.stop_grace_s, reason=reason)
