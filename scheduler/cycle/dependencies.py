"""Jobs that waited for others: let go, or told why they cannot run. Pure."""

from __future__ import annotations

from core.changes import View
from core.job import E
from scheduler.plan_builder import Draft


def release(draft: Draft, view: View) -> None:
    """The commit in which the last of them ended has said so, and woken us: its jobs join the
    queue in this turn, or end with the reason."""
    if not view.verdicts:
        return
    for job in draft.heads():  # whoever is blocked is in no queue and holds no VM
        bad = view.verdicts.get(job.blocked) if job.blocked is not None else None
        if bad is None:
            continue
        if bad:
            draft.step(job, E.DEPENDENCY_FAILED, bad)
        else:
            draft.step(job, E.RELEASED, "what it waited for has ended")
