"""What the orchestrator decides to do: calls to the cloud, drains, and holds with a reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Create:
    """Ask the group for VMs with these names."""

    region: str
    names: tuple[str, ...]
    request_id: str
    reason: str
    causes: tuple[str | None, ...] = ()
    """For each name, the job whose wait made us ask; None: a floor, or not said."""


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
    causes: tuple[str | None, ...] = ()
    """For each name, the member of the gang that it is for."""


@dataclass(frozen=True, slots=True)
class Unqueue:
    """Cancel a request for several VMs at once that still waits."""

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
class NoAction:
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

Action = CloudCall | Drain | Undrain | NoAction
