"""What Compute answers, as our values. Protobuf in, frozen dataclasses out."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from core.capacity import AttemptError, Member
from core.errors import Fault

LEAVING = frozenset({"DELETING", "ABANDONING"})
_ZONE = re.compile(r"(?:^|/)zones/([^/]+)(?:/|\Z)")


def zone_of(url: str) -> str:
    """The zone in a resource's URL; empty if it names none."""
    found = _ZONE.search(url)
    return found[1] if found else ""


def read_member(managed: Any) -> Member:
    """A managed instance. Its URL, and so its zone, is there before the VM is."""
    return Member(
        name=managed.name or managed.instance.rpartition("/")[2],
        zone=zone_of(managed.instance),
        action=managed.current_action or "NONE",
        status=managed.instance_status,
        instance_id=str(managed.id) if managed.id else "",
        errors=tuple(_read_error(error) for error in managed.last_attempt.errors.errors),
        terminates_at=_read_time(managed.scheduling.termination_timestamp),
    )


def _read_error(error: Any) -> AttemptError:
    infos = [detail.error_info for detail in error.error_details]
    reason = next((info.reason for info in infos if info.reason), "")
    named = next(
        (i.metadatas["zonesAvailable"] for i in infos if "zonesAvailable" in i.metadatas), ""
    )
    return AttemptError(
        code=error.code,
        message=error.message,
        reason=reason,
        zones_available=tuple(zone.strip() for zone in named.split(",") if zone.strip()),
    )


def _read_time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None  # also the empty text of a VM without an end
    return moment if moment.tzinfo is not None else None


def group_faults(group: Any) -> list[Fault]:
    """Settings of a group under which it would work against us. Empty means Google's default."""
    action = group.instance_lifecycle_policy.default_action_on_failure or "REPAIR"
    shape = group.distribution_policy.target_shape or "EVEN"
    moves = group.update_policy.instance_redistribution_type or "PROACTIVE"
    found = []
    if action != "DO_NOTHING":
        found.append(
            Fault(
                f"{group.name}: instanceLifecyclePolicy.defaultActionOnFailure",
                action,
                "DO_NOTHING: else the group makes stopped VMs anew, without a job, for ever",
            )
        )
    if shape == "EVEN" and moves != "NONE":
        found.append(
            Fault(
                f"{group.name}: distributionPolicy.targetShape",
                f"{shape} with updatePolicy.instanceRedistributionType {moves}",
                "ANY or ANY_SINGLE_ZONE, or redistribution NONE: else it deletes busy VMs to "
                "even out its zones",
            )
        )
    if group.status.autoscaler:
        found.append(
            Fault(
                f"{group.name}: autoscaler",
                group.status.autoscaler,
                "none: else it chooses victims among busy VMs",
            )
        )
    return found
