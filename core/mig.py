"""What a managed instance group is observed to hold, and the errors it reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from core.errors import CloudRefused


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
