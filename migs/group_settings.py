"""Settings of a group under which it would work against us, and the command that mends each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core.errors import Fault

_GENTLE = ("NONE", "REFRESH")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting that is wrong."""

    name: str
    got: str
    expected: str
    why: str
    command: str
    deadly: bool
    """It kills VMs that work: nothing may be added to the group."""

    def words(self, group: str) -> str:
        """Which, what it is, what it should be, why, and how to change it."""
        fault = Fault(f"{group}: {self.name}", self.got, self.expected)
        return f"{fault}: {self.why}. To mend it: {self.command}"


def check_group(group: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(all complaints, those that kill running work), in words. `group` is Google's message."""
    found = list(_wrong(group))
    every = tuple(setting.words(group.name) for setting in found)
    deadly = tuple(setting.words(group.name) for setting in found if setting.deadly)
    return every, deadly


def _wrong(group: Any) -> Iterator[Setting]:
    """An empty field means Google's default."""
    name, region = group.name, group.region.rpartition("/")[2]
    command = f"gcloud compute instance-groups managed update {name} --region={region}"
    yield from _failure(group, command)
    yield from _shape(group, command)
    yield from _updates(group, command)
    if group.status.autoscaler:
        yield Setting(
            "autoscaler",
            group.status.autoscaler,
            "none",
            "it chooses its victims among busy VMs",
            f"gcloud compute instance-groups managed stop-autoscaling {name} --region={region}",
            deadly=True,
        )


def _failure(group: Any, command: str) -> Iterator[Setting]:
    action = group.instance_lifecycle_policy.default_action_on_failure or "REPAIR"
    if action != "DO_NOTHING":
        yield Setting(
            "instanceLifecyclePolicy.defaultActionOnFailure",
            action,
            "DO_NOTHING",
            "the group makes stopped VMs anew, without a job, for ever",
            f"{command} --default-action-on-vm-failure=do-nothing",
            deadly=False,
        )
    if any(policy.health_check for policy in group.auto_healing_policies):
        yield Setting(
            "autoHealingPolicies",
            "a health check",
            "none",
            "a VM that is too busy to answer is made anew, and its job is lost",
            f"{command} --clear-autohealing",
            deadly=True,
        )


def _shape(group: Any, command: str) -> Iterator[Setting]:
    """A group of shape ANY has nothing to even out; all others move VMs if they may."""
    shape = group.distribution_policy.target_shape or "EVEN"
    moves = group.update_policy.instance_redistribution_type
    may_move = moves == "PROACTIVE" or (not moves and shape == "EVEN")
    if shape == "ANY" or (shape == "ANY_SINGLE_ZONE" and not may_move):
        return
    got = f"{shape} with updatePolicy.instanceRedistributionType {moves or 'PROACTIVE'}"
    why = "it deletes busy VMs to even out its zones"
    flags = "--instance-redistribution-type=NONE --target-distribution-shape=any"
    if not may_move:
        got, why = shape, "it can wait for ever for a zone that is empty while another has room"
    yield Setting(
        "distributionPolicy.targetShape",
        got,
        "ANY or ANY_SINGLE_ZONE, and redistribution NONE",
        why,
        f"{command} {flags}",
        deadly=may_move,
    )


def _updates(group: Any, command: str) -> Iterator[Setting]:
    policy = group.update_policy
    if policy.type_ == "PROACTIVE" and policy.most_disruptive_allowed_action not in _GENTLE:
        yield Setting(
            "updatePolicy.type",
            "PROACTIVE",
            "OPPORTUNISTIC",
            "a new instance template replaces busy VMs at once",
            f"{command} --update-policy-type=opportunistic",
            deadly=True,
        )
