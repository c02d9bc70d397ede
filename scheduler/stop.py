"""Stopping a job: one step of its state machine, and word to its VM, in one unit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from core.changes import Change, Committed, JobMove, Send, Unit
from core.errors import Conflict
from core.job import Job, JobEvent, JobStatus, Rules, advance, entry_for
from core.messages import OutMessage, StopJob
from core.names import Names
from messaging.codec import encode_control, encode_stop_v1

_TRIES = 5


class Stoppable(Protocol):
    """What stopping needs of the store."""

    async def find_job(self, job_id: str, user_id: str | None) -> Job: ...
    async def commit(self, units: Sequence[Unit], term: int | None) -> Committed: ...


@dataclass(frozen=True, slots=True)
class Stopped:
    """The job after the request; `before` is None if there was nothing left to do."""

    before: Job | None
    job: Job
    message: str


async def stop_job(
    store: Stoppable,
    job_id: str,
    user_id: str | None,
    reason: str,
    rules: Rules,
    names: Names,
    now: datetime,
    *,
    v1_clusters: Collection[str] = (),
) -> Stopped:
    """NotFound, Ambiguous, or Conflict if the job moved on under each of our tries."""
    for _ in range(_TRIES):
        job = await store.find_job(job_id, user_id)
        if job.status.final:
            return Stopped(None, job, f"already {job.status.lower()}: {job.reason}")
        after = advance(job, JobEvent.STOP_ASKED, now, rules, reason=reason)
        if after is job:
            return Stopped(None, job, f"already stopping: {job.reason}")
        unit = _unit(job, after, names, v1=job.cluster in v1_clusters)
        if (await store.commit([unit], None)).all_applied:
            return Stopped(job, after, _message(after))
    raise Conflict(f"job {job_id} kept changing while it was being stopped; try again")


def _unit(job: Job, after: Job, names: Names, *, v1: bool) -> Unit:
    move = JobMove(job, after, (entry_for(job, after, JobEvent.STOP_ASKED),))
    words: tuple[Change, ...] = (Send(_order(after, names, v1=v1)),) if after.lease else ()
    return (move, *words)


def _order(job: Job, names: Names, *, v1: bool) -> OutMessage:
    assert job.lease is not None, "only the holder of a lease is told to stop"
    if v1:
        return encode_stop_v1(job.spec.job_id, job.lease.vm_name, names)
    order = StopJob(
        vm_name=job.lease.vm_name,
        # Empty: whoever holds the lease. The lease id fences better than the boot could.
        boot_nonce="",
        job_id=job.spec.job_id,
        user_id=job.spec.user_id,
        attempt=job.attempt,
        lease_id=job.lease.lease_id,
        grace_s=job.spec.stop_grace_s,
        reason=job.reason,
    )
    return encode_control(order, names)


def _message(job: Job) -> str:
    if job.status is JobStatus.CANCELLED:
        return "cancelled: it had not started"
    assert job.lease is not None, f"a job that is {job.status} holds a lease"
    return (
        f"stopping on {job.lease.vm_name}: "
        f"it has {job.spec.stop_grace_s:g} s after SIGTERM, then it is killed"
    )
