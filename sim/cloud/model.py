"""The things inside the pretend cloud: VMs, members of groups, operations, and what happens to
them. Mutable records belong to ``physics`` alone; values that leave it are frozen."""

from collections import Counter, deque
from dataclasses import dataclass, field
from enum import StrEnum

from sim.cloud.world import MigSpec

ERROR_HISTORY_MAX = 500


class ApiError(Exception):
    """A call that Google would refuse, with its HTTP status and reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        super().__init__(f"{status} {reason}: {message}")


class InstanceStatus(StrEnum):
    PROVISIONING = "PROVISIONING"
    STAGING = "STAGING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"


class Action(StrEnum):
    """What a group is doing with a member."""

    NONE = "NONE"
    CREATING = "CREATING"
    RECREATING = "RECREATING"
    DELETING = "DELETING"
    ABANDONING = "ABANDONING"


LEAVING = frozenset({Action.DELETING, Action.ABANDONING})
GROWING = frozenset({Action.CREATING, Action.RECREATING})


@dataclass(frozen=True, slots=True)
class VmInfo:
    """Who a VM is. The id is never used again; the name may be."""

    id: int
    name: str
    zone: str
    region: str
    mig: str
    machine_type: str
    gpus: int
    spot: bool
    metadata: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    driver: bool = True  # its GPUs can be used
    created_at: float = 0.0


class EffectKind(StrEnum):
    POWER_ON = "power on"
    SPOT_NOTICE = "spot notice"
    MAINTENANCE_NOTICE = "maintenance notice"
    SOFT_OFF = "soft off"
    """ACPI G2: the guest's init ends its services, each by SIGTERM. The power goes later."""
    POWER_OFF = "power off"


@dataclass(frozen=True, slots=True)
class Effect:
    """What happens to a machine."""

    kind: EffectKind
    vm: VmInfo
    at: float


@dataclass(frozen=True, slots=True)
class CreateFailure:
    """Why an attempt to create a VM failed, in Google's words."""

    code: str
    message: str
    zone: str
    reason: str = ""
    metadatas: tuple[tuple[str, str], ...] = ()
    localized: str = ""
    quota: tuple[str, float] | None = None  # metric, limit


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """One line of a group's listErrors history. It survives a later success."""

    at: float
    failure: CreateFailure
    action: Action
    name: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """Capacity and quota that one VM takes."""

    pool: tuple[str, str, bool]  # zone, machine type, spot
    quotas: tuple[tuple[tuple[str, str], int], ...]  # (region, metric), amount


@dataclass(slots=True)
class Timed:
    """Something with timers. A new plan makes the timers of the old one void."""

    plan: int = 0


@dataclass(slots=True, kw_only=True)
class PretendVm(Timed):
    info: VmInfo
    created_at: float
    status: InstanceStatus = InstanceStatus.PROVISIONING
    powered: bool = False
    preempted: bool = False
    told_off: bool = False  # the soft off was sent
    deleting: bool = False  # by instances.delete
    member: "PretendInstance | None" = None
    hold: Allocation | None = None


@dataclass(slots=True, kw_only=True)
class PretendInstance(Timed):
    """A name in a group. It exists before its VM does, and after its VM failed."""

    name: str
    mig: "Mig"
    zone: str
    action: Action = Action.NONE
    vm: PretendVm | None = None
    hold: Allocation | None = None  # capacity taken in `zone` for a VM that is not there yet
    failure: CreateFailure | None = None
    ends_at: float | None = None  # when the cloud deletes its VM: the end of a requested run

    @property
    def leaving(self) -> bool:
        return self.action in LEAVING


class RequestState(StrEnum):
    """Where a request for several VMs at once stands."""

    ACCEPTED = "ACCEPTED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@dataclass(slots=True, kw_only=True)
class ResizeRequest(Timed):
    """All of its members get a VM at once, or none does."""

    name: str
    id: int
    created_at: float
    run_s: float
    members: "tuple[PretendInstance, ...]"
    by_count: bool  # the group invented the names
    state: RequestState = RequestState.ACCEPTED
    failure: CreateFailure | None = None


@dataclass(slots=True, kw_only=True)
class Mig:
    spec: MigSpec
    id: int
    created_at: float
    target_size: int = 0
    members: dict[str, PretendInstance] = field(default_factory=dict)
    errors: deque[ErrorRecord] = field(default_factory=lambda: deque(maxlen=ERROR_HISTORY_MAX))
    requests: dict[str, ResizeRequest] = field(default_factory=dict)

    def counts(self) -> dict[Action, int]:
        counts = dict.fromkeys(Action, 0)
        for member in self.members.values():
            counts[member.action] += 1
        return counts

    def zones_in_use(self) -> Counter[str]:
        held = (m for m in self.members.values() if m.hold or (m.vm and m.vm.hold))
        return Counter(m.zone for m in held)

    @property
    def is_stable(self) -> bool:
        return all(m.action is Action.NONE for m in self.members.values())


@dataclass(frozen=True, slots=True)
class Operation:
    id: int
    name: str
    type: str
    target: str  # the path of the resource, under projects/…
    scope: str  # "regions/us-central1" or "zones/us-central1-a"
    at: float
    done_at: float
    client_operation_id: str | None = None
    error: CreateFailure | None = None  # it ends with it, and has done nothing
