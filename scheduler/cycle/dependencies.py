"""Jobs that waited for others: let go, or told why they cannot run. Pure."""

from __future__ import annotations

from core.changes import Snapshot
from core.job import E
from scheduler.plan_builder import PlanBuilder


def release(plan: PlanBuilder, snapshot: Snapshot) -> None:
    """The commit in which the last of them ended has said so, and woken us: its jobs join the
    queue in this cycle, or end with the reason."""
    if not snapshot.verdicts:
        return
    for job in plan.heads():  # whoever is blocked is in no queue and holds no VM
        bad = snapshot.verdicts.get(job.blocked) if job.blocked is not None else None
        if bad is None:
            continue
        if bad:
            plan.step(job, E.DEPENDENCY_FAILED, bad)
        else:
            plan.step(job, E.RELEASED, "what it waited for has ended")
