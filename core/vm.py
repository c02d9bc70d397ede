"""A VM: what is known of it, and its table of transitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from core.errors import ZenError
from core.health import WELL, VmHealth
from core.names import gang_of


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
    """Publish time of its newest heartbeat, on the bus's clock."""
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
    """The same VM with another newest heartbeat. A fleet of thousands reports every few seconds:
    this takes a third of the time of `replace`."""
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
