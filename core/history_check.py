"""Judges a whole history: steps that the table forbids, attempts that overlap, and who led when.
Pure: a store brings the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from operator import attrgetter

from core.job import TRANSITIONS, JobEvent, JobStatus


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One row of a job's history."""

    event: str
    before: str | None
    after: str
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt."""

    attempt: int
    lease_id: str
    vm_name: str
    assigned_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobHistory:
    """A job with all that happened to it."""

    job_id: str
    user_id: str
    status: JobStatus
    attempt: int
    steps: tuple[HistoryStep, ...]
    tries: tuple[Try, ...]


@dataclass(frozen=True, slots=True)
class HistoryCheck:
    """Every job, and contradictions between rows that no job shows by itself."""

    jobs: tuple[JobHistory, ...]
    loose: tuple[str, ...]

    def faults(self) -> list[str]:
        """Everything that must not be: illegal steps, two live leases, leases that hang."""
        return [fault for job in self.jobs for fault in _job_faults(job)] + list(self.loose)

    def unfinished(self) -> list[str]:
        return [f"{job.job_id} is {job.status}" for job in self.jobs if not job.status.final]


@dataclass(frozen=True, slots=True)
class Reign:
    """One writer's writes under one term."""

    term: int
    writer: str
    first: datetime
    last: datetime
    writes: int
    rightful: bool
    """The writer was the holder of the leader's lease at each of them."""


def takeovers(found: Iterable[Reign]) -> Mapping[int, float]:
    """New term → seconds from the last write of the term before to its own first."""
    terms: dict[int, tuple[datetime, datetime]] = {}
    for reign in found:
        first, last = terms.get(reign.term, (reign.first, reign.last))
        terms[reign.term] = (min(first, reign.first), max(last, reign.last))
    ordered = sorted(terms.items())
    return {
        new: (first - last).total_seconds()
        for (_, (_, last)), (new, (first, _)) in pairwise(ordered)
    }


def _job_faults(job: JobHistory) -> Iterator[str]:
    if not job.steps:
        yield f"{job.job_id} has no history"
        return
    status: str | None = None
    for step in job.steps:
        if step.before != status:
            yield f"{job.job_id}: {step.event} from {step.before}, but it was {status}"
        if not _legal(step):
            yield f"{job.job_id}: {step.event} from {step.before} to {step.after} is illegal"
        status = step.after
    if status != job.status:
        yield f"{job.job_id} is {job.status}, its history ends with {status}"
    yield from _try_faults(job)


def _legal(step: HistoryStep) -> bool:
    if step.before == step.after:
        return True  # a note: something was said, nothing moved
    if step.before is None:
        return (step.event, step.after) == (JobEvent.SUBMITTED, JobStatus.QUEUED)
    try:
        key = (JobStatus(step.before), JobEvent(step.event))
    except ValueError:
        return False
    return step.after in TRANSITIONS.get(key, ())


def _try_faults(job: JobHistory) -> Iterator[str]:
    numbers = [one.attempt for one in job.tries]
    if numbers != list(range(1, job.attempt + 1)):
        yield f"{job.job_id}: attempts {numbers}, but its attempt is {job.attempt}"
    for one, following in pairwise(sorted(job.tries, key=attrgetter("attempt"))):
        if one.ended_at is None or one.ended_at > following.assigned_at:
            yield f"{job.job_id}: attempts {one.attempt} and {following.attempt} live at once"
    if job.status.final and any(one.ended_at is None for one in job.tries):
        yield f"{job.job_id} is {job.status} with an open attempt"
