"""The jobs of one submission as they are stored: few at once, many in parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain, islice

from core.changes import AtomicBatch, Change, NewJob, NewSpec
from core.errors import StoreDown
from core.groups import Wait
from core.job import Job, JobEvent, Membership, TimelineEntry
from core.job_fields import JobSpec
from core.job_steps import JobStart, begin_job, entry_for
from core.members import Member, SharedMember, count_of, member_spec, members_of
from core.ports import Ids
from scheduler.submission.cluster_selection import Choice

PART = 100
"""Jobs that are made and written without a pause. A submission of more is written in parts."""
WAITING_MAX = 16
"""Long submissions that wait for their turn."""


@dataclass(frozen=True)
class Agreed:
    """A submission that will be stored: what all of its jobs have in common."""

    uid: str
    """Of the first job."""
    spec: JobSpec
    choice: Choice
    submitted_at: datetime
    due: datetime
    digest: str
    waits: tuple[Wait, ...] = ()
    told_s: float | None = None
    """By when each job starts at the latest, from now on."""

    @cached_property
    def count(self) -> int:
        return count_of(self.spec)

    @property
    def _single(self) -> bool:
        """Neither an array nor a gang: the job is what was submitted."""
        return self.spec.array is None and self.spec.replicas == 1

    @property
    def long(self) -> bool:
        """Whether it is written in parts."""
        return self.count > PART

    @cached_property
    def first(self) -> Job:
        if self._single:
            return begin_job(self.uid, self.spec, self._start)
        leader = Membership(self.uid, 0, self.spec.replicas)
        return self._job(self.uid, next(members_of(self.spec)), leader)

    def changes(self, ids: Ids) -> Iterator[Change]:
        """The jobs, made one by one as they are asked for. One of the last
        brings what all of them wait for: it is not locked while the others are written."""
        count, leader, spec = self.count, self.uid, self.spec
        if self._single:
            yield NewJob(self.first, self._entry(self.first), self.digest, self.waits)
            return
        # Spare members of an elastic job, which come last, wait for nothing themselves.
        last = count - 1 - (spec.replicas - spec.least)
        if count > 1:
            yield NewSpec(self.uid, spec)
        for number, member in enumerate(members_of(spec)):
            uid = self.uid if number == 0 else ids.uid(self.submitted_at)
            leader = uid if member.rank == 0 else leader
            if number == 0:
                job = self.first
            else:
                job = self._job(uid, member, Membership(leader, member.rank, spec.replicas))
            waits = self.waits if number == last else ()
            shared = SharedMember(self.uid, member) if count > 1 else None
            yield NewJob(job, self._entry(job), self.digest, waits, shared)

    def parts(self, ids: Ids, more: AtomicBatch = ()) -> Iterator[AtomicBatch]:
        """The same in parts, with what is written besides."""
        changes = chain(self.changes(ids), more)
        while part := tuple(islice(changes, PART)):
            yield part

    def _entry(self, job: Job) -> TimelineEntry:
        told = {} if self.told_s is None else {"starvation_bound_s": self.told_s}
        return entry_for(None, job, JobEvent.SUBMITTED, cluster=job.cluster, **told)

    def _job(self, uid: str, member: Member, gang: Membership) -> Job:
        spec = member_spec(self.spec, member)
        return begin_job(uid, spec, self._start, gang if spec.replicas > 1 else None)

    @cached_property
    def _start(self) -> JobStart:
        told_s, blocked = self.told_s, self.uid if self.waits else None
        by = None if told_s is None else self.submitted_at + timedelta(seconds=told_s)
        reason = self.choice.reason
        return JobStart(self.choice.cluster, self.submitted_at, self.due, blocked, reason, by)


class LongSubmissions:
    """One at a time: what they need of memory and of the database is bounded, whatever comes."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """StoreDown when too many wait already: the caller should come again later."""
        if self._waiting >= WAITING_MAX:
            raise StoreDown(f"{WAITING_MAX} submissions of many jobs wait already")
        self._waiting += 1
        try:
            async with self._lock:
                yield
        finally:
            self._waiting -= 1
