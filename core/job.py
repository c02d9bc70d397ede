"""A job, its statuses, and the one table of transitions.

Nobody assigns `job.status`: `advance()` of core/job_steps.py is the only door, and it either
follows the table or raises IllegalTransition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from core import job_status
from core.groups import GroupKey, Owner
from core.health import HealthRules
from core.job_fields import JobSpec
from core.queueing import QueuePolicy
from core.timers import Timers

JobStatus = job_status.JobStatus
FINAL, WAITING, LEASED = job_status.FINAL, job_status.WAITING, job_status.LEASED
S = JobStatus


class JobEvent(StrEnum):
    """What can happen to a job."""

    SUBMITTED = "submitted"
    """The job was accepted."""
    ADMITTED = "admitted"
    """It is next: quota is reserved and a VM may be asked for."""
    WITHDRAWN = "withdrawn"
    """The admission was taken back: another job goes first, or a limit was lowered."""
    REROUTED = "rerouted"
    """It waits for another cluster now."""
    RELEASED = "released"
    """All that it waited for has ended well."""
    DEPENDENCY_FAILED = "dependency_failed"
    """Something that it waited for ended badly."""
    GANG_FAILED = "gang_failed"
    """Another member of its gang failed for good."""
    PLACED = "placed"
    """A VM was chosen and the start was written."""
    FOUND_BY_V1 = "found_by_v1"
    """A v1 worker took the start message."""
    CLAIMED = "claimed"
    """The worker has the start and prepares it."""
    STARTED = "started"
    """The worker says that the command runs."""
    EXITED_OK = "exited_ok"
    """The command ended with exit code 0."""
    EXITED_ERROR = "exited_error"
    """The command ended with another exit code."""
    VM_LOST = "vm_lost"
    """The VM is gone or silent for too long."""
    RECLAIMED = "spot_taken"
    """The cloud reclaimed the spot VM."""
    CLAIM_TIMEOUT = "claim_timeout"
    """The worker did not claim the start in time."""
    START_TIMEOUT = "start_timeout"
    """The worker claimed the start and did not run it in time."""
    START_REFUSED = "start_refused"
    """Pub/Sub refuses the start for what it says, or its secrets cannot be had; no other VM would
    get it."""
    GANG_TIMEOUT = "gang_timeout"
    """The gang kept some VMs for too long while it waited for the others."""
    QUEUE_TIMEOUT = "queue_timeout"
    """It waited for longer than it may."""
    MAX_RUNTIME = "max_runtime"
    """It ran for longer than it may."""
    PREEMPTION_ASKED = "yield_asked"
    """It is preempted: told to save its work and stop."""
    PREEMPTED = "yielded"
    """The worker says that the preempted job has stopped."""
    PREEMPTION_GRACE_OVER = "yield_grace_over"
    """It did not stop in time after a preemption."""
    STOP_ASKED = "stop_asked"
    """Somebody asked to stop it."""
    STOPPED = "stopped"
    """The worker says that it has stopped."""
    STOP_GRACE_OVER = "stop_grace_over"
    """It did not stop in time."""


E = JobEvent

# Two targets: the first while the budget (or the stop's reason) allows it, the second after.
TRANSITIONS: Mapping[tuple[JobStatus, JobEvent], tuple[JobStatus, ...]] = {
    (S.QUEUED, E.ADMITTED): (S.PROVISIONING,),
    (S.QUEUED, E.REROUTED): (S.QUEUED,),
    (S.QUEUED, E.RELEASED): (S.QUEUED,),
    (S.QUEUED, E.DEPENDENCY_FAILED): (S.CANCELLED,),
    (S.QUEUED, E.GANG_FAILED): (S.FAILED,),
    (S.QUEUED, E.STOP_ASKED): (S.CANCELLED,),
    (S.QUEUED, E.QUEUE_TIMEOUT): (S.FAILED,),
    (S.PROVISIONING, E.PLACED): (S.ASSIGNED,),
    (S.PROVISIONING, E.FOUND_BY_V1): (S.ASSIGNED,),
    (S.PROVISIONING, E.WITHDRAWN): (S.QUEUED,),
    (S.PROVISIONING, E.GANG_TIMEOUT): (S.QUEUED,),
    (S.PROVISIONING, E.GANG_FAILED): (S.FAILED,),
    (S.PROVISIONING, E.REROUTED): (S.QUEUED,),
    (S.PROVISIONING, E.STOP_ASKED): (S.CANCELLED,),
    (S.PROVISIONING, E.QUEUE_TIMEOUT): (S.FAILED,),
    (S.PROVISIONING, E.START_REFUSED): (S.FAILED,),
    (S.ASSIGNED, E.CLAIMED): (S.STARTING,),
    (S.ASSIGNED, E.STARTED): (S.RUNNING,),
    (S.ASSIGNED, E.CLAIM_TIMEOUT): (S.QUEUED, S.FAILED),
    (S.ASSIGNED, E.VM_LOST): (S.QUEUED, S.FAILED),
    (S.ASSIGNED, E.START_REFUSED): (S.FAILED,),
    (S.ASSIGNED, E.RECLAIMED): (S.QUEUED,),
    (S.ASSIGNED, E.PREEMPTION_ASKED): (S.PREEMPTING,),
    (S.ASSIGNED, E.GANG_FAILED): (S.STOPPING,),
    (S.ASSIGNED, E.STOP_ASKED): (S.STOPPING,),
    (S.STARTING, E.STARTED): (S.RUNNING,),
    (S.STARTING, E.EXITED_OK): (S.SUCCEEDED,),
    (S.STARTING, E.EXITED_ERROR): (S.QUEUED, S.FAILED),
    (S.STARTING, E.VM_LOST): (S.QUEUED, S.FAILED),
    (S.STARTING, E.RECLAIMED): (S.QUEUED, S.FAILED),
    (S.STARTING, E.START_TIMEOUT): (S.QUEUED, S.FAILED),
    (S.STARTING, E.PREEMPTION_ASKED): (S.PREEMPTING,),
    (S.STARTING, E.GANG_FAILED): (S.STOPPING,),
    (S.STARTING, E.STOP_ASKED): (S.STOPPING,),
    (S.RUNNING, E.EXITED_OK): (S.SUCCEEDED,),
    (S.RUNNING, E.EXITED_ERROR): (S.QUEUED, S.FAILED),
    (S.RUNNING, E.VM_LOST): (S.QUEUED, S.FAILED),
    (S.RUNNING, E.RECLAIMED): (S.QUEUED, S.FAILED),
    (S.RUNNING, E.PREEMPTION_ASKED): (S.PREEMPTING,),
    (S.RUNNING, E.MAX_RUNTIME): (S.STOPPING,),
    (S.RUNNING, E.GANG_FAILED): (S.STOPPING,),
    (S.RUNNING, E.STOP_ASKED): (S.STOPPING,),
    (S.PREEMPTING, E.PREEMPTED): (S.QUEUED,),
    (S.PREEMPTING, E.PREEMPTION_GRACE_OVER): (S.QUEUED,),
    (S.PREEMPTING, E.EXITED_OK): (S.SUCCEEDED,),
    (S.PREEMPTING, E.STOP_ASKED): (S.STOPPING,),
    (S.PREEMPTING, E.GANG_FAILED): (S.STOPPING,),
    (S.PREEMPTING, E.VM_LOST): (S.QUEUED,),
    (S.PREEMPTING, E.RECLAIMED): (S.QUEUED,),
    (S.STOPPING, E.STOPPED): (S.CANCELLED, S.FAILED),
    (S.STOPPING, E.EXITED_ERROR): (S.CANCELLED, S.FAILED),
    (S.STOPPING, E.VM_LOST): (S.CANCELLED, S.FAILED),
    (S.STOPPING, E.RECLAIMED): (S.CANCELLED, S.FAILED),
    (S.STOPPING, E.STOP_GRACE_OVER): (S.CANCELLED, S.FAILED),
    (S.STOPPING, E.EXITED_OK): (S.SUCCEEDED,),
}

# Repeats of what is already so, and words that come too late: they change nothing.
# STOPPING wins over a late RUNNING heartbeat.
REPEATS: frozenset[tuple[JobStatus, JobEvent]] = frozenset(
    {
        (S.PROVISIONING, E.ADMITTED),
        (S.STARTING, E.CLAIMED),
        (S.RUNNING, E.CLAIMED),
        (S.RUNNING, E.STARTED),
        (S.PREEMPTING, E.CLAIMED),
        (S.PREEMPTING, E.STARTED),
        (S.PREEMPTING, E.PREEMPTION_ASKED),
        (S.STOPPING, E.CLAIMED),
        (S.STOPPING, E.STARTED),
        (S.STOPPING, E.STOP_ASKED),
        (S.STOPPING, E.MAX_RUNTIME),
        (S.STOPPING, E.GANG_FAILED),
    }
)

# What the clock does to a job that stays where it is. Every state that is not final is here.
DEADLINE_EVENT: Mapping[JobStatus, JobEvent] = {
    S.QUEUED: E.QUEUE_TIMEOUT,
    S.PROVISIONING: E.QUEUE_TIMEOUT,
    S.ASSIGNED: E.CLAIM_TIMEOUT,
    S.STARTING: E.START_TIMEOUT,
    S.RUNNING: E.MAX_RUNTIME,
    S.PREEMPTING: E.PREEMPTION_GRACE_OVER,
    S.STOPPING: E.STOP_GRACE_OVER,
}


BLOCKED_MAX_S = 90 * 86400.0
"""A job waits for others no longer than this. Its own queue time-out begins when it is released."""


class StopReason(StrEnum):
    """Why a job is being stopped; decides whether it ends CANCELLED or FAILED."""

    USER = "user"
    MAX_RUNTIME = "max_runtime"
    GANG = "gang"
    """Another member of its gang has failed for good."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one VM to work for one attempt. The id fences every older one."""

    lease_id: str
    vm_name: str
    vm_uid: str
    region: str
    zone: str
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """A start message that is out for whichever v1 worker of the cluster takes it. Its id becomes
    that of the lease when a worker claims the job."""

    lease_id: str
    vm_uid: str
    """The VM that it was sent for. Another one may take it: they change places then."""
    at: datetime


@dataclass(frozen=True, slots=True)
class SavedWork:
    """What the last checkpoint of one attempt holds."""

    ran_s: float
    """For how long the attempt had run when it was written."""
    share: float = 0.0
    """Of all the work, as the job reported it; 0: it did not say."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Whose gang a job belongs to, and as which of how many. The one with rank 0 is the job that
    people know; its end is the gang's."""

    uid: str
    """Of rank 0."""
    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class Budgets:
    """How often each kind of misfortune is forgiven. They never eat each other's."""

    losses: int = 5
    """Lost VMs, before the job fails."""
    preemptions: int = 50
    """Spot VMs taken back, before the job fails."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What advance() needs to know besides the job: spans of time and budgets."""

    timers: Timers = field(default_factory=Timers)
    budgets: Budgets = field(default_factory=Budgets)
    queue: QueuePolicy = field(default_factory=QueuePolicy)
    health: HealthRules = field(default_factory=HealthRules)
    v1_clusters: frozenset[str] = frozenset()
    """Clusters whose VMs run v1 workers."""

    def timers_of(self, cluster: str) -> Timers:
        """The spans of time that fit the workers of the cluster."""
        return self.timers.of_worker("v1" if cluster in self.v1_clusters else "v2")


class JobKey(NamedTuple):
    """The identity of a job: nobody else has it, and another tenant cannot take it."""

    tenant_id: str
    user_id: str
    job_id: str


def key_of(spec: JobSpec) -> JobKey:
    return JobKey(spec.tenant_id, spec.user_id, spec.job_id)


def owner_of(spec: JobSpec) -> Owner:
    return Owner(spec.tenant_id, spec.user_id)


def group_of(spec: JobSpec) -> GroupKey | None:
    """The group that the job is in."""
    return None if spec.group is None else GroupKey(spec.tenant_id, spec.user_id, spec.group)


@dataclass(frozen=True, slots=True)
class Job:
    """One job: intent and truth, as stored. `version` guards every write over it."""

    uid: str
    spec: JobSpec
    cluster: str
    status: JobStatus
    version: int
    submitted_at: datetime
    status_since: datetime
    queued_since: datetime
    deadline_at: datetime | None
    attempt: int = 0
    lease: Lease | None = None
    started_at: datetime | None = None
    """When the present or last attempt began to run."""
    ended_at: datetime | None = None
    failures: int = 0
    losses: int = 0
    preemptions: int = 0
    exit_code: int | None = None
    reason: str = ""
    """Why the job is where it is, in words for its owner."""
    stop_reason: StopReason | None = None
    attained_gpu_s: float = 0.0
    """GPU-seconds of its attempts that are over."""
    due_at: datetime | None = None
    """Its place among the waiting jobs of its tenant and class; None: by its arrival."""
    blocked: str | None = None
    """The hold that keeps it out of the queue: it waits for other jobs (uid of the first job that
    the hold was made for)."""
    gang: Membership | None = None
    gang_region: str = ""
    """Where its gang was last sent to look for VMs."""
    holds: int = 0
    """How often its gang could not be brought together in time, since it last was."""
    offer: Offer | None = None
    """Only while it waits for a v1 worker: its start message is out."""
    starts_by: datetime | None = None
    """What it was told at its submission: it first starts no later; None: no such bound."""
    saved_s: float = 0.0
    """Seconds of its run that its checkpoints hold, of attempts that are over."""
    saved_share: float = 0.0
    """The share of its work that they hold, as the job itself reported it; 0: it did not say."""
    retry_at: datetime | None = None
    """Only while it is queued after a failed attempt: the next one starts no sooner."""

    @property
    def due(self) -> datetime:
        return self.due_at or self.queued_since

    @property
    def spare(self) -> bool:
        """A member of an elastic job beyond the ones it needs. While it has no place it is
        parked: in no queue, and nobody waits for it."""
        return self.gang is not None and self.gang.rank >= self.spec.least

    @property
    def parked(self) -> bool:
        return self.spare and self.status is S.QUEUED

    @property
    def out_of_queue(self) -> bool:
        """It waits for other jobs, or is parked."""
        return self.blocked is not None or self.parked

    @property
    def gang_uid(self) -> str:
        """Of its gang, by which people know it; of a job that is no gang its own."""
        return self.gang.uid if self.gang is not None else self.uid

    def is_backing_off(self, now: datetime) -> bool:
        """Whether it waits for the moment of its next attempt: until then it is in no queue."""
        return self.retry_at is not None and now < self.retry_at

    @property
    def times_preempted(self) -> int:
        """How many of its attempts ended by a preemption."""
        over = self.attempt - (self.lease is not None)
        return max(0, over - self.failures - self.losses - self.preemptions)

    @property
    def key(self) -> JobKey:
        """Its identity."""
        return key_of(self.spec)

    @property
    def v1_key(self) -> tuple[str, str]:
        """What v1 workers know it by: they have not heard of tenants."""
        return (self.spec.user_id, self.spec.job_id)


def by_gang(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    """Gang → those of its members that are among the jobs; a job that is no gang stands alone."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.gang_uid, []).append(job)
    return found


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One row of a job's history. `dedup_key` makes a repeat of the same news a no-op."""

    at: datetime
    event: str
    from_status: JobStatus | None
    to_status: JobStatus
    attempt: int
    reason: str
    vm_name: str | None = None
    region: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    dedup_key: str | None = None
