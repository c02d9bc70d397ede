"""The words of a preemption, for both timelines. Pure."""

from __future__ import annotations

from datetime import datetime

from core.job import Job, TimelineEntry
from core.queueing import PriorityClass
from scheduler.preemption.policy import PreemptionResult, Runs, Wants

SPARE = -1
"""Below every class: members that elastic jobs can do without."""


def receipt(first: Job, found: PreemptionResult, latest: datetime, now: datetime) -> TimelineEntry:
    """For the timeline of the one that others yield to, by `latest`."""
    return TimelineEntry(
        at=now,
        event="room_made",
        from_status=first.status,
        to_status=first.status,
        attempt=first.attempt,
        reason=winner_words(found, latest),
        data={"victims": [runs.name for runs in found.victims]},
        dedup_key=f"room-{first.attempt}-{now.timestamp():.0f}",
    )


def victim_words(wants: Wants, runs: Runs) -> str:
    """For the timeline of one that yields."""
    if runs.tier == SPARE:
        return f"gives its VM to job {wants.name}"
    if runs.tier < wants.tier:
        mine, theirs = PriorityClass(wants.tier).name.lower(), PriorityClass(runs.tier).name.lower()
        why = f"class {mine} goes before {theirs}"
    elif runs.tenant == wants.tenant:
        why = "it is due first"
    else:
        why = f"tenant {wants.tenant} has had less of its share than {runs.tenant}"
    return (
        f"yields {gpus_words(runs.gpus)} to job {wants.name}: {why}; SIGTERM sent, what it does "
        f"not save now is lost ({runs.unsaved_s:.0f} s since its last checkpoint); it waits again, "
        "its budgets untouched"
    )


def winner_words(found: PreemptionResult, latest: datetime) -> str:
    """For the timeline of the one that they yield to."""
    names = ", ".join(sorted(runs.name for runs in found.victims))
    return (
        f"{names} yield{'s' * (len(found.victims) == 1)} {gpus_words(found.freed)} to it, by "
        f"{latest:%H:%M:%S} UTC at the latest; at most {found.lost_gpu_s:.0f} GPU-seconds of work "
        "are lost"
    )


def gpus_words(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"
