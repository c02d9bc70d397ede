"""What Compute answers, as our values. Protobuf in, frozen dataclasses out."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from core.mig import GroupError, Leaving, MachineState, ManagedInstance, Queued, QueueState, Refusal
from migs.classify import ComputeError, refusal

_MACHINES = {
    "": MachineState.NONE,
    "PENDING": MachineState.WAITING,
    "PROVISIONING": MachineState.STARTING,
    "STAGING": MachineState.STARTING,
    "REPAIRING": MachineState.STARTING,
    "RUNNING": MachineState.RUNNING,
    "TERMINATED": MachineState.OFF,
    "STOPPED": MachineState.OFF,
    "SUSPENDED": MachineState.OFF,
}
_CREATES = frozenset({"", "CREATING", "CREATING_WITHOUT_RETRIES", "RECREATING"})
_ZONE = re.compile(r"(?:^|/)zones/([^/]+)(?:/|\Z)")


def zone_of(url: str) -> str:
    """The zone in a resource's URL; empty if it names none."""
    found = _ZONE.search(url)
    return found[1] if found else ""


def machine_state(status: str) -> MachineState:
    """Google's instanceStatus. Whatever else Google may say of it, it is no place for a job."""
    return _MACHINES.get(status, MachineState.STOPPING)


def leaving(action: str) -> Leaving | None:
    """Google's currentAction, as far as it ends the membership."""
    return Leaving.__members__.get(action)


def is_creation(action: str) -> bool:
    """Whether the group was about to create the member."""
    return action in _CREATES


def read_member(managed: Any) -> ManagedInstance:
    """A managed instance. Its URL, and so its zone, is there before the VM is."""
    zone = zone_of(managed.instance)
    return ManagedInstance(
        name=managed.name or managed.instance.rpartition("/")[2],
        zone=zone,
        machine=machine_state(managed.instance_status),
        instance_id=str(managed.id) if managed.id else "",
        leaving=leaving(managed.current_action),
        refusals=tuple(_read_error(error, zone) for error in managed.last_attempt.errors.errors),
        terminates_at=_read_time(managed.scheduling.termination_timestamp),
    )


def read_group_error(item: Any) -> GroupError | None:
    """A line of listErrors; None if it does not say when, or is not about creating a member."""
    at = _read_time(item.timestamp)
    if at is None or not is_creation(item.instance_action_details.action):
        return None
    instance = item.instance_action_details.instance
    error = ComputeError(item.error.code, item.error.message, zone=zone_of(instance))
    return GroupError(
        at=at,
        name=instance.rpartition("/")[2],
        refusal=refusal(error),
    )


def read_queued(request: Any) -> Queued:
    """A resize request. Its final error counts; while it waits, the last attempt's."""
    errors = request.status.error.errors or request.status.last_attempt.error.errors
    return Queued(
        name=request.name,
        state=QueueState.__members__.get(request.state, QueueState.CREATING),
        vms=request.resize_by or len(request.instances),
        run_s=float(request.requested_run_duration.seconds),
        refusals=read_errors(errors),
    )


def read_errors(errors: Any) -> tuple[Refusal, ...]:
    """Those of an operation."""
    return tuple(_read_error(error, "") for error in errors)


def _read_error(error: Any, zone: str) -> Refusal:
    infos = [detail.error_info for detail in error.error_details]

    def said(key: str) -> str:
        return next((info.metadatas[key] for info in infos if key in info.metadatas), "")

    quotas = [detail.quota_info for detail in error.error_details]
    zones = (zone_of(name) or name.strip() for name in said("zonesAvailable").split(","))
    found = ComputeError(
        code=error.code,
        message=error.message,
        reason=next((info.reason for info in infos if info.reason), ""),
        zones_available=tuple(name for name in zones if name),
        zone=said("zone") or zone,
        quota=" ".join(f"{q.metric_name} {q.limit_name}".strip() for q in quotas).strip(),
    )
    return refusal(found)


def _read_time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None  # also the empty text of a VM without an end
    return moment if moment.tzinfo is not None else None
