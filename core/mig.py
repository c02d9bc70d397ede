"""What a managed instance group is observed to hold, and the errors it reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from core.cluster import SupplyKey
from core.errors import CloudRefused
from core.region_blocks import BlockKind


class MachineState(StrEnum):
    """What a group shows of a member's machine."""

    NONE = "none"
    """There is no machine yet."""
    WAITING = "waiting"
    """Asked for with others, it waits in the queue of the cloud: no machine was given yet."""
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    OFF = "off"
    """Nothing runs on it, and it is not billed any further."""

    @property
    def given(self) -> bool:
        """Whether the cloud has given a machine."""
        return self not in (MachineState.NONE, MachineState.WAITING)

    @property
    def ending(self) -> bool:
        """Whether the cloud ends the machine, or has."""
        return self in (MachineState.STOPPING, MachineState.OFF)


class Leaving(StrEnum):
    """How a member is about to leave its group."""

    DELETING = "deleting"
    ABANDONING = "abandoning"
    """Its machine stays, and is nobody's."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the cloud could not make a VM."""

    kind: BlockKind
    message: str
    """The cloud's words; of an error that nobody has classified, with its code."""
    zone: str = ""
    """Where it was tried; empty if the cloud does not say."""
    zones_available: tuple[str, ...] = ()
    """Zones that the cloud names as having room."""
    everywhere: bool = False
    """Whether no other region would do better."""


class OperationFailed(CloudRefused):
    """The cloud accepted a call and then failed it. What it did not list by then never comes."""

    code = "operation_failed"

    def __init__(self, message: str, refusals: tuple[Refusal, ...]) -> None:
        super().__init__(message)
        self.refusals = refusals


@dataclass(frozen=True, slots=True)
class GroupError:
    """One line of a group's own history of errors: a member that could not be made and is gone."""

    at: datetime
    """On the cloud's clock."""
    name: str
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class ManagedInstance:
    """A managed instance as the group lists it. It has a name before there is a VM."""

    name: str
    zone: str
    machine: MachineState
    instance_id: str = ""
    leaving: Leaving | None = None
    refusals: tuple[Refusal, ...] = ()
    """Why it could not be made so far."""
    terminates_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MigSnapshot:
    """One observation of one group: the only truth about its VMs."""

    mig: str
    cluster: str
    region: str
    target_size: int
    stable: bool
    members: tuple[ManagedInstance, ...]
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
    """What the cloud itself says about its chances to deliver. A hint, never a guarantee."""

    place: SupplyKey
    likely: bool
    """Whether the cloud calls the chances of one more VM good."""
    at: datetime


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
    refusals: tuple[Refusal, ...] = ()
    """Why it failed; while it waits, what stood in its way last."""
