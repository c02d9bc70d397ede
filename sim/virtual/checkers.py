"""What must never happen, checked after every commit, every start of a computation, every call to
the cloud. The checkers keep their own record and trust nobody's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from core.actions import Create, Delete, Queue
from core.changes import (
    AtomicBatch,
    Change,
    DeadLetter,
    JobMove,
    NewJob,
    NewRequest,
    NewVm,
    PutTenant,
    RaiseAlert,
    Send,
    VmMove,
)
from core.cluster import ClusterSpec
from core.groups import Owner
from core.job import TRANSITIONS, E, Job, JobEvent, JobStatus, Lease
from core.messages import OutMessage, StartJob
from core.tenants import HOLDS, machines_of
from core.vm import Vm, may_become
from sim.cloud.physics import CloudProject
from sim.memory.tables import Tables, Written
from sim.virtual.computations import Computing
from sim.virtual.expected_limits import ExpectedQuotas, Limits
from sim.virtual.trace import Trace, Violation
from sim.virtual.worker_truth import WorkerTruth

SILENT = "silent for too long"
ORPHAN_MAX_S = 3600.0
"""How long a VM may be without an owner while everything fails: each new leader begins to count
anew, and at worst there is one every minute."""
ORPHAN_HEALED_MAX_S = 600.0
"""How long after healing there may be any."""


class Checkers:
    """Feed it; the first broken guarantee calls `on_violation`."""

    def __init__(
        self,
        trace: Trace,
        tables: Tables,
        clusters: Iterable[ClusterSpec],
        time: Callable[[], float],
        on_violation: Callable[[], None],
    ) -> None:
        self.violations: list[Violation] = []
        self._trace, self._tables, self._time = trace, tables, time
        clusters = tuple(clusters)
        self._limits = Limits({c.name: c.vm_max for c in clusters}, tables, time)
        self._shared = frozenset(c.name for c in clusters if c.share)
        self._apart = frozenset(c.name for c in clusters if c.keeps_tenants_apart)
        self._v1 = frozenset(c.name for c in clusters if c.worker == "v1")
        self._on_violation = on_violation
        self._quotas = ExpectedQuotas(machines_of(clusters), trace, self.broken)
        self._jobs: dict[str, Job] = {}
        self.waiting = 0
        """Jobs that are not final."""
        self._gangs: dict[str, dict[str, None]] = defaultdict(dict)
        """Gang → its members."""
        self._on_vm: dict[str, dict[str, Job]] = defaultdict(dict)
        """VM → jobs with a lease on it."""
        self._vms: dict[str, Vm] = {}
        self._counted: Counter[str] = Counter()
        self._leases: dict[str, str] = {}
        """lease id → uid of the VM row that holds it."""
        self._term = 0
        self.computing = Computing(trace, self.broken, self._check_barrier)
        self._accepted: set[tuple[str, str]] = set()
        self._intents: Counter[tuple[str, bytes]] = Counter()
        self.cloud_counts: Callable[[str], int] = lambda _: 0
        self.truth: WorkerTruth | None = None
        """I9: who really said what."""
        self.opened: Callable[[OutMessage], bytes] = lambda message: message.body
        """What a message says that was sealed for a worker."""
        self.could_not_speak: Callable[[str], bool] = lambda _: False
        """Whether a VM lives and is reached by the bus, but has not had the time to say so."""
        self.unowned: dict[str, float] = {}
        """VMs in the cloud that no row owns and nobody deletes → since when."""
        self.foreign: set[str] = set()
        """VMs that are not of our making: never to be touched."""
        self.strangers: set[str] = set()
        """VMs under names of our form that somebody else asked for: to be reaped."""

    def broken(self, invariant: str, what: str, *subjects: str) -> None:
        """Write it down; the run ends here."""
        self.violations.append(Violation(invariant, self._time(), what, subjects))
        self._trace.note("VIOLATION", f"{invariant}: {what}", *subjects)
        self._on_violation()

    # --- the database ----------------------------------------------------------------------

    def committed(self) -> None:
        """Look at every atomic batch that took effect since the last time."""
        history = self._tables.history
        for written in history:
            self._written(written)
        history.clear()

    def _written(self, written: Written) -> None:
        self._term = max(self._term, written.leading or 0)
        if written.term is not None and written.term < self._term:
            self.broken("I7", f"a write of term {written.term} took effect in term {self._term}")
        for change in written.batch:
            self._change(change)
        self._check_leases(written.batch)
        self._check_gangs(written.batch)
        self._check_scale_in(written.batch)

    def _change(self, change: Change) -> None:
        if self.truth is not None:
            self.truth.committed(change)
        match change:
            case NewJob(job=job):
                self._keep(job)
                self._trace.note("job", f"{job.spec.job_id} submitted", job.spec.job_id)
            case JobMove(before, after, entries):
                self._job_move(before, after, entries[0].event if entries else "")
            case NewVm(vm=vm, vm_max=vm_max):
                self._new_vm(vm, vm_max)
            case VmMove(before, after):
                self._vm_move(before, after)
            case RaiseAlert(kind=kind):
                self._trace.count_fault(f"alert_{kind}")
            case Send(message):
                self._intents[message.topic, message.body] += 1
            case DeadLetter(source=topic, body=body) if (topic, body) in self._intents:
                del self._intents[topic, body]  # the bus refuses it: it is kept for a human
            case PutTenant(tenant):
                self._quotas.tenants[tenant.tenant_id] = tenant
            case NewRequest(request):
                words = f"{request.kind} {', '.join(request.names)}: {request.reason}"
                self._trace.note("request", words, *request.names)
            case _:
                pass  # no guarantee hangs on it

    def _job_move(self, before: Job, after: Job, event: str) -> None:
        name = after.spec.job_id
        stored = self._jobs.get(after.uid)
        words = f"{name} {before.status} -{event}-> {after.status}, attempt {after.attempt}"
        lease = after.lease or before.lease
        vm_name = lease.vm_name if lease else ""
        self._trace.note("job", f"{words} {vm_name} ({after.reason})", name, vm_name)
        self._trace.transitions[f"{before.status} {event} {after.status}"] += 1
        if stored is None:
            self.broken("I1", f"{name} moves but was never submitted", name)
        elif stored.version != before.version:
            seen = f"version {before.version} {before.status}"
            there = f"version {stored.version} {stored.status}"
            self.broken("I4", f"{name}: written over {there}, having read {seen}", name)
        if after.status is before.status and after.offer != before.offer:
            self._keep(after)  # who may claim it has changed: no step of its road
            return
        if stored is not None and stored.status.final:
            self.broken("I4", f"{name} left its final state: {words}", name)
        targets = TRANSITIONS.get((before.status, JobEvent(event)), ())
        if after.status not in targets:
            self.broken("I4", f"no such step: {words}", name)
        if not after.status.final and after.deadline_at is None:
            self.broken("I8", f"{name} is {after.status} without a deadline", name)
        self._check_word(before, JobEvent(event))
        self._keep(after)
        if before.status not in HOLDS and after.status in HOLDS:
            self._quotas.check(after)

    def _keep(self, job: Job) -> None:
        """The job as it is from now on, where each check looks for it."""
        before = self._jobs.get(job.uid)
        self._jobs[job.uid] = job
        self.waiting += (not job.status.final) - (before is not None and not before.status.final)
        if before is None and job.gang is not None:
            self._gangs[job.gang.uid][job.uid] = None
        if before is not None and before.lease is not None:
            self._on_vm[before.lease.vm_uid].pop(job.uid, None)
        if job.lease is not None:
            self._on_vm[job.lease.vm_uid][job.uid] = job
        self._quotas.keep(job)

    def _check_word(self, before: Job, event: JobEvent) -> None:
        """What a worker is believed to have said of the live lease has really happened to it."""
        if before.cluster in self._v1:
            return  # their words prove no lease: the claim takes the newest one's id
        lease = before.lease.lease_id if before.lease else ""
        name, vm_name = before.spec.job_id, before.lease.vm_name if before.lease else ""
        # A member of a gang claims its part, and begins when all are there.
        begun = (E.STARTED,) if before.gang is not None else (E.CLAIMED, E.STARTED)
        if event in begun and lease not in self.computing.started:
            self.broken("I2", f"{name}: {event}, but lease {lease} never began", name, vm_name)
        if event is E.EXITED_OK and self.computing.exits.get(lease) != 0:
            said = self.computing.exits.get(lease, "still computes")
            self.broken("I2", f"{name}: {event}, but lease {lease}: {said}", name, vm_name)
        if event is E.EXITED_ERROR and self.computing.exits.get(lease) in (None, 0):
            self.broken("I2", f"{name}: {event}, but lease {lease} did not fail", name, vm_name)

    def _new_vm(self, vm: Vm, vm_max: int) -> None:
        self._trace.note("vm", f"{vm.name} {vm.state} ({vm.reason})", vm.name)
        self._vms[vm.uid] = vm
        self._counted[vm.cluster] += 1
        if vm.state.deleting:
            return  # an orphan taken over to be deleted: it was there before us
        limit = self._limits.of(vm.cluster)
        if self._counted[vm.cluster] > limit or vm_max > limit:
            counted = self._counted[vm.cluster]
            self.broken("I5", f"{vm.cluster} counts {counted} VMs, limit {limit}", vm.name)

    def _vm_move(self, before: Vm, after: Vm) -> None:
        stored = self._vms.get(after.uid)
        if before.state is not after.state or before.leases != after.leases:
            held = f", leases {list(after.leases)}" if after.leases else ""
            words = f"{after.name} {before.state} -> {after.state}{held} ({after.reason})"
            self._trace.note("vm", words, after.name)
        if stored is None or stored.version != before.version:
            there = "nothing" if stored is None else f"version {stored.version} {stored.state}"
            what = f"{after.name}: written over {there}, having read {before.state}"
            self.broken("I2", what, after.name)
            stored = stored or before
        if after.state is not stored.state and not may_become(stored.state, after.state):
            self.broken("I6", f"{after.name}: no step {stored.state} -> {after.state}", after.name)
        if after.leases != stored.leases and set(after.leases) - set(stored.leases):
            self._lease_taken(stored, after)
        if after.state.gone and not stored.state.gone:
            self._counted[after.cluster] -= 1
        for lease in set(stored.leases) - set(after.leases):
            self._leases.pop(lease, None)
        if after.reason == SILENT and stored.reason != SILENT and self.could_not_speak(after.name):
            what = f"{after.name} is declared lost before it had the time to speak"
            self.broken("silence", what, after.name)
        self._vms[after.uid] = after

    def _lease_taken(self, stored: Vm, after: Vm) -> None:
        busy = stored.leases and after.cluster not in self._shared
        if not stored.state.ready or busy:
            self.broken("I2", f"{after.name} took a lease as {stored.state}", after.name)
        for lease in set(after.leases) - set(stored.leases):
            if lease in self._leases:
                self.broken("I2", f"lease {lease} is on two VMs", after.name)
            self._leases[lease] = after.uid

    def _check_leases(self, batch: AtomicBatch) -> None:
        """After an atomic batch: the job's live lease is the one that its VM holds."""
        for change in batch:
            if not isinstance(change, JobMove) or change.after.lease is None:
                continue
            lease = change.after.lease
            vm = self._vms.get(lease.vm_uid)
            name = change.after.spec.job_id
            if vm is None or lease.lease_id not in vm.leases:
                self.broken("I2", f"{name} has a lease that {lease.vm_name} does not hold", name)
            elif change.before.lease is None:
                self._check_slots(change.after, lease, vm)

    def _fellows(self, uid: str) -> list[Job]:
        return [self._jobs[member] for member in self._gangs[uid]]

    def _check_gangs(self, batch: AtomicBatch) -> None:
        """A gang is placed whole, in one region. One that runs may get a member back, there."""
        moves = [c.after for c in batch if isinstance(c, JobMove) and c.after.gang is not None]
        placed = [job for job in moves if job.status is JobStatus.ASSIGNED]
        for gang in {job.gang.uid for job in placed if job.gang is not None}:
            fellows = [job for job in self._fellows(gang) if not job.status.final]
            waiting = [job for job in fellows if job.lease is None]
            regions = {job.lease.region for job in fellows if job.lease is not None}
            name = fellows[0].spec.job_id
            runs = any(job.status is JobStatus.RUNNING for job in fellows)
            spec = fellows[0].spec
            enough = spec.elastic and len(fellows) - len(waiting) >= spec.least
            if waiting and not (enough or (runs and spec.replace_members)):
                self.broken("I3", f"{name}: {len(waiting)} members were not placed", name)
            if len(regions) > 1:
                self.broken("I3", f"{name}: members in {sorted(regions)}", name)
            self._trace.count_fault("gang_placed")

    def _check_barrier(self, order: StartJob) -> None:
        """Nobody begins while a member that was placed with it has not claimed its part. Those
        that an elastic job can do without come one by one and wait for none."""
        owner = Owner(order.spec.tenant_id, order.spec.user_id)
        stored = self._tables.owners.get(order.spec.job_id, {}).get(owner, "")
        job = self._jobs.get(stored)
        if job is None or job.gang is None or job.gang.rank >= job.spec.least:
            return
        for fellow in self._fellows(job.gang.uid):
            if fellow.gang is None or fellow.gang.rank >= fellow.spec.least:
                continue
            if fellow.status is JobStatus.ASSIGNED and fellow.uid != job.uid:
                words = f"{order.spec.job_id} begins while {fellow.spec.job_id} is not there yet"
                self.broken("I3", words, order.spec.job_id, fellow.spec.job_id)

    def _check_slots(self, job: Job, lease: Lease, vm: Vm) -> None:
        """No GPU is given to two live leases of a VM, nor one that the VM does not have."""
        name = job.spec.job_id
        if len(set(lease.slots)) != job.spec.slots or not set(lease.slots) <= set(range(vm.slots)):
            words = f"{name} wants {job.spec.gpu_count} GPUs, has {lease.slots} of {vm.gpus}"
            self.broken("slots", words, name, vm.name)
        if set(lease.slots) & vm.health.bad:
            self.broken("slots", f"{name} has a bad GPU: {vm.health.words}", name, vm.name)
        if len(vm.leases) > 1:
            self._trace.count_fault("neighbours_on_a_vm")
        for other in self._on_vm[vm.uid].values():
            held = other.lease
            if held is None or other.uid == job.uid:
                continue
            if other.spec.tenant_id != job.spec.tenant_id and vm.cluster in self._apart:
                words = f"{name} and {other.spec.job_id} are of two tenants, on {vm.name}"
                self.broken("tenants", words, name, vm.name)
            if set(held.slots) & set(lease.slots):
                words = f"{name} and {other.spec.job_id} both have GPUs of {lease.slots}"
                self.broken("slots", f"{words} on {vm.name}", name, vm.name)

    def _check_scale_in(self, batch: AtomicBatch) -> None:
        """A deletion that the capacity plan decides on takes no VM that has work."""
        if not any(isinstance(c, NewRequest) and c.request.kind == "delete" for c in batch):
            return
        for change in batch:
            if isinstance(change, VmMove) and change.after.leases:
                name = change.after.name
                self.broken("I11", f"{name} is scaled in with leases {change.after.leases}", name)

    # --- the cloud -------------------------------------------------------------------------

    def created(self, cluster: str, action: Create | Queue) -> None:
        """After the cloud took a create call."""
        # A call that is repeated may bring names that were counted before the limit was lowered.
        there = self.cloud_counts(cluster)
        limit = max(self._limits.of(cluster), self._counted[cluster])
        self._trace.note("cloud", f"create {', '.join(action.names)}", *action.names)
        if there > limit:
            self.broken("I5", f"{cluster} has {there} VMs, limit {limit}", *action.names)

    def deleting(self, action: Delete) -> None:
        """Before the cloud deletes: no row that may still be given work, no live lease unless the
        VM was deleted, no stranger."""
        self._trace.note("cloud", f"delete {', '.join(action.names)}", *action.names)
        uids = self._tables.vm_names
        for name in action.names:
            if name in self.foreign:
                self.broken("I6", f"{name} is not ours and is deleted", name)
            vm = self._vms.get(uids.get(name, ""))
            if vm is not None and not vm.state.beyond_use:
                self.broken("I11", f"{name} is deleted while it is {vm.state}", name)

    def look_for_orphans(self, cloud: CloudProject, healed_at: float | None) -> None:
        """Every VM in our groups has an owner, is being deleted, or will be in time."""
        now, owned = self._time(), self._tables.vm_names
        self.unowned = {
            member.name: self.unowned.get(member.name, now)
            for mig in cloud.migs(None, now)
            for member in mig.members.values()
            if member.name not in owned and member.name not in self.foreign and not member.leaving
        }
        healed = healed_at is not None and now - healed_at >= ORPHAN_HEALED_MAX_S
        for name, since in self.unowned.items():
            if healed or now - since > ORPHAN_MAX_S:
                when = "10 minutes after healing" if healed else f"for {now - since:.0f} s"
                self.broken("I6", f"{name} has no owner and no end, {when}", name)

    # --- doors -----------------------------------------------------------------------------

    def accepted(self, user_id: str, job_id: str) -> None:
        """The submitter got its answer."""
        self._accepted.add((user_id, job_id))
        if not self._is_stored(user_id, job_id):
            self.broken("I1", f"{job_id} was accepted but is not stored", job_id)

    def _is_stored(self, user_id: str, job_id: str) -> bool:
        owners = self._tables.owners.get(job_id, ())
        return any(owner.user_id == user_id for owner in owners)

    def dead_letters(self) -> Collection[str]:
        """Ids of messages that were refused and kept."""
        return self._tables.dead_letters

    def published(self, message: OutMessage) -> None:
        """The bus took a message."""
        key = (message.topic, self.opened(message))
        if key in self._intents:
            del self._intents[key]

    # --- at the end ------------------------------------------------------------------------

    def at_the_end(self, cloud: CloudProject, floors: Mapping[str, int]) -> None:
        """After healing, with no demand left."""
        for user_id, job_id in sorted(self._accepted):
            if not self._is_stored(user_id, job_id):
                self.broken("I1", f"{job_id} was accepted and is lost", job_id)
        for job in self._jobs.values():
            if not job.status.final:
                why = self._tables.jobs[job.uid].why
                what = f"{job.spec.job_id} is still {job.status} ({job.reason}; {why})"
                vm_name = job.lease.vm_name if job.lease else ""
                self.broken("liveness", what, job.spec.job_id, vm_name)
        for topic, body in self._intents:
            what = f"a message for {topic} was never published: {body[:200]!r}"
            self.broken("I10", what)
        for lease_id, span in self.computing.spans.items():
            words = f"{span.order.spec.job_id} lease {lease_id} still computes on {span.vm}"
            self.broken("liveness", words, span.order.spec.job_id, span.order.vm_name)
        self._check_floors(cloud, floors)

    def at_floor(self, cluster: str, floor: int) -> bool:
        """As many rows, and as many VMs in the cloud, as the floor wants."""
        return self._counted[cluster] == floor == self.cloud_counts(cluster)

    def _check_floors(self, cloud: CloudProject, floors: Mapping[str, int]) -> None:
        for cluster, floor in floors.items():
            rows = [vm for vm in self._vms.values() if vm.cluster == cluster and vm.counted]
            there = self.cloud_counts(cluster)
            if there != floor or len(rows) != floor:
                names = [vm.name for vm in rows]
                what = f"{cluster}: {there} VMs in the cloud, {len(rows)} rows, floor {floor}"
                self.broken("liveness", f"{what}: {names}", *names)
        members = {m.name for mig in cloud.migs(None, self._time()) for m in mig.members.values()}
        for name in sorted(self.foreign - members):
            self.broken("I6", f"{name} was not ours and is gone", name)
