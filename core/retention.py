"""How long what is over is kept, in days."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """Counted from the moment a thing was over: what is not over is never pruned."""

    outbox_days: float = 1.0
    """Records of confirmed messages that a release before kept. Now they leave at once."""
    dead_letters_days: float = 30.0
    """Messages that we could not use, after they came."""
    requests_days: float = 7.0
    """Cloud calls, after they were settled."""
    vms_days: float = 30.0
    """VMs, after they were observed gone and their jobs have heard."""
    alerts_days: float = 30.0
    """Alerts, after they were cleared."""
    knowledge_days: float = 30.0
    """What is known of a region, after its last news."""
    events_days: float = 90.0
    """Timelines and attempts of jobs, after the job has ended. The job itself stays, with what
    it cost."""
