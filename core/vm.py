"""A VM: what is known of it, its states, and the one table of transitions.

Nobody assigns `vm.state`, and no other module compares it: `advance_vm()` is the only way
to another state, and it either follows the table or raises IllegalTransition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict, Unpack

from core.cluster import ClusterSpec, WorkerKind
from core.errors import IllegalTransition
from core.health import WELL, VmHealth
from core.names import gang_of
from core.slots import slots_of
from core.worker_identity import ProvenKeys


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

    @property
    def unseen(self) -> bool:
        """Asked for, and not yet seen in the cloud."""
        return self is V.REQUESTED

    @property
    def booting(self) -> bool:
        """Seen in the cloud, and its worker has not spoken."""
        return self is V.BOOTING

    @property
    def in_flight(self) -> bool:
        """Asked for, and its worker has not spoken: it is still to come."""
        return self is V.REQUESTED or self is V.BOOTING

    @property
    def ready(self) -> bool:
        """Its worker is there, and may be given work."""
        return self is V.READY

    @property
    def up(self) -> bool:
        """Its worker is there; it may have jobs."""
        return self is V.READY or self is V.DRAINING

    @property
    def draining(self) -> bool:
        """Gets no new work; what it has may end."""
        return self is V.DRAINING

    @property
    def deleting(self) -> bool:
        """To be deleted, and not yet observed gone."""
        return self is V.DELETING

    @property
    def leaving(self) -> bool:
        """Gets no new work, and is still there."""
        return self is V.DRAINING or self is V.DELETING

    @property
    def beyond_use(self) -> bool:
        """To be deleted, or gone: no event brings it back."""
        return self is V.DELETING or self is V.GONE

    @property
    def gone(self) -> bool:
        """Observed gone: it counts against no limit any more."""
        return self is V.GONE


class VmEvent(StrEnum):
    """What can happen to a VM."""

    REQUESTED = "requested"
    """The plan asks for it: its name is stored before the call is made."""
    ADOPTED = "adopted"
    """Found in one of our groups without a row: it is stored in order to be deleted."""
    LISTED = "listed"
    """Its group lists it."""
    WORKER_READY = "worker_ready"
    """Its worker speaks for the first time."""
    DRAIN_ASKED = "drain_asked"
    """It is not needed, or not trusted: what it has may end, nothing new comes."""
    DRAIN_WITHDRAWN = "drain_withdrawn"
    """Work has come back before it was deleted."""
    RECLAIM_NOTICED = "reclaim_noticed"
    """The cloud has announced that it takes the VM back."""
    DELETE_ASKED = "delete_asked"
    """The service gives it back, or gives it up."""
    CLOUD_ENDED = "cloud_ended"
    """Its machine is off, another one, or being deleted, by the cloud's doing or its worker's."""
    CREATE_FAILED = "create_failed"
    """Its create call was refused, or was accepted and failed: it never comes."""
    NOT_LISTED = "not_listed"
    """Its group does not list it (any more)."""


class GivenUp(StrEnum):
    """What a worker did not do in time, so that its VM goes."""

    UNCLAIMED = "unclaimed"
    UNSTARTED = "unstarted"
    NOT_YIELDED = "not_yielded"
    UNREACHABLE = "unreachable"
    """The bus refuses what it is told."""


V = VmState
E = VmEvent

VM_BEGINNINGS: Mapping[VmEvent, VmState] = {E.REQUESTED: V.REQUESTED, E.ADOPTED: V.DELETING}
VM_TRANSITIONS: Mapping[tuple[VmState, VmEvent], VmState] = {
    (V.REQUESTED, E.LISTED): V.BOOTING,
    (V.REQUESTED, E.WORKER_READY): V.READY,
    (V.REQUESTED, E.DELETE_ASKED): V.DELETING,
    (V.REQUESTED, E.CLOUD_ENDED): V.DELETING,
    (V.REQUESTED, E.CREATE_FAILED): V.GONE,
    (V.REQUESTED, E.NOT_LISTED): V.GONE,
    (V.BOOTING, E.WORKER_READY): V.READY,
    (V.BOOTING, E.DELETE_ASKED): V.DELETING,
    (V.BOOTING, E.CLOUD_ENDED): V.DELETING,
    (V.BOOTING, E.NOT_LISTED): V.GONE,
    (V.READY, E.DRAIN_ASKED): V.DRAINING,
    (V.READY, E.RECLAIM_NOTICED): V.DRAINING,
    (V.READY, E.DELETE_ASKED): V.DELETING,
    (V.READY, E.CLOUD_ENDED): V.DELETING,
    (V.READY, E.NOT_LISTED): V.GONE,
    (V.DRAINING, E.DRAIN_WITHDRAWN): V.READY,
    (V.DRAINING, E.DELETE_ASKED): V.DELETING,
    (V.DRAINING, E.CLOUD_ENDED): V.DELETING,
    (V.DRAINING, E.NOT_LISTED): V.GONE,
    (V.DELETING, E.CREATE_FAILED): V.GONE,
    (V.DELETING, E.NOT_LISTED): V.GONE,
}
# Repeats of what is already so, and news that comes too late: the state stays.
VM_REPEATS: frozenset[tuple[VmState, VmEvent]] = frozenset(
    {
        (V.BOOTING, E.LISTED),
        (V.READY, E.LISTED),
        (V.DRAINING, E.LISTED),
        (V.DRAINING, E.DRAIN_ASKED),
        (V.DELETING, E.DRAIN_ASKED),
        (V.GONE, E.DRAIN_ASKED),
        (V.DRAINING, E.RECLAIM_NOTICED),
        (V.DELETING, E.RECLAIM_NOTICED),
        (V.GONE, E.RECLAIM_NOTICED),
        (V.DELETING, E.DELETE_ASKED),
        (V.GONE, E.DELETE_ASKED),
    }
)


LONG_S = 6 * 86400.0
"""A job that may run for longer than this is content with it: no VM that is asked for together with
others lasts longer than seven days, not even its own."""


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
    """First observed RUNNING: it is billed from here."""
    ready_at: datetime | None = None
    idle_since: datetime | None = None
    last_beat_at: datetime | None = None
    """Publish time of its newest heartbeat, on the bus's clock."""
    stopped_at: datetime | None = None
    """First observed off: it is billed no further, though it is not gone yet."""
    gone_at: datetime | None = None
    refused: bool = False
    """Its group could not make it so far, for want of capacity, and goes on trying."""
    taken: bool = False
    """The cloud takes (or took) it: a spot preemption, not a loss."""
    reason: str = ""
    """Why it is in this state."""
    given_up: GivenUp | None = None
    """Why, if its worker is given up."""
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
    billed_at_least_s: float = 60.0
    """Its shortest bill, by the terms of its cloud when it was asked for."""
    worker: WorkerKind = "v2"
    """What was heard from it: the agent, or a v1 worker, which has claimed a job."""
    worker_keys: ProvenKeys | None = None
    """Of the boot that `boot_nonce` names: what its worker says is checked with them."""
    heard_seq: int = 0
    """The highest sequence number heard of that boot: what comes again shows no life."""

    @property
    def slots(self) -> int:
        """How many parts of it can be leased: its GPUs, or the one of a VM without GPUs."""
        return slots_of(self.gpus)

    @property
    def queued(self) -> bool:
        """Asked for with others, and not given yet: it waits in the cloud's own queue."""
        return bool(self.together) and self.state is V.REQUESTED

    @property
    def never_seen(self) -> bool:
        """No machine of its name was ever seen, although it may be to be deleted by now."""
        waits = self.state is V.REQUESTED or self.state is V.DELETING
        return waits and not self.zone and not self.instance_id

    @property
    def reclaimed_words(self) -> str:
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
        return self.worker == "v1"

    @property
    def idle(self) -> bool:
        return self.state is V.READY and not self.leases

    @property
    def busy(self) -> bool:
        return bool(self.leases)

    @property
    def assignable(self) -> bool:
        """It may be given work: its worker is there, and the cloud leaves the VM to us."""
        return self.state is V.READY and not self.taken and bool(self.boot_nonce)

    @property
    def worker_may_run(self) -> bool:
        """A job that it was given may still run there: it has not been seen off."""
        return self.state is not V.GONE and not (self.state is V.DELETING and not self.boot_nonce)

    @property
    def counted(self) -> bool:
        """Counts against the limit until observed gone."""
        return self.state is not V.GONE

    def boot_deadline(self, boot_timeout_s: float) -> datetime:
        """When it must be READY. Of what was asked for together the time counts from when it was
        given."""
        begun = self.state_since if self.together else self.requested_at
        return begun + timedelta(seconds=boot_timeout_s)

    def has_boot_timed_out(self, boot_timeout_s: float, now: datetime) -> bool:
        """It is in flight for too long; what waits in the cloud's own queue may take its time."""
        if self.queued or not self.state.in_flight:
            return False
        return now > self.boot_deadline(boot_timeout_s)


class VmFacts(TypedDict, total=False):
    """What may be learned of a VM, with a step or without one."""

    zone: str
    instance_id: str
    boot_nonce: str
    worker_keys: ProvenKeys | None
    heard_seq: int
    worker: WorkerKind
    address: str
    running_since: datetime | None
    stopped_at: datetime | None
    ends_at: datetime | None
    kept_until: datetime | None
    refused: bool
    taken: bool
    given_up: GivenUp | None
    health: VmHealth


_VM_PARTS = tuple(
    (slot.__get__, slot.__set__) for slot in (getattr(Vm, name) for name in Vm.__slots__)
)


def heard(vm: Vm, at: datetime | None, seq: int = 0) -> Vm:
    """The same VM with another newest heartbeat. A fleet of thousands reports every few seconds:
    this takes a third of the time of `replace`."""
    copy = object.__new__(Vm)
    for read, write in _VM_PARTS:
        write(copy, read(vm))
    object.__setattr__(copy, "last_beat_at", at)
    if seq > vm.heard_seq:
        object.__setattr__(copy, "heard_seq", seq)
    return copy


def new_vm(
    spec: ClusterSpec,
    region: str,
    *,
    uid: str,
    name: str,
    now: datetime,
    reason: str,
    event: VmEvent = E.REQUESTED,
) -> Vm:
    """A VM of the cluster as it is first stored: asked for, or adopted from a group. In a region
    that was withdrawn from the cluster its price is that of the cheapest."""
    priced = any(known.region == region for known in spec.regions)
    return Vm(
        uid=uid,
        name=name,
        cluster=spec.name,
        region=region,
        state=VM_BEGINNINGS[event],
        version=1,
        request_id="",
        gpus=spec.gpus,
        spot=spec.spot,
        usd_per_hour=spec.usd_per_hour(region) if priced else spec.cheapest_usd_per_hour,
        requested_at=now,
        state_since=now,
        reason=reason,
        billed_at_least_s=spec.terms.billed_at_least_s,
    )


def advance_vm(vm: Vm, event: VmEvent, now: datetime, reason: str, **facts: Unpack[VmFacts]) -> Vm:
    """The VM after the event, or IllegalTransition. A repeat leaves the state as it is. `facts` are
    learned with the event, also with a repeat."""
    if (vm.state, event) in VM_REPEATS:
        return with_facts(vm, **facts)
    state = VM_TRANSITIONS.get((vm.state, event))
    if state is None:
        raise IllegalTransition(f"VM {vm.name}", vm.state, f"{event} ({reason})")
    began = state is V.READY and vm.ready_at is None
    moved = replace(
        vm,
        state=state,
        version=vm.version + 1,
        state_since=now,
        reason=reason,
        given_up=None,
        leaving_since=_leaving_since(vm, state, now),
        gone_at=now if state is V.GONE else None,
        ready_at=now if began else vm.ready_at,
        idle_since=now if began else vm.idle_since,
    )
    return replace(moved, **facts)


def with_facts(vm: Vm, **facts: Unpack[VmFacts]) -> Vm:
    """The VM in the same state with what was learned of it; the same object if nothing is new."""
    if all(getattr(vm, name) == value for name, value in facts.items()):
        return vm
    return replace(vm, version=vm.version + 1, **facts)


def may_become(before: VmState, after: VmState) -> bool:
    """Whether one event leads from a state to the other."""
    return any(old is before and new is after for (old, _), new in VM_TRANSITIONS.items())


def vm_word(state: str, busy: bool) -> str:
    """The word people see for a VM in that state: a READY one is idle or busy."""
    if state == V.READY:
        return "busy" if busy else "idle"
    return state.lower()


def _leaving_since(vm: Vm, state: VmState, now: datetime) -> datetime | None:
    if state.leaving:
        return vm.leaving_since or now
    return vm.leaving_since if state is V.GONE else None


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
