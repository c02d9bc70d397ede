"""A job, its statuses, and the one table of transitions.

Nobody assigns `job.status`: `advance()` is the only door, and it either follows the
table or raises IllegalTransition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from core.errors import IllegalTransition
from core.health import HealthRules
from core.queueing import QueuePolicy, due_at
from core.slots import slots_of
from core.timers import Timers


class JobStatus(StrEnum):
    """Where a job is on its road."""

    QUEUED = "QUEUED"
    """Valid; waits for its turn, its quota or other jobs."""
    PROVISIONING = "PROVISIONING"
    """Admitted: it counts as demand for a VM, and is bound to none."""
    ASSIGNED = "ASSIGNED"
    """A VM (of a gang: every VM) holds the lease; the start is sent."""
    STARTING = "STARTING"
    """Claimed by the worker, not running yet."""
    RUNNING = "RUNNING"
    """Its command runs."""
    PREEMPTING = "PREEMPTING"
    """Told to save and yield its place; it goes back to the queue."""
    STOPPING = "STOPPING"
    """Told to end: SIGTERM, then the grace time."""
    SUCCEEDED = "SUCCEEDED"
    """Final: it ended with exit code 0 and its outputs are stored."""
    FAILED = "FAILED"
    """Final, with a reason."""
    CANCELLED = "CANCELLED"
    """Final: somebody stopped it, or what it waited for ended badly."""

    @property
    def final(self) -> bool:
        """Final states absorb: nothing ever leaves them."""
        return self in FINAL

    @property
    def leased(self) -> bool:
        """A VM works for the job in this state."""
        return self in LEASED


S = JobStatus
FINAL = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED})
WAITING = frozenset({S.QUEUED, S.PROVISIONING})
LEASED = frozenset({S.ASSIGNED, S.STARTING, S.RUNNING, S.PREEMPTING, S.STOPPING})


class JobEvent(StrEnum):
    """What can happen to a job."""

    SUBMITTED = "submitted"
    """The job was accepted."""
    ADMITTED = "admitted"
    """It is its turn: quota is reserved and a VM may be asked for."""
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
    SPOT_TAKEN = "spot_taken"
    """The cloud reclaimed the spot VM."""
    CLAIM_TIMEOUT = "claim_timeout"
    """The worker did not claim the start in time."""
    START_TIMEOUT = "start_timeout"
    """The worker claimed the start and did not run it in time."""
    START_REFUSED = "start_refused"
    """Pub/Sub refuses the start for what it says; no other VM would get it."""
    GANG_TIMEOUT = "gang_timeout"
    """The gang kept some VMs for too long while it waited for the others."""
    QUEUE_TIMEOUT = "queue_timeout"
    """It waited for longer than it may."""
    MAX_RUNTIME = "max_runtime"
    """It ran for longer than it may."""
    YIELD_ASKED = "yield_asked"
    """It is told to save and yield its place."""
    YIELDED = "yielded"
    """The worker says that it has yielded."""
    YIELD_GRACE_OVER = "yield_grace_over"
    """It did not yield in time."""
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
    (S.ASSIGNED, E.SPOT_TAKEN): (S.QUEUED,),
    (S.ASSIGNED, E.YIELD_ASKED): (S.PREEMPTING,),
    (S.ASSIGNED, E.GANG_FAILED): (S.STOPPING,),
    (S.ASSIGNED, E.STOP_ASKED): (S.STOPPING,),
    (S.STARTING, E.STARTED): (S.RUNNING,),
    (S.STARTING, E.EXITED_OK): (S.SUCCEEDED,),
    (S.STARTING, E.EXITED_ERROR): (S.QUEUED, S.FAILED),
    (S.STARTING, E.VM_LOST): (S.QUEUED, S.FAILED),
    (S.STARTING, E.SPOT_TAKEN): (S.QUEUED, S.FAILED),
    (S.STARTING, E.START_TIMEOUT): (S.QUEUED, S.FAILED),
    (S.STARTING, E.YIELD_ASKED): (S.PREEMPTING,),
    (S.STARTING, E.GANG_FAILED): (S.STOPPING,),
    (S.STARTING, E.STOP_ASKED): (S.STOPPING,),
    (S.RUNNING, E.EXITED_OK): (S.SUCCEEDED,),
    (S.RUNNING, E.EXITED_ERROR): (S.QUEUED, S.FAILED),
    (S.RUNNING, E.VM_LOST): (S.QUEUED, S.FAILED),
    (S.RUNNING, E.SPOT_TAKEN): (S.QUEUED, S.FAILED),
    (S.RUNNING, E.YIELD_ASKED): (S.PREEMPTING,),
    (S.RUNNING, E.MAX_RUNTIME): (S.STOPPING,),
    (S.RUNNING, E.GANG_FAILED): (S.STOPPING,),
    (S.RUNNING, E.STOP_ASKED): (S.STOPPING,),
    (S.PREEMPTING, E.YIELDED): (S.QUEUED,),
    (S.PREEMPTING, E.YIELD_GRACE_OVER): (S.QUEUED,),
    (S.PREEMPTING, E.EXITED_OK): (S.SUCCEEDED,),
    (S.PREEMPTING, E.STOP_ASKED): (S.STOPPING,),
    (S.PREEMPTING, E.GANG_FAILED): (S.STOPPING,),
    (S.PREEMPTING, E.VM_LOST): (S.QUEUED,),
    (S.PREEMPTING, E.SPOT_TAKEN): (S.QUEUED,),
    (S.STOPPING, E.STOPPED): (S.CANCELLED, S.FAILED),
    (S.STOPPING, E.EXITED_ERROR): (S.CANCELLED, S.FAILED),
    (S.STOPPING, E.VM_LOST): (S.CANCELLED, S.FAILED),
    (S.STOPPING, E.SPOT_TAKEN): (S.CANCELLED, S.FAILED),
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
        (S.PREEMPTING, E.YIELD_ASKED),
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
    S.PREEMPTING: E.YIELD_GRACE_OVER,
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
class JobSpec:
    """What the submitter asked for. Never changes after submission."""

    job_id: str
    user_id: str = "0"
    tenant_id: str = "default"
    name: str = ""
    command: tuple[str, ...] = ()
    shell: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu_type: str | None = None
    gpu_types: tuple[str, ...] = ()
    """Several that will do, the preferred one first."""
    gpu_count: int = 1
    """On each VM; 0: it runs on a VM without GPUs."""
    cluster: str | None = None
    gpu_memory_mb: int = 0
    cpu_cores: float = 0
    memory_mb: int = 0
    priority: int = 500
    regions: tuple[str, ...] = ()
    regions_denied: tuple[str, ...] = ()
    max_usd_per_hour: float | None = None
    """What the VM may cost at most."""
    spot: bool | None = None
    """True: spot VMs are wanted; False: never. None: stored before consent was asked, as its
    cluster comes."""
    allow_larger: bool | None = None
    """Whether VMs with more GPUs than it asks for may be taken. None: stored before consent was
    asked, they may."""
    agreed_usd_per_hour: float | None = None
    """What one of its VMs may cost in a cluster that it is moved to; None: nobody asked."""
    deadline: datetime | None = None
    """When the result is wanted; without it the price decides."""
    max_runtime_s: float = 7 * 86400.0
    queue_timeout_s: float = 30 * 86400.0
    stop_grace_s: float = 60.0
    retries: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    keep_alive: bool = False
    workflow: str = ""
    workflow_args: Mapping[str, object] = field(default_factory=dict)
    group: str | None = None
    """Jobs of one user that are watched and stopped as one."""
    after: tuple[str, ...] = ()
    """What must have ended before: "job:ok" or "group:any"."""
    array: str | None = None
    """The indexes of the array that it belongs to, in the submitter's words."""
    replicas: int = 1
    """On how many VMs it runs at once: more than one is a gang. Of an elastic job: at most."""
    replicas_min: int | None = None
    """It runs as soon as there are so many, and gets more when there is room; None: all or none."""
    resize_signal: str = "USR1"
    """What tells an elastic job's processes that its size has changed; "none": the file alone."""
    reschedulable: bool = True
    """It may be asked to yield, and begins again after a lost VM; False: neither."""
    same_zone: bool = False
    """A gang's VMs are in one zone, not only in one region."""
    replace_members: bool = False
    """A gang goes on when it loses a VM other than the first; another one takes its place."""
    image: str | None = None
    """Runs in a container of this image; None: as a process of the VM."""
    working_dir: str = ""
    """In the container; empty: the image's own. Of a process: on the machine, in static pools."""
    keep_entrypoint: bool = False
    """The command is arguments for the image's own entrypoint, not a program."""

    @property
    def slots(self) -> int:
        """How many parts of a VM it is given: its GPUs, or one without a GPU."""
        return slots_of(self.gpu_count)

    @property
    def least(self) -> int:
        """How many members must run at once."""
        return self.replicas if self.replicas_min is None else self.replicas_min

    @property
    def elastic(self) -> bool:
        return self.least < self.replicas

    def allows_region(self, region: str) -> bool:
        """Whether a VM there may serve it."""
        return region not in self.regions_denied and (not self.regions or region in self.regions)

    def affords(self, usd_per_hour: float) -> bool:
        """Whether a VM at that price may serve it."""
        return self.max_usd_per_hour is None or usd_per_hour <= self.max_usd_per_hour


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
    preemptions: int = 50


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
    the hold was made for). Its own uid: it is parked."""
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
        """A member of an elastic job beyond those that it needs. While it has no place it is
        parked: in no queue, and nobody waits for it."""
        return self.gang is not None and self.gang.rank >= self.spec.least

    @property
    def parked(self) -> bool:
        return self.blocked is not None and self.spare

    def is_backing_off(self, now: datetime) -> bool:
        """Whether it waits for the moment of its next attempt: until then it is in no queue."""
        return self.retry_at is not None and now < self.retry_at

    @property
    def evictions(self) -> int:
        """How many of its attempts ended for nobody's fault: it had to yield."""
        over = self.attempt - (self.lease is not None)
        return max(0, over - self.failures - self.losses - self.preemptions)

    @property
    def key(self) -> tuple[str, str]:
        """What callers know it by."""
        return (self.spec.user_id, self.spec.job_id)


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


def new_job(
    uid: str,
    spec: JobSpec,
    cluster: str,
    now: datetime,
    *,
    reason: str = "",
    queue: QueuePolicy | None = None,
    expected_s: float | None = None,
    blocked: str | None = None,
    gang: Membership | None = None,
) -> Job:
    """A job as it is right after submission. `expected_s`: how long it is predicted to run;
    `blocked`: the hold that it waits behind."""
    if gang is not None and gang.rank >= spec.least:
        blocked = uid  # parked, see Job.spare
    patience_s = BLOCKED_MAX_S if blocked else spec.queue_timeout_s
    return Job(
        uid=uid,
        spec=spec,
        cluster=cluster,
        status=S.QUEUED,
        version=1,
        submitted_at=now,
        status_since=now,
        queued_since=now,
        deadline_at=now + timedelta(seconds=patience_s),
        reason=reason,
        blocked=blocked,
        gang=gang,
        due_at=due_at(now, spec, 0.0, queue or QueuePolicy(), expected_s),
    )


def advance(
    job: Job,
    event: JobEvent,
    now: datetime,
    rules: Rules,
    *,
    reason: str = "",
    lease: Lease | None = None,
    exit_code: int | None = None,
    cluster: str | None = None,
    gang_region: str | None = None,
    saved: SavedWork | None = None,
) -> Job:
    """The job after the event; the same object if the event is a repeat; else IllegalTransition.
    `lease` belongs to a placement, `cluster` to a move to another cluster, `gang_region` to the
    admission of a gang, `saved` to the end of an attempt: what its last checkpoint holds."""
    if (job.status, event) in REPEATS:
        return job
    targets = TRANSITIONS.get((job.status, event))
    held = job.blocked is not None and not job.parked
    if targets is None or (held and event is E.ADMITTED):
        raise IllegalTransition(f"job {job.spec.job_id}", job.status, event)
    assert (cluster is not None) == (event is E.REROUTED), f"{event} with cluster {cluster}"
    counted = _count(job, event)
    target = _choose(counted, event, targets, rules)
    delay_s = _retry_delay_s(counted, event, target, rules)
    reason = (reason or str(event)) + _spent(counted, event, target, rules)
    reason = _attempt_words(counted, event, reason, delay_s)
    moved = replace(
        counted,
        cluster=cluster or job.cluster,
        gang_region=job.gang_region if gang_region is None else gang_region,
        status=target,
        version=job.version + 1,
        status_since=now,
        reason=reason,
        exit_code=exit_code if exit_code is not None else counted.exit_code,
        retry_at=job.retry_at if target is S.QUEUED else None,
    )
    if delay_s is not None:
        moved = replace(moved, retry_at=now + timedelta(seconds=delay_s))
    if target is not S.PROVISIONING and moved.offer is not None:
        moved = replace(moved, offer=None)
    moved = _apply_lease(moved, job, event, lease)
    moved = _apply_times(moved, job, event, now)
    moved = _park(_apply_service(_apply_saved(moved, job, saved), job, now, rules))
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


def _park(job: Job) -> Job:
    """A spare member waits for nothing but room: without a place it is in no queue."""
    if not job.spare:
        return job
    return replace(job, blocked=job.uid if job.status is S.QUEUED else None)


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
# A job that yielded did so for others: that eats nobody's budget.
_PREEMPTIONS = frozenset({E.SPOT_TAKEN})


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
    """Which of its attempts failed, and when the next one comes. Counted are those that ended by
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
    if event is E.RELEASED:  # nobody's patience is used up by waiting for one's own jobs
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
    if before.blocked is not None and not before.spare and moved.due_at is not None:
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
    # From its submission: one that was evicted must not begin to age anew.
    due = due_at(moved.submitted_at, moved.spec, moved.attained_gpu_s, rules.queue)
    return replace(moved, due_at=max(due, moved.due_at or due))


def _deadline(job: Job, now: datetime, rules: Rules) -> datetime | None:
    timers = rules.timers_of(job.cluster)
    match job.status:
        case S.QUEUED | S.PROVISIONING:
            far = job.blocked is not None or job.spare
            patience_s = BLOCKED_MAX_S if far else job.spec.queue_timeout_s
            return (job.retry_at or job.queued_since) + timedelta(seconds=patience_s)
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
