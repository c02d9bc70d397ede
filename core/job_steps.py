"""A job's steps: how it begins, and what each event does to it. The table is in core/job.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from core.errors import IllegalTransition
from core.job import (
    BLOCKED_MAX_S,
    REPEATS,
    TRANSITIONS,
    WAITING,
    E,
    Job,
    JobEvent,
    JobStatus,
    Lease,
    Membership,
    Offer,
    Rules,
    S,
    SavedWork,
    StopReason,
    TimelineEntry,
)
from core.job_fields import JobSpec
from core.queueing import QueuePolicy, due_at


@dataclass(frozen=True, slots=True)
class EventFacts:
    """What belongs to an event beside its reason."""

    lease: Lease | None = None
    """Of a placement."""
    exit_code: int | None = None
    cluster: str | None = None
    """Of a move to another cluster."""
    gang_region: str | None = None
    """Of the admission of a gang."""
    saved: SavedWork | None = None
    """Of the end of an attempt: what its last checkpoint holds."""


NO_FACTS = EventFacts()


def new_job(
    uid: str,
    spec: JobSpec,
    cluster: str,
    now: datetime,
    *,
    due: datetime | None = None,
    blocked: str | None = None,
    gang: Membership | None = None,
) -> Job:
    """A job as it is right after submission. `due`: its place in the queue, by default that of a
    job of which nothing is known; `blocked`: the hold that it waits behind."""
    due = due or due_at(now, spec, 0.0, QueuePolicy(), None)
    return begin_job(uid, spec, JobStart(cluster, now, due, blocked), gang)


@dataclass(frozen=True, slots=True)
class JobStart:
    """What the jobs of one submission have in common beside their spec."""

    cluster: str
    submitted_at: datetime
    due: datetime
    blocked: str | None = None
    reason: str = ""
    starts_by: datetime | None = None


def begin_job(uid: str, spec: JobSpec, start: JobStart, gang: Membership | None = None) -> Job:
    """One job of a submission, as it is right afterwards."""
    now = start.submitted_at
    spare = gang is not None and gang.rank >= spec.least
    wait_max_s = BLOCKED_MAX_S if start.blocked or spare else spec.queue_timeout_s
    return Job(
        uid=uid,
        spec=spec,
        cluster=start.cluster,
        status=S.QUEUED,
        version=1,
        submitted_at=now,
        status_since=now,
        queued_since=now,
        deadline_at=now + timedelta(seconds=wait_max_s),
        reason=start.reason,
        due_at=start.due,
        blocked=None if spare else start.blocked,
        gang=gang,
        starts_by=start.starts_by,
    )


def advance(
    job: Job,
    event: JobEvent,
    now: datetime,
    rules: Rules,
    *,
    reason: str = "",
    facts: EventFacts = NO_FACTS,
) -> Job:
    """The job after the event; the same object if the event is a repeat; else IllegalTransition."""
    if (job.status, event) in REPEATS:
        return job
    targets = TRANSITIONS.get((job.status, event))
    if targets is None or (job.blocked is not None and event is E.ADMITTED):
        raise IllegalTransition(f"job {job.spec.job_id}", job.status, event)
    moves = event is E.REROUTED
    assert (facts.cluster is not None) == moves, f"{event} with cluster {facts.cluster}"
    counted = _count(job, event)
    target = _choose(counted, event, targets, rules)
    delay_s = _retry_delay_s(counted, event, target, rules)
    reason = (reason or str(event)) + _spent(counted, event, target, rules)
    reason = _attempt_words(counted, event, reason, delay_s)
    moved = replace(
        counted,
        cluster=facts.cluster or job.cluster,
        gang_region=job.gang_region if facts.gang_region is None else facts.gang_region,
        status=target,
        version=job.version + 1,
        status_since=now,
        reason=reason,
        exit_code=facts.exit_code if facts.exit_code is not None else counted.exit_code,
        retry_at=job.retry_at if target is S.QUEUED else None,
    )
    if delay_s is not None:
        moved = replace(moved, retry_at=now + timedelta(seconds=delay_s))
    if target is not S.PROVISIONING and moved.offer is not None:
        moved = replace(moved, offer=None)
    moved = _apply_lease(moved, job, event, facts.lease)
    moved = _apply_times(moved, job, event, now)
    moved = _apply_service(_apply_saved(moved, job, facts.saved), job, now, rules)
    deadline = _deadline(moved, now, rules)
    if event is E.FOUND_BY_V1:  # it is claimed already: what is awaited is that it runs
        start_s = rules.timers.of_worker("v1").start_timeout_s
        deadline = now + timedelta(seconds=start_s)
    return replace(moved, deadline_at=deadline)


def offered(job: Job, offer: Offer | None) -> Job:
    """The same job with another start message out, or with none. No step of its road: only who may
    claim it has changed."""
    assert job.status is S.PROVISIONING, f"{job.spec.job_id} is {job.status}: nothing is offered"
    return replace(job, offer=offer, version=job.version + 1)


def entry_for(before: Job | None, after: Job, event: JobEvent, **extra: object) -> TimelineEntry:
    """The row of history that belongs to a step."""
    lease = after.lease or (before.lease if before else None)
    data: dict[str, object] = {k: v for k, v in extra.items() if v is not None}
    if after.exit_code is not None and after.ended_at is not None:
        data.setdefault("exit_code", after.exit_code)
    return TimelineEntry(
        at=after.status_since,
        event=str(event),
        from_status=before.status if before else None,
        to_status=after.status,
        attempt=after.attempt,
        reason=after.reason,
        vm_name=lease.vm_name if lease else None,
        region=lease.region if lease else None,
        data=data,
    )


_USER_FAILURES = frozenset({E.EXITED_ERROR})
_INFRA_LOSSES = frozenset({E.VM_LOST, E.START_TIMEOUT, E.CLAIM_TIMEOUT})
_STOPS = {E.MAX_RUNTIME: StopReason.MAX_RUNTIME, E.GANG_FAILED: StopReason.GANG}
# A job is preempted for others: that uses up no retry limit.
_PREEMPTIONS = frozenset({E.RECLAIMED})


def _count(job: Job, event: JobEvent) -> Job:
    if job.status is S.STOPPING:
        return job  # it ends anyway: nothing is charged to a budget
    if event in _USER_FAILURES:
        return replace(job, failures=job.failures + 1)
    if event in _INFRA_LOSSES:
        return replace(job, losses=job.losses + 1)
    if event in _PREEMPTIONS:
        return replace(job, preemptions=job.preemptions + 1)
    if event is E.GANG_TIMEOUT:
        return replace(job, holds=job.holds + 1)
    return job


def _choose(job: Job, event: JobEvent, targets: tuple[JobStatus, ...], rules: Rules) -> JobStatus:
    if len(targets) == 1:
        return targets[0]
    within, beyond = targets
    if job.status is S.STOPPING:
        failed = job.stop_reason in (StopReason.MAX_RUNTIME, StopReason.GANG)
        return beyond if failed else within
    if event in _USER_FAILURES:
        return within if job.failures <= job.spec.retries else beyond
    if not job.spec.reschedulable and job.status is not S.ASSIGNED:  # there it has not begun
        return beyond
    if event in _PREEMPTIONS:
        return within if job.preemptions <= rules.budgets.preemptions else beyond
    return within if job.losses <= rules.budgets.losses else beyond


def _retry_delay_s(job: Job, event: JobEvent, target: JobStatus, rules: Rules) -> float | None:
    """How long the next attempt waits after one that failed by itself; twice as long after each."""
    if target is not S.QUEUED or event not in _USER_FAILURES:
        return None
    first_s, most_s = rules.timers.retry_backoff_s, rules.timers.retry_backoff_max_s
    return min(most_s, first_s * 2.0 ** min(job.failures - 1, 64))


def _attempt_words(job: Job, event: JobEvent, reason: str, delay_s: float | None) -> str:
    """Which of its attempts failed, and when the next one comes. Counted are attempts that ended by
    themselves: what a lost VM cost is no attempt of the job's own."""
    if event not in _USER_FAILURES or not job.spec.retries or job.status is S.STOPPING:
        return reason
    number, most = job.failures, job.spec.retries + 1
    if delay_s is None:
        return f"attempt {number} of {most} failed: {reason}; it has no more"
    return f"attempt {number} failed: {reason}; attempt {number + 1} of {most} in {delay_s:g} s"


def _spent(job: Job, event: JobEvent, target: JobStatus, rules: Rules) -> str:
    """Added to the reason when a budget is spent: else the last loss looks like the others."""
    if target is not S.FAILED or job.status is S.STOPPING:
        return ""
    began = job.status is not S.ASSIGNED
    if began and not job.spec.reschedulable and event in _INFRA_LOSSES | _PREEMPTIONS:
        return "; it does not begin again (reschedulable is false)"
    if event in _INFRA_LOSSES:
        return f"; {job.losses} VMs lost, {rules.budgets.losses} are forgiven (budgets.losses)"
    if event in _PREEMPTIONS:
        forgiven = rules.budgets.preemptions
        return f"; {job.preemptions} times preempted, {forgiven} are forgiven (budgets.preemptions)"
    return ""


def _apply_lease(moved: Job, before: Job, event: JobEvent, lease: Lease | None) -> Job:
    if event in (E.PLACED, E.FOUND_BY_V1):
        assert lease is not None, f"{event} needs the lease it writes"
        # A new attempt number fences the old VM: its late heartbeats no longer match the live
        # lease, so two VMs cannot both own the job.
        return replace(moved, attempt=before.attempt + 1, lease=lease, exit_code=None, holds=0)
    assert lease is None, f"{event} carries no lease"
    if not moved.status.leased:
        return replace(moved, lease=None)
    return moved


def _apply_times(moved: Job, before: Job, event: JobEvent, now: datetime) -> Job:
    if event is E.PLACED or event is E.FOUND_BY_V1:
        moved = replace(moved, started_at=None)
    if moved.status is S.RUNNING:
        moved = replace(moved, started_at=now)
    if moved.status is S.STOPPING:
        moved = replace(moved, stop_reason=_STOPS.get(event, StopReason.USER))
    if moved.status.final:
        moved = replace(moved, ended_at=now)
    # The queue clock starts again only after a VM really took the job: one that bounces
    # between QUEUED and ASSIGNED without ever being claimed still meets its queue time-out.
    if moved.status is S.QUEUED and before.status not in (*WAITING, S.ASSIGNED):
        moved = replace(moved, queued_since=now)
    if event is E.RELEASED:  # waiting for jobs of the same user uses up no aging limit
        moved = replace(moved, queued_since=now, blocked=None)
    if event is E.ADMITTED and before.retry_at is not None:  # nor by waiting for the next attempt
        moved = replace(moved, queued_since=before.retry_at)
    if moved.status.final:
        moved = replace(moved, blocked=None)
    return moved


def _apply_saved(moved: Job, before: Job, saved: SavedWork | None) -> Job:
    """An attempt that is over leaves what its last checkpoint holds to the next one. One without a
    checkpoint of its own began from what was there before, and leaves that."""
    if saved is None or before.lease is None or moved.lease is not None:
        return moved
    return replace(
        moved,
        saved_s=before.saved_s + max(0.0, saved.ran_s),
        saved_share=max(before.saved_share, saved.share),
    )


def _apply_service(moved: Job, before: Job, now: datetime, rules: Rules) -> Job:
    """A lease that ends adds to what the job has had. One that waits again is as patient as its
    size now says, and at least as what was predicted of it when it came."""
    if before.blocked is not None and moved.due_at is not None:
        # The time behind the hold is not part of its wait: its place moves by as much.
        waited = moved.queued_since - before.queued_since
        starts_by = moved.starts_by + waited if moved.starts_by is not None else None
        return replace(moved, due_at=moved.due_at + waited, starts_by=starts_by)
    if before.lease is None or moved.lease is not None:
        return moved
    if before.started_at is not None:
        ran_s = max(0.0, (now - before.started_at).total_seconds())
        attained = before.attained_gpu_s + ran_s * before.spec.slots
        moved = replace(moved, attained_gpu_s=attained)
    if moved.queued_since == before.queued_since:
        return moved  # it never really left the queue: it keeps its place
    # From its submission: a job that was preempted must not begin to age anew.
    due = due_at(moved.submitted_at, moved.spec, moved.attained_gpu_s, rules.queue)
    return replace(moved, due_at=max(due, moved.due_at or due))


def _deadline(job: Job, now: datetime, rules: Rules) -> datetime | None:
    timers = rules.timers_of(job.cluster)
    match job.status:
        case S.QUEUED | S.PROVISIONING:
            far = job.blocked is not None or job.spare
            wait_max_s = BLOCKED_MAX_S if far else job.spec.queue_timeout_s
            return (job.retry_at or job.queued_since) + timedelta(seconds=wait_max_s)
        case S.ASSIGNED:
            return now + timedelta(seconds=timers.claim_timeout_s)
        case S.STARTING:
            return now + timedelta(seconds=timers.start_timeout_s)
        case S.RUNNING:
            return now + timedelta(seconds=job.spec.max_runtime_s)
        case S.PREEMPTING | S.STOPPING:
            return now + timedelta(seconds=job.spec.stop_grace_s + timers.stop_margin_s)
        case S.SUCCEEDED | S.FAILED | S.CANCELLED:
            return None
