"""Core values → what callers read. The types here are also the schemas of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from core.cluster import ClusterSpec
from core.cost import CostKind
from core.forecast import Forecast, JobForecast
from core.groups import dependency_words
from core.job import WAITING, Job, JobStatus, Lease
from core.job_fields import SPEC_FIELDS, JobSpec, types
from core.names import BadName, parse_cluster
from core.reads import AttemptRow, EventRow, JobRow, Worked
from core.slots import gpus_among
from core.waits import WaitKind, WaitRow
from scheduler.api.compat.multitenant import job_words
from scheduler.operations.stop import Stopped
from scheduler.placement.gang import JOINS_LATER
from scheduler.submission.quotes import price_fields, prices_of
from scheduler.submission.submit import Accepted

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""ISO 8601, UTC, milliseconds, Z."""


class JobState(StrEnum):
    """The vocabulary of multi-tenant clients; our own `status` says more."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    PREEMPTED = "preempted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


STATES: Mapping[JobStatus, JobState] = {
    JobStatus.QUEUED: JobState.PENDING,
    JobStatus.PROVISIONING: JobState.PENDING,
    JobStatus.ASSIGNED: JobState.SCHEDULED,
    JobStatus.STARTING: JobState.SCHEDULED,
    JobStatus.RUNNING: JobState.RUNNING,
    JobStatus.PREEMPTING: JobState.PREEMPTED,
    JobStatus.STOPPING: JobState.RUNNING,
    JobStatus.SUCCEEDED: JobState.COMPLETED,
    JobStatus.FAILED: JobState.FAILED,
    JobStatus.CANCELLED: JobState.CANCELLED,
}


def statuses_of(state: JobState) -> frozenset[JobStatus]:
    """Our statuses that look like this state."""
    return frozenset(status for status, seen in STATES.items() if seen is state)


def iso(at: datetime) -> str:
    """2026-01-31T12:00:00.000Z."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(at: datetime | None) -> str | None:
    return None if at is None else iso(at)


_Out = TypeVar("_Out", bound=Struct)


def shaped(kind: type[_Out], source: object, **own: object) -> _Out:
    """The shape with what the source calls by the same names, moments as text. `own`: what the
    source does not have, or has in other words."""
    for name in kind.__struct_fields__:
        if name not in own:
            value = getattr(source, name)
            own[name] = iso(value) if isinstance(value, datetime) else value
    return kind(**own)


# --- submit and stop ----------------------------------------------------------------------


class AcceptedOut(Struct, frozen=True):
    """A submission that is stored."""

    job_id: str
    user_id: str
    status: str
    message: str
    cluster: str
    tenant_id: str
    jobs: int = 1
    starvation_bound_s: float | None = None
    """It waits for its first start no longer than this, if no run lasts longer than the default
    max_runtime; higher classes, other tenants' jobs, quotas and the cloud come on top."""
    machine_type: str | None = None
    gpus_per_vm: int | None = None
    spot: bool | None = None
    usd_per_hour: float | None = None
    """One VM (of a shared one: the job's part) in the cheapest region that the job allows."""
    usd_per_hour_max: float | None = None
    """The same in the dearest region that the job allows."""
    vms: int | None = None
    """Most VMs of the submission that run at once."""
    total_usd_per_hour: float | None = None
    """The whole submission, at most: `vms` × `usd_per_hour_max`."""


class StoppedOut(Struct, frozen=True):
    """What became of a request to stop."""

    job_id: str
    status: str
    message: str


def accepted_out(accepted: Accepted) -> AcceptedOut:
    return AcceptedOut(
        accepted.job_id,
        accepted.user_id,
        "submitted",
        accepted.message,
        accepted.cluster,
        accepted.tenant_id,
        accepted.jobs,
        accepted.starvation_bound_s,
        **price_fields(accepted.quote),
    )


def stopped_out(stopped: Stopped) -> StoppedOut:
    job = stopped.job
    return StoppedOut(job.spec.job_id, job.status.lower(), stopped.message)


# --- jobs ---------------------------------------------------------------------------------


class JobVmOut(Struct, frozen=True):
    """A VM that works for the job, or did."""

    name: str
    region: str
    zone: str
    slots: tuple[int, ...]


class ProgressOut(Struct, frozen=True):
    """How far the job says it is."""

    step: float
    total: float | None


class RetriesOut(Struct, frozen=True):
    """Misfortunes so far, each against a budget of its own."""

    failures: int
    retries: int
    losses: int
    preemptions: int


class EtaOut(Struct, frozen=True):
    """When a waiting job will start, and how long it will run then."""

    p50: Time | None
    """It starts before this as often as not; null: nothing can be said, and `based_on` says why."""
    p90: Time | None
    """Nine times of ten it starts before this."""
    computed_at: Time | None
    based_on: str
    run_p50_s: float | None
    """How long it runs; null: no run of this kind has ended yet."""
    run_p90_s: float | None
    run_based_on: str


def eta_out(forecast: Forecast | None, said: JobForecast) -> EtaOut:
    told = said.told
    return EtaOut(
        p50=iso_or_none(told.p50_at if told else None),
        p90=iso_or_none(told.p90_at if told else None),
        computed_at=iso_or_none(forecast.computed_at if forecast else None),
        based_on=said.based_on,
        run_p50_s=None if said.run_p50_s is None else round(said.run_p50_s, 1),
        run_p90_s=None if said.run_p90_s is None else round(said.run_p90_s, 1),
        run_based_on=said.run_based_on,
    )


_SHOWN = tuple(field for field in SPEC_FIELDS if field.shown)
_SpecOut = msgspec.defstruct(
    "_SpecOut", [(f.name, types()[f.attribute]) for f in _SHOWN], frozen=True, kw_only=True
)
"""The fields of a job that are shown as they were submitted."""


def spec_fields(spec: JobSpec) -> dict[str, Any]:
    return {field.name: getattr(spec, field.attribute) for field in _SHOWN}


class JobOut(_SpecOut, frozen=True, kw_only=True):  # type: ignore[valid-type, misc, call-arg]
    """A job."""

    id: str
    """The same as `job_id`; clients of multi-tenant schedulers read it in lists."""
    state: JobState
    status: JobStatus
    cluster: str
    gpu_type: str | None
    """That it asks for; else that of its cluster."""
    gpu_types: tuple[str, ...]
    """That it asks for, the preferred one first; empty: any."""
    script: str
    """What /bin/sh -c runs; empty: there is no shell."""
    gang_scheduling: bool
    max_runtime_minutes: float
    replicas_min: int
    """Below `replicas`: it is elastic, and runs with any number between the two."""
    on_spot: bool | None
    """Whether the VMs of its cluster are spot VMs; null: the cluster is not configured any more.
    `spot` is what the job agreed to."""
    usd_per_hour: float | None
    """One VM (of a shared one: its part) in the cheapest region that the job allows."""
    usd_per_hour_max: float | None
    """The same in the dearest region that the job allows."""
    deadline: Time | None
    """When the result is wanted; `deadline_at` is when the job is moved on by itself."""
    rank: int
    members_running: int | None
    attempt: int
    vm: JobVmOut | None
    """The one that works for it now."""
    last_vm: JobVmOut | None
    """The one of its newest attempt; stays when the job has ended."""
    node_name: str | None
    """The name of `vm`; with the next two, what clients of multi-tenant schedulers read."""
    allocated_gpus: tuple[str, ...]
    message: str
    """`why` while it waits, else `reason`."""
    submitted_at: Time
    queued_since: Time
    started_at: Time | None
    ended_at: Time | None
    deadline_at: Time | None
    due_at: Time | None
    """Of one that waits: from then on no job of its tenant and class that comes later passes it."""
    starts_by: Time | None
    """Of one that waits and never ran: the bound of starvation that it was told, as a moment."""
    retry_at: Time | None
    """Of one that waits after a failed attempt: the next one starts no sooner."""
    exit_code: int | None
    reason: str
    why: str
    position: int | None
    queue_position: int
    """The same; 0: it does not wait."""
    eta: EtaOut | None
    """Of one that waits."""
    progress: ProgressOut | None
    checkpoint_step: float | None
    cost_usd: float
    useful_usd: float
    wasted_usd: float
    cost_kinds: Mapping[str, float]
    """useful, boot, idle, hedge, preempted, lost → dollars; their sum is cost_usd."""
    retries: RetriesOut


class JobsOut(Struct, frozen=True):
    """A page of jobs, newest first."""

    jobs: tuple[JobOut, ...]
    total: int
    next_page_token: str | None
    total_exact: bool = True
    """False: there are more than `total`; with a label or a group no more are counted."""


def job_out(row: JobRow, eta: EtaOut | None = None, cluster: ClusterSpec | None = None) -> JobOut:
    """`cluster`: the job's own, as configured now."""
    usd = prices_of(row.job.spec, cluster) if cluster is not None else None
    job, spec = row.job, row.job.spec
    progress = row.progress
    why = _why(row)
    return JobOut(
        **spec_fields(spec),
        **job_words(job, why, row.position),
        **_times(job),
        **_costs(row),
        state=STATES[job.status],
        status=job.status,
        cluster=job.cluster,
        gpu_type=(spec.gpu_type or _type_of(job.cluster)) if spec.gpu_count else None,
        gpu_types=spec.gpu_types or ((spec.gpu_type,) if spec.gpu_type else ()),
        gang_scheduling=spec.replicas > 1,
        max_runtime_minutes=spec.max_runtime_s / 60,
        replicas_min=spec.least,
        on_spot=cluster.spot if cluster is not None else None,
        usd_per_hour=round(usd[0], 4) if usd is not None else None,
        usd_per_hour_max=round(usd[1], 4) if usd is not None else None,
        rank=job.gang.rank if job.gang else 0,
        members_running=row.members_running,
        attempt=job.attempt,
        vm=_vm(job.lease, job),
        last_vm=_vm(row.last, job),
        exit_code=job.exit_code,
        reason=job.reason,
        why=why,
        position=row.position,
        eta=eta,
        progress=ProgressOut(progress.step, progress.total) if progress else None,
        checkpoint_step=row.checkpoint_step,
        retries=RetriesOut(job.failures, spec.retries, job.losses, job.preemptions),
    )


def _times(job: Job) -> dict[str, str | None]:
    fresh = job.status in WAITING and job.attained_gpu_s == 0
    return {
        "deadline": iso_or_none(job.spec.deadline),
        "submitted_at": iso(job.submitted_at),
        "queued_since": iso(job.queued_since),
        "started_at": iso_or_none(job.started_at),
        "ended_at": iso_or_none(job.ended_at),
        "deadline_at": iso_or_none(job.deadline_at),
        "due_at": iso(job.due) if job.status in WAITING else None,
        "starts_by": iso_or_none(job.starts_by) if fresh else None,
        "retry_at": iso_or_none(job.retry_at),
    }


def _costs(row: JobRow) -> dict[str, Any]:
    return {
        "cost_usd": round(row.cost_usd, 6),
        "useful_usd": round(row.cost_usd - row.wasted_usd, 6),
        "wasted_usd": round(row.wasted_usd, 6),
        "cost_kinds": {str(kind): round(row.costs.get(kind, 0.0), 6) for kind in CostKind},
    }


def _why(row: JobRow) -> str:
    if row.job.parked:
        return JOINS_LATER
    return dependency_words(row.job.spec.after) if row.job.blocked is not None else row.why


def _vm(on: Lease | Worked | None, job: Job) -> JobVmOut | None:
    if on is None:
        return None
    return JobVmOut(on.vm_name, on.region, on.zone, gpus_among(on.slots, job.spec.gpu_count))


def _type_of(cluster: str) -> str | None:
    try:
        return parse_cluster(cluster)[1]
    except BadName:
        return None  # a pool of fixed machines may be called anything


class EventOut(Struct, frozen=True):
    """One row of a job's history."""

    seq: int
    at: Time
    event: str
    from_: JobStatus | None = msgspec.field(name="from")
    to: JobStatus
    attempt: int
    reason: str
    vm_name: str | None
    region: str | None
    data: Mapping[str, Any]


class EventsOut(Struct, frozen=True):
    """Part of a job's history, oldest first."""

    events: tuple[EventOut, ...]
    next_after: int | None


def event_out(row: EventRow) -> EventOut:
    entry = row.entry
    moved: dict[str, object] = {"from_": entry.from_status, "to": entry.to_status}
    return shaped(EventOut, entry, seq=row.seq, **moved)


class WaitOut(Struct, frozen=True):
    """Something that a job met while it waited; reasons that differ only in numbers are one."""

    kind: WaitKind
    region: str | None
    reason: str
    """The newest words."""
    first_at: Time
    last_at: Time
    count: int


class WaitsOut(Struct, frozen=True):
    """What a job met while it waited, the first first."""

    waits: tuple[WaitOut, ...]


def wait_out(row: WaitRow) -> WaitOut:
    return shaped(WaitOut, row, region=row.region or None, count=max(1, row.count))


class AttemptOut(Struct, frozen=True):
    """One try on one VM."""

    attempt: int
    lease_id: str
    vm_name: str
    region: str
    zone: str
    slots: tuple[int, ...]
    assigned_at: Time
    started_at: Time | None
    ended_at: Time | None
    outcome: str
    exit_code: int | None
    usd_per_hour: float
    checkpoint_at: Time | None


class AttemptsOut(Struct, frozen=True):
    """All tries, oldest first."""

    attempts: tuple[AttemptOut, ...]


def attempt_out(row: AttemptRow, spec: JobSpec) -> AttemptOut:
    return shaped(AttemptOut, row, slots=gpus_among(row.slots, spec.gpu_count))
