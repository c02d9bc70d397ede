"""Settings of a group under which it would work against us, and the command that mends each."""

from __future__ import annotations

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
    """(all complaints, the ones that kill running work), in words. `group` is Google's message; an
    empty field of it means Google's default."""
    gcloud = "gcloud compute instance-groups managed"
    where = f"{group.name} --region={group.region.rpartition('/')[2]}"
    update = f"{gcloud} update {where}"
    action = group.instance_lifecycle_policy.default_action_on_failure or "REPAIR"
    policy, autoscaler = group.update_policy, group.status.autoscaler
    replaces = policy.type_ == "PROACTIVE" and policy.most_disruptive_allowed_action not in _GENTLE
    wrong = (
        action != "DO_NOTHING"
        and Setting(
            "instanceLifecyclePolicy.defaultActionOnFailure",
            action,
            "DO_NOTHING",
            "the group makes stopped VMs anew, without a job, for ever",
            f"{update} --default-action-on-vm-failure=do-nothing",
            deadly=False,
        ),
        any(policy.health_check for policy in group.auto_healing_policies)
        and Setting(
            "autoHealingPolicies",
            "a health check",
            "none",
            "a VM that is too busy to answer is made anew, and its job is lost",
            f"{update} --clear-autohealing",
            deadly=True,
        ),
        _shape(group, update),
        replaces
        and Setting(
            "updatePolicy.type",
            "PROACTIVE",
            "OPPORTUNISTIC",
            "a new instance template replaces busy VMs at once",
            f"{update} --update-policy-type=opportunistic",
            deadly=True,
        ),
        autoscaler
        and Setting(
            "autoscaler",
            autoscaler,
            "none",
            "it chooses its victims among busy VMs",
            f"{gcloud} stop-autoscaling {where}",
            deadly=True,
        ),
    )
    found = [setting for setting in wrong if setting]
    every = tuple(setting.words(group.name) for setting in found)
    return every, tuple(setting.words(group.name) for setting in found if setting.deadly)


def _shape(group: Any, update: str) -> Setting | None:
    """A group of shape ANY has nothing to even out; all others move VMs if they may."""
    shape = group.distribution_policy.target_shape or "EVEN"
    moves = group.update_policy.instance_redistribution_type
    may_move = moves == "PROACTIVE" or (not moves and shape == "EVEN")
    if shape == "ANY" or (shape == "ANY_SINGLE_ZONE" and not may_move):
        return None
    got = f"{shape} with updatePolicy.instanceRedistributionType {moves or 'PROACTIVE'}"
    why = "it deletes busy VMs to even out its zones"
    if not may_move:
        got, why = shape, "it can wait for ever for a zone that is empty while another has room"
    return Setting(
        "distributionPolicy.targetShape",
        got,
        "ANY or ANY_SINGLE_ZONE, and redistribution NONE",
        why,
        f"{update} --instance-redistribution-type=NONE --target-distribution-shape=any",
        deadly=may_move,
    )
