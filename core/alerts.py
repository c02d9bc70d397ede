"""Every alert, declared once: its kind, severity and words, what it means and what to do about it.

The kind is stored, and operators filter by it: it never changes. REST, `zen alerts`, the metrics
and the reference page follow from the declarations.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from core.changes import ClearAlert, RaiseAlert

PAGE = "docs/reference/alerts.md"
MESSAGE_MAX = 2000


class Severity(StrEnum):
    """How soon a human should look."""

    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class AlertKind:
    """One declaration. An alert stands from `raised` to `cleared`, once for each subject."""

    name: str
    severity: Severity
    subject: str
    """What the subject of the alert names."""
    template: str
    """The message, with the names of the values that `raised` takes."""
    meaning: str
    action: str
    """What a human should do."""

    def message(self, **values: object) -> str:
        return self.template.format(**values)[:MESSAGE_MAX]

    def raised(self, subject: str, at: datetime, **values: object) -> RaiseAlert:
        return self.saying(self.message(**values), subject, at)

    def saying(self, message: str, subject: str, at: datetime) -> RaiseAlert:
        """With the words that `message` made."""
        return RaiseAlert(self.name, subject, self.severity, message, at)

    def cleared(self, subject: str, at: datetime) -> ClearAlert:
        return ClearAlert(self.name, subject, at)

    @property
    def docs(self) -> str:
        """Where the reference explains it."""
        return f"{PAGE}#{self.name}"


ALERTS: dict[str, AlertKind] = {}
"""Every declaration, by its kind. A row of another release may have a kind that is not here."""


def _declare(
    name: str, severity: Severity, subject: str, template: str, meaning: str, action: str
) -> AlertKind:
    assert name not in ALERTS, f"{name} is declared twice"
    ALERTS[name] = kind = AlertKind(name, severity, subject, template, meaning, action)
    return kind


_GROUP = "instance group"
_VM = "VM"

BUDGET_WARNING = _declare(
    "budget_warning",
    Severity.WARNING,
    "tenant and period",
    "tenant {tenant} has used {part:.0%} of its budget for {period} or more; at 100 % its new work "
    "is held",
    "A tenant has spent the part of a budget that its `warn_at` names.",
    "Look at the amounts (`zen cost`). Raise the budget (`zen tenants set`), or let new work of "
    "the tenant wait.",
)
BUDGET_SPENT = _declare(
    "budget_spent",
    Severity.ERROR,
    "tenant and period",
    "tenant {tenant} has spent its budget for {period}; its new work is held until {until} or "
    "until the budget is raised",
    "A tenant has spent a budget. Running jobs go on; new work waits.",
    "Raise the budget (`zen tenants set`), or wait for the next day or month.",
)
BUS_REFUSED = _declare(
    "bus_refused",
    Severity.CRITICAL,
    "topic",
    "messages for {topic} cannot be sent: {error}",
    "Pub/Sub refuses a topic. Its messages wait in the outbox.",
    "Run `zen infra apply --pubsub`, or give the service account its role on the topic.",
)
SUBSCRIPTION_LOST = _declare(
    "subscription_lost",
    Severity.CRITICAL,
    "subscription",
    "subscription {subscription}: {problem}; {now}",
    "A Pub/Sub subscription that the service reads was deleted, detached or replaced. One that was "
    "made again has lost what was published in between: workers repeat their heartbeats, a "
    "submission must be published again. The alert stands for ten minutes after that.",
    "Find out who may delete subscriptions (`gcloud logging read`), and take the right away. If it "
    "was not made again, the message says what to do.",
)
CLOUD_MISSING = _declare(
    "cloud_missing",
    Severity.ERROR,
    _GROUP,
    "{error}",
    "The configuration names an instance group that does not exist.",
    "Create the group: `zen infra gcloud` prints the commands.",
)
CLOUD_PERMISSION = _declare(
    "cloud_permission",
    Severity.ERROR,
    _GROUP,
    "{error}",
    "Google refuses the calls of the service.",
    "Give the service account its role.",
)
CLOUD_QUOTA = _declare(
    "cloud_quota",
    Severity.WARNING,
    _GROUP,
    "{error}",
    "A quota keeps a region from delivering VMs. A quota over all regions "
    "blocks all regions at once.",
    "Raise the quota, or leave the work to the other regions.",
)
CLOUD_OTHER = _declare(
    "cloud_other",
    Severity.ERROR,
    _GROUP,
    "{error}",
    "Google could not create a VM, for a reason that the service does not know (an organisation "
    "policy, a missing image or network). The region is blocked for `timers.unknown_block_s`, "
    "then for twice as long each time.",
    "Correct what Google's code and words name. The next VM that runs there clears the alert.",
)
CLOUD_UNREADY = _declare(
    "cloud_unready",
    Severity.ERROR,
    _GROUP,
    "{error}",
    "VMs of a region boot, are paid for, and their workers never say READY. Ever fewer are created "
    "there. A worker that finds no NVIDIA driver, or fewer GPUs than its machine type has, says so "
    "itself: the alert has its words, and the first such VM blocks the place.",
    "Read the serial log of the VM that the alert names (image, startup script, service account, "
    "network) and correct the instance template. A driver that is still being installed is waited "
    "for (7 min; `ZEN_DRIVER_WAIT_S` in the agent's environment). The next VM that is READY clears "
    "the alert.",
)
CLOUD_UNCLAIMED = _declare(
    "cloud_unclaimed",
    Severity.ERROR,
    _GROUP,
    "{error}",
    "Workers of a region say READY and never claim the job that they are given. Ever fewer VMs are "
    "created there.",
    "Read the serial log; check the control subscription of the VM and the role of its service "
    "account on it. The next claim clears the alert.",
)
CONFIG_REFUSED = _declare(
    "config_refused",
    Severity.ERROR,
    "configuration file",
    "{faults}",
    "The file of a replica has faults, or asks for what cannot be now. The active version stays.",
    "`zen config diff` names each fault: correct the file.",
)
CONFIG_NOT_ADOPTED = _declare(
    "config_not_adopted",
    Severity.ERROR,
    "always `zen`",
    "{error}",
    "A replica cannot read the version that a newer replica has recorded.",
    "Upgrade that replica.",
)
FLEET_SILENT = _declare(
    "fleet_silent",
    Severity.CRITICAL,
    "always `heartbeats`",
    "{reason}",
    "Many VMs fell silent at once. No VM is declared lost.",
    "Look at Pub/Sub: its subscriptions, its status, the network of the VMs.",
)
GROUP_SETTINGS = _declare(
    "group_settings",
    Severity.WARNING,
    _GROUP,
    "{faults}",
    "A group would repair stopped VMs, or choose by itself which VMs to delete. It gets no VMs.",
    "Change the group: the alert prints the `gcloud` command.",
)
ORPHAN_VM = _declare(
    "orphan_vm",
    Severity.WARNING,
    _VM,
    "nobody owns it: deleted in {after_s:g} s",
    "A group holds a VM with a name of ours that the service has no record of: a create call that "
    "failed and took effect all the same.",
    "Nothing: the VM is deleted after `timers.orphan_after_s`.",
)
UNHEALTHY_VM = _declare(
    "sick_vm",
    Severity.WARNING,
    _VM,
    "{vm} goes: {reason}",
    "A VM is unhealthy: bad GPUs, or jobs of different work that failed there in a row. It gets no "
    "more work and is deleted when its jobs have ended.",
    "Nothing for one VM. If many VMs of a zone are unhealthy, tell Google, or leave the zone out.",
)
WORKER_UNPROVEN = _declare(
    "worker_unproven",
    Severity.ERROR,
    _VM,
    "heartbeats that name {vm} are refused: {why}",
    "Heartbeats that name a VM of ours do not prove that its worker sent them. They change "
    "nothing. Somebody forges them, or the worker was started with the public key of another "
    "scheduler.",
    "Compare `zen-scheduler-keys` in the instance template with `zen workers keys show`. If they "
    "are the same, find out who may publish to the heartbeat topic. The alert stands for five "
    "minutes after the last refused heartbeat.",
)
UNKNOWN_VM = _declare(
    "unknown_vm",
    Severity.WARNING,
    _GROUP,
    "{group} holds VMs that we did not ask for: {names}",
    "A group holds VMs that the service did not ask for. It never deletes them.",
    "Delete them by name, or find out who created them.",
)
