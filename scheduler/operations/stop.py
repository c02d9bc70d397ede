"""Stopping a job: one step of its state machine, and word to its VM, in one atomic batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from core.access import only_tenant
from core.audit_log import Actor, AuditAction, AuditEntry, job_target
from core.changes import AtomicBatch, Change, JobMove, Send
from core.errors import Conflict
from core.groups import GroupKey
from core.job import Job, JobEvent, JobKey, JobStatus, Rules
from core.job_steps import advance, entry_for
from core.messages import OutMessage
from core.names import Names
from core.ports import Store
from messaging.codec import encode_control, encode_stop_v1
from scheduler.plan_builder import stop_message

_TRIES = 5
_GROUP_BATCH = 500


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Why jobs are stopped, and with what."""

    reason: str
    rules: Rules
    names: Names
    now: datetime
    by: Mapping[str, str] = field(default_factory=dict)
    """Who asked for it, as fields of the timeline's entry."""
    actor: Actor | None = None
    """For the audit log; None: nobody in particular."""

    def stopped(self, job: Job) -> Job:
        """The job after the request; the same object if it is stopping already."""
        return advance(job, JobEvent.STOP_ASKED, self.now, self.rules, reason=self.reason)

    def batch(self, job: Job, others: Iterable[Job]) -> AtomicBatch:
        """The job and the other members of its gang are stopped together."""
        batch = self._one(job)
        for member in others:
            batch += self._one(member)
        return batch if self.actor is None else (*batch, self._audited(job, self.actor))

    def _audited(self, job: Job, actor: Actor) -> AuditEntry:
        target = job_target(job.spec)
        return AuditEntry(self.now, actor, AuditAction.STOP, target, job.spec.tenant_id)

    def _one(self, job: Job) -> AtomicBatch:
        after = self.stopped(job)
        told = {"stopped_by": dict(self.by)} if self.by else {}
        move = JobMove(job, after, (entry_for(job, after, JobEvent.STOP_ASKED, **told),))
        v1 = job.cluster in self.rules.v1_clusters
        words: tuple[Change, ...] = (Send(_order(after, self.names, v1=v1)),) if after.lease else ()
        return (move, *words)


@dataclass(frozen=True, slots=True)
class Stopped:
    """The job after the request; `before` is None if there was nothing left to do."""

    before: Job | None
    job: Job
    message: str


async def stop_job(store: Store, key: JobKey, request: StopRequest) -> Stopped:
    """NotFound, or Conflict if the job moved on under each of our tries."""
    for _ in range(_TRIES):
        job = await store.find_job(key.job_id, key.user_id, only_tenant(key.tenant_id))
        others: list[Job] = []
        if job.gang is not None:
            # Of a gang all are stopped at once, whichever member was named.
            members = await store.members(job.gang.uid)
            job, others = members[0], [m for m in members[1:] if not _is_over(m)]
        if job.status.final:
            return Stopped(None, job, f"already {job.status.lower()}: {job.reason}")
        after = request.stopped(job)
        if after is job:
            return Stopped(None, job, f"already stopping: {job.reason}")
        if (await store.commit([request.batch(job, others)], None)).all_applied:
            return Stopped(job, after, _message(after))
    raise Conflict(f"job {key.job_id} kept changing while it was being stopped; try again")


@dataclass(frozen=True, slots=True)
class GroupStopped:
    """What a request to stop a group did."""

    user_id: str
    moved: tuple[tuple[Job, Job], ...]

    @property
    def cancelled(self) -> int:
        return sum(after.status.final for _, after in self.moved)

    @property
    def stopping(self) -> int:
        return len(self.moved) - self.cancelled


async def stop_group(
    store: Store, group: GroupKey, request: StopRequest, check: Callable[[Job], None]
) -> GroupStopped:
    """All its jobs, some hundred at a time; `check` raises for what the caller may not stop.
    Conflict if jobs kept moving under each of our tries."""
    moved: list[tuple[Job, Job]] = []
    idle = 0
    while idle < _TRIES:
        jobs = await store.open_jobs(group, _GROUP_BATCH)
        if not jobs:
            return GroupStopped(group.user_id, tuple(moved))
        for job in jobs:
            check(job)
        steps = [(job, request.stopped(job)) for job in jobs]
        batches = [request.batch(job, await _others(store, job)) for job in jobs]
        done = await store.commit(batches, None)
        moved += [step for step, applied in zip(steps, done.applied, strict=True) if applied]
        idle = 0 if any(done.applied) else idle + 1
    raise Conflict(
        f"the jobs of group {group.group} kept changing while they were stopped; try again"
    )


async def _others(store: Store, leader: Job) -> list[Job]:
    """The members of its gang, whose end is its own: members that the loop does not look at while
    it does not run must not be left behind."""
    if leader.gang is None:
        return []
    return [m for m in (await store.members(leader.gang.uid))[1:] if not _is_over(m)]


def _order(job: Job, names: Names, *, v1: bool) -> OutMessage:
    assert job.lease is not None, "only the holder of a lease is told to stop"
    if v1:
        return encode_stop_v1(job.spec.job_id, job.lease.vm_name, names)
    # No boot: the lease id fences better than the boot could.
    return encode_control(stop_message(job, "", job.reason), names)


def _is_over(job: Job) -> bool:
    return job.status.final or job.status is JobStatus.STOPPING


def _message(job: Job) -> str:
    if job.status is JobStatus.CANCELLED:
        return "cancelled: it had not started"
    assert job.lease is not None, f"a job that is {job.status} holds a lease"
    return (
        f"stopping on {job.lease.vm_name}: "
        f"it has {job.spec.stop_grace_s:g} s after SIGTERM, then it is killed"
    )
