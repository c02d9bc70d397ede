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
    for job in plan.heads():  # a blocked job is in no queue and holds no VM
        if job.blocked is None or job.blocked not in snapshot.verdicts:
            continue
        bad = snapshot.verdicts[job.blocked]
        if bad is not None:
            plan.step(job, E.DEPENDENCY_FAILED, bad)
        else:
            plan.step(job, E.RELEASED, "what it waited for has ended")
