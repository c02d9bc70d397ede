"""Clusters, VMs and what the cloud says about them: values, and the VM's table of transitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Literal

from core.errors import CloudRefused, ZenError
from core.floors import Floor
from core.health import WELL, VmHealth
from core.names import gang_of
from core.queueing import QueueRule


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """One region of a cluster and what a VM costs there (the whole machine, per hour)."""

    region: str
    zones: tuple[str, ...]
    usd_per_hour: float
    spot_usd_per_hour: float
    vm_max: int | None = None
    node: str = ""
    """Of a static pool: where the service of this machine listens."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One kind of machine, over all its regions, under one limit."""

    name: str
    gpu_type: str
    gpus: int
    """Per VM; 0: a CPU cluster, whose VMs run jobs without GPUs."""
    machine_type: str
    vm_max: int
    """Binds booting + idle + busy VMs over all regions: a promise about money."""
    regions: tuple[RegionSpec, ...]
    vm_min: int = 0
    spot: bool = False
    drain: bool = False
    """Takes no new jobs and is given back as its jobs end; its limits are zero then."""
    worker: Literal["v1", "v2"] = "v2"
    pool: Literal["mig", "static"] = "mig"
    gpu_memory_gb: int = 0
    """Per GPU."""
    cpus: int = 0
    memory_gb: int = 0
    idle_timeout_s: float | None = None
    """A VM without work is given back after exactly this long. None: when keeping it warm is not
    worth its price, at the latest after the timer of the whole service."""
    queue: QueueRule = QueueRule.FAIR
    """How those that wait for it are ordered."""
    floors: tuple[Floor, ...] = ()
    """Higher floors than `vm_min` at some hours."""
    share: bool = False
    """Several jobs on one VM, each on GPUs of its own; else a job has its VM to itself."""
    flex_start_wait_s: float | None = None
    """A gang's VMs are asked for by one request, all or none, which waits in the cloud's own queue
    for at most this long. None: they are asked for one by one, as any others."""

    @property
    def slots(self) -> int:
        """How many parts of a VM can be leased: its GPUs, or the one of a VM without GPUs."""
        return max(1, self.gpus)

    @property
    def offering(self) -> str:
        """What region blocks and the supply history are kept for. The same machine type without
        GPUs is another one: that n1-standard-4 with a T4 is sold out says nothing about it."""
        return self.machine_type if self.gpus else f"{self.machine_type} without GPUs"

    def region(self, name: str) -> RegionSpec:
        """The region by name; it must be one of this cluster's."""
        return next(r for r in self.regions if r.region == name)

    def usd_per_hour(self, region: str) -> float:
        """What a VM of this cluster costs there."""
        spec = self.region(region)
        return spec.spot_usd_per_hour if self.spot else spec.usd_per_hour

    @property
    def cheapest_usd_per_hour(self) -> float:
        """What a VM costs in the cheapest region; nothing if there is none left."""
        return min((self.usd_per_hour(r.region) for r in self.regions), default=0.0)


class VmState(StrEnum):
    """The life of a VM. Whether a READY one is idle or busy follows from its leases."""

    REQUESTED = "REQUESTED"
    """Named and counted against the limit; the create call may or may not have been made. Asked
    for together with others, it waits in the cloud's own queue."""
    BOOTING = "BOOTING"
    """Seen in the cloud, not yet heard of on the bus."""
    READY = "READY"
    """Its agent has said READY: it may hold leases."""
    DRAINING = "DRAINING"
    """Cannot be assigned any more; deleted as soon as it holds no lease."""
    DELETING = "DELETING"
    """To be deleted by name; counted until observed gone."""
    GONE = "GONE"
    """Observed gone. Absorbs."""


V = VmState
VM_TRANSITIONS: Mapping[VmState, frozenset[VmState]] = {
    V.REQUESTED: frozenset({V.BOOTING, V.READY, V.DELETING, V.GONE}),
    V.BOOTING: frozenset({V.READY, V.DELETING, V.GONE}),
    V.READY: frozenset({V.DRAINING, V.DELETING, V.GONE}),
    V.DRAINING: frozenset({V.READY, V.DELETING, V.GONE}),
    V.DELETING: frozenset({V.GONE}),
    V.GONE: frozenset(),
}


LONG_S = 6 * 86400.0
"""A job that may run for longer than this is content with it: no VM that is asked for together with
others lasts longer than seven days, not even its own."""
V1_BOOT = "v1"
"""Stands for the boot of a worker that sends none."""


class IllegalVmMove(ZenError):
    """The VM's table has no such step."""

    code = "illegal_vm_move"


@dataclass(frozen=True, slots=True)
class Vm:
    """One VM as we know it. Identity is name + instance id + boot nonce: names come back."""

    uid: str
    name: str
    cluster: str
    region: str
    state: VmState
    version: int
    request_id: str
    gpus: int
    spot: bool
    usd_per_hour: float
    requested_at: datetime
    state_since: datetime
    zone: str = ""
    instance_id: str = ""
    boot_nonce: str = ""
    leases: tuple[str, ...] = ()
    """Lease ids that live on it."""
    running_since: datetime | None = None
    """First observed RUNNING: Google bills from here."""
    ready_at: datetime | None = None
    idle_since: datetime | None = None
    last_beat_at: datetime | None = None
    """Publish time of its newest beat, on the bus's clock."""
    stopped_at: datetime | None = None
    """First observed off: Google bills no further, though it is not gone yet."""
    gone_at: datetime | None = None
    refused: bool = False
    """Its group could not make it so far, for want of capacity, and goes on trying."""
    taken: bool = False
    """The cloud takes (or took) it: a spot preemption, not a loss."""
    reason: str = ""
    """Why it is in this state."""
    address: str = ""
    """Where other VMs of its network reach it; empty: by its name."""
    health: VmHealth = WELL
    """What is known against it: GPUs that get no new job, jobs that failed there."""
    kept_until: datetime | None = None
    """Its v1 worker has done its one job. Until then the VM is its owner's (keep_alive), or has
    time to delete itself; then it is deleted. `reason` says whose it is."""
    together: str = ""
    """The request by which it was asked for with others, all or none, for one gang. While that
    gang waits it is nobody else's."""
    ends_at: datetime | None = None
    """Of one that was asked for with others: when the cloud ends it."""
    caused_by: str | None = None
    """The uid of the job whose wait made the service ask for it; None: a floor, or nobody."""
    idle_max_s: float = 0.0
    """How long it may idle, as configured when it was asked for."""
    leaving_since: datetime | None = None
    """Since when it is DRAINING or DELETING."""

    @property
    def slots(self) -> int:
        """How many parts of it can be leased: its GPUs, or the one of a VM without GPUs."""
        return max(1, self.gpus)

    @property
    def queued(self) -> bool:
        """Asked for with others, and not given yet: it waits in the cloud's own queue."""
        return bool(self.together) and self.state is V.REQUESTED

    @property
    def taken_words(self) -> str:
        """That the cloud took it, and why."""
        return f"{self.name} was taken back by the cloud ({'spot' if self.spot else self.reason})"

    @property
    def gang(self) -> str:
        """For whom it was asked for; empty: for nobody in particular."""
        return gang_of(self.together) if self.together else ""

    def lasts(self, run_s: float, now: datetime) -> bool:
        """Whether the cloud leaves it to a job that may run so long."""
        if self.ends_at is None:
            return True
        return (self.ends_at - now).total_seconds() >= min(run_s, LONG_S)

    @property
    def speaks_v1(self) -> bool:
        """A v1 worker lives on it: it cannot be told what to do, and never freezes its job."""
        return self.boot_nonce == V1_BOOT

    @property
    def idle(self) -> bool:
        return self.state is V.READY and not self.leases

    @property
    def busy(self) -> bool:
        return bool(self.leases)

    @property
    def counted(self) -> bool:
        """Counts against the limit until observed gone."""
        return self.state is not V.GONE


_VM_PARTS = tuple(
    (slot.__get__, slot.__set__) for slot in (getattr(Vm, name) for name in Vm.__slots__)
)


def heard(vm: Vm, at: datetime | None) -> Vm:
    """The same VM with another newest beat. A fleet of thousands reports every few seconds: this
    takes a third of the time of `replace`."""
    copy = object.__new__(Vm)
    for read, write in _VM_PARTS:
        write(copy, read(vm))
    object.__setattr__(copy, "last_beat_at", at)
    return copy


def move_vm(vm: Vm, state: VmState, now: datetime, reason: str, **facts: object) -> Vm:
    """The VM in its next state, or IllegalVmMove. `facts` are fields learned with the step."""
    if state not in VM_TRANSITIONS[vm.state]:
        raise IllegalVmMove(f"VM {vm.name} is {vm.state}: it cannot become {state} ({reason})")
    leaving = (vm.leaving_since or now) if state in (V.DRAINING, V.DELETING) else None
    moved = replace(
        vm,
        state=state,
        version=vm.version + 1,
        state_since=now,
        reason=reason,
        leaving_since=vm.leaving_since if state is V.GONE else leaving,
    )
    if state is V.GONE:
        moved = replace(moved, gone_at=now)
    if state is V.READY and vm.ready_at is None:
        moved = replace(moved, ready_at=now, idle_since=now)
    return replace(moved, **facts)  # type: ignore[arg-type]  # facts are checked by replace() itself


def take_lease(vm: Vm, lease_id: str) -> Vm:
    """The VM holding one more lease. The version grows, so a racing drain loses."""
    assert vm.state is V.READY, f"{vm.name} is {vm.state}, only a READY VM takes work"
    return replace(vm, version=vm.version + 1, leases=(*vm.leases, lease_id), idle_since=None)


def drop_lease(vm: Vm, lease_id: str, now: datetime) -> Vm:
    """The VM without that lease; idle from now if it was the last."""
    left = tuple(held for held in vm.leases if held != lease_id)
    return replace(
        vm, version=vm.version + 1, leases=left, idle_since=now if not left else vm.idle_since
    )


UNCLAIMED_REASON = "the VM did not claim the job in time"
"""Of a VM that was given up for it: by these words it is known as such."""


class TroubleKind(StrEnum):
    """What keeps a region from delivering; each has its own waiting time."""

    STOCKOUT = "stockout"
    QUOTA = "quota"
    UNSUPPORTED = "unsupported"
    ADDRESS_SPACE = "address_space"
    PERMISSION = "permission"
    MISSING = "missing"
    """The group does not exist: a configuration fault."""
    UNREADY = "unready"
    """VMs come up, are paid for, and their workers never say READY."""
    UNCLAIMED = "unclaimed"
    """Workers say READY, are given a job, and never claim it."""
    OTHER = "other"


EVERYWHERE = "global"
NEVER_WORKS = frozenset({TroubleKind.UNREADY, TroubleKind.UNCLAIMED})
"""The cloud has delivered, in vain: that a VM runs does not end these, that one works does."""
BAD_LUCK_MAX = 2
"""So many VMs in a row that never get to work are bad luck; the next one is a fault of the place as
it is set up, and blocks it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Typed, durable, decaying knowledge about one (region, zone, machine type, spot)."""

    region: str
    zone: str
    """Empty: the whole region. EVERYWHERE: it was met in another region, and holds for all."""
    machine_type: str
    spot: bool
    kind: TroubleKind
    since: datetime
    last_seen: datetime
    until: datetime
    count: int
    """How many times in a row; the block doubles with it."""
    message: str

    @property
    def key(self) -> tuple[str, str, str, bool, str]:
        return (self.region, self.zone, self.machine_type, self.spot, str(self.kind))

    def blocks(self, now: datetime) -> bool:
        return now < self.until

    def concerns(self, spec: ClusterSpec) -> bool:
        """Whether it was met with VMs of the cluster's kind."""
        return (self.machine_type, self.spot) == (spec.offering, spec.spot)

    @property
    def holds_region(self) -> bool:
        """Whether it concerns the whole region, and not one of its zones."""
        return self.zone in ("", EVERYWHERE)

    @property
    def is_fault(self) -> bool:
        """Of VMs that never get to work: more than bad luck."""
        return self.kind in NEVER_WORKS and self.count > BAD_LUCK_MAX

    @property
    def words(self) -> str:
        """What stands in the way. A group that is not there has no moment to wait for: it is looked
        at again and again, and right after an edit it may just not be made yet."""
        if self.kind is TroubleKind.MISSING:
            return "has no group yet (new, or still to be made: zen infra gcloud)"
        if self.kind in NEVER_WORKS:
            again = f"{self.until:%H:%M:%S} UTC"
            return f"brings up VMs that do not get to work, tried again at {again} (zen alerts)"
        return f"{self.noun} until {self.until:%H:%M:%S} UTC"

    @property
    def noun(self) -> str:
        """Its kind, as people are told of it."""
        if self.kind is TroubleKind.MISSING:
            return "no group yet"
        if self.kind is TroubleKind.OTHER:
            return "refused by the cloud"
        return f"{self.kind} of all regions" if self.zone == EVERYWHERE else str(self.kind)


def block_on(
    troubles: Iterable[Trouble], spec: ClusterSpec, region: str, now: datetime
) -> Trouble | None:
    """What blocks the cluster in a region now: the block that ends last."""
    here = (t for t in troubles if t.region == region and t.concerns(spec))
    blocks = [t for t in here if t.blocks(now)]
    return max(blocks, key=attrgetter("until"), default=None)


@dataclass(frozen=True, slots=True)
class AttemptError:
    """One of Google's reasons why a member could not be created."""

    code: str
    message: str
    reason: str = ""
    zones_available: tuple[str, ...] = ()
    """Zones that Google names as having room."""
    zone: str = ""
    """Where it was tried; empty if Google does not say."""
    quota: str = ""
    """The quota that is spent: metric and limit by Google's names."""


class OperationFailed(CloudRefused):
    """The cloud accepted a call and then failed it. What it did not list by then never comes."""

    code = "operation_failed"

    def __init__(self, message: str, errors: tuple[AttemptError, ...]) -> None:
        super().__init__(message)
        self.errors = errors


@dataclass(frozen=True, slots=True)
class GroupError:
    """One line of a group's own history of errors: all that is left of a member that is gone."""

    at: datetime
    """On Google's clock."""
    name: str
    action: str
    error: AttemptError


@dataclass(frozen=True, slots=True)
class Member:
    """A managed instance as the group lists it. It has a name before there is a VM."""

    name: str
    zone: str
    action: str
    """Google's currentAction: NONE, CREATING, DELETING, …"""
    status: str
    """Google's instanceStatus; empty until the VM exists."""
    instance_id: str = ""
    errors: tuple[AttemptError, ...] = ()
    terminates_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MigSnapshot:
    """One observation of one group: the only truth about its VMs."""

    mig: str
    cluster: str
    region: str
    target_size: int
    stable: bool
    members: tuple[Member, ...]
    observed_at: datetime
    faults: tuple[str, ...] = ()
    """Settings of the group that work against us, in words."""
    deadly: tuple[str, ...] = ()
    """Those of them that kill running work: nothing is added to such a group."""
    errors: tuple[GroupError, ...] = ()
    """Recent failures of members that are not listed any more, each told once."""
    requests: tuple[Queued, ...] = ()
    """Requests for several VMs at once, if they were asked after."""


@dataclass(frozen=True, slots=True)
class CapacityHint:
    """What the cloud itself says about its chances to deliver. A hint, never a promise."""

    region: str
    zone: str
    """Empty: the whole region."""
    machine_type: str
    spot: bool
    score: float
    """0 to 1: how likely one more VM is to be had."""
    at: datetime
    uptime_s: float | None = None
    """How long most such VMs run before they are taken; None: not said."""


@dataclass(frozen=True, slots=True)
class Create:
    """Ask the group for VMs with these names."""

    region: str
    names: tuple[str, ...]
    request_id: str
    reason: str
    causes: tuple[str, ...] = ()
    """For each name, the job whose wait made us ask; empty: a floor, or not said."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly these members."""

    region: str
    names: tuple[str, ...]
    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Queue:
    """Ask for these VMs all at once or not at all, whenever there is room for them together."""

    region: str
    name: str
    """Of the request itself: it is looked for and cancelled by it."""
    names: tuple[str, ...]
    run_s: float
    """The cloud deletes the VMs after this long."""
    request_id: str
    reason: str
    causes: tuple[str, ...] = ()
    """For each name, the member of the gang that it is for."""


class QueueState(StrEnum):
    """Where a request for several VMs at once stands."""

    CREATING = "CREATING"
    ACCEPTED = "ACCEPTED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def final(self) -> bool:
        return self not in (QueueState.CREATING, QueueState.ACCEPTED)


@dataclass(frozen=True, slots=True)
class Queued:
    """A request for several VMs at once, as the cloud shows it."""

    name: str
    state: QueueState
    vms: int
    run_s: float
    errors: tuple[AttemptError, ...] = ()
    """Why it failed; while it waits, what stood in its way last."""


@dataclass(frozen=True, slots=True)
class Unqueue:
    """Give up a request for several VMs at once that still waits."""

    region: str
    name: str
    """Of the request."""
    names: tuple[str, ...]
    """Of its VMs."""
    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop placing work on this VM; delete it once it holds no lease."""

    vm_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Do nothing here, and this is why. `region` is empty for the whole cluster."""

    region: str
    reason: str
    jobs: tuple[str, ...] = ()
    """The first of the jobs that could use a VM there."""


@dataclass(frozen=True, slots=True)
class Undrain:
    """Work has come back before the VM was deleted: it may be assigned again."""

    vm_name: str
    reason: str


CloudCall = Create | Delete | Queue | Unqueue
"""What a group is asked to do."""
Action = CloudCall | Drain | Undrain | Hold


@dataclass(frozen=True, slots=True)
class Wish:
    """One VM, for a job that is admitted but has none."""

    regions: tuple[str, ...] = ()
    """Those that the job allows; empty: any."""
    max_usd_per_hour: float | None = None
    """What the VM may cost at most."""
    since: datetime | None = None
    """How long it has waited: patience for prices grows with it. None: nobody waits (a floor)."""
    start_by: datetime | None = None
    """A job with a deadline takes any price that it allows from here on; before, it waits for one
    within the price band."""
    left_s: float = 0.0
    """What remains of its run, if it has a deadline."""
    priority: int = 500
    denied: tuple[str, ...] = ()
    """Regions that the job does not allow."""
    gpus: int = 1
    """How many of the VM's GPUs it needs, where jobs share VMs; the same for the next two."""
    cpus: float = 0.0
    memory_mb: float = 0.0
    gang: str = ""
    """Whose member it is; empty: nobody's."""
    run_s: float = 0.0
    """How long it may run."""
    job: str = ""
    """The uid of the job that waits; of several that share a VM, the first in the queue. Empty: a
    floor."""

    def allows(self, region: str, usd_per_hour: float) -> bool:
        """Whether a VM there, at that price, serves it."""
        cheap = self.max_usd_per_hour is None or usd_per_hour <= self.max_usd_per_hour
        return cheap and self.in_reach(region)

    def served_by(self, vm: Vm, now: datetime) -> bool:
        """Whether that VM would do; one that is a gang's, for its members only."""
        able = vm.gang == self.gang if vm.together else vm.lasts(self.run_s, now)
        return able and self.allows(vm.region, vm.usd_per_hour)

    def waited_s(self, now: datetime) -> float:
        return 0.0 if self.since is None else max(0.0, (now - self.since).total_seconds())

    def has_slack(self, now: datetime) -> bool:
        """Whether it has a deadline, and time to wait for a better price."""
        return self.start_by is not None and now < self.start_by

    def in_reach(self, region: str) -> bool:
        return region not in self.denied and (not self.regions or region in self.regions)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a cluster is asked for, in the order of the queue."""

    cluster: str
    wishes: tuple[Wish, ...] = ()
