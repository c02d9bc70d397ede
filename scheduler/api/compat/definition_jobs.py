"""Jobs and VMs in the words of clients that submit a `definition`: shapes and translation, pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from core.client_statuses import WORDS
from core.cluster import ClusterSpec
from core.job import Job, JobStatus
from core.reads import Milestones
from core.vm import Vm
from scheduler.api.shapes import Time, iso, iso_or_none
from scheduler.submission.other_systems import their_gpu_type

PENDING_SHOWN = timedelta(seconds=0.5)
ASSIGNED_SHOWN = timedelta(seconds=2)
"""A client that asks twice a second for a job sees it pending, then assigned: it waits for these
states, and here a job may pass through both within milliseconds."""
S = JobStatus


class ResourcesOut(Struct, frozen=True):
    """What a job asks for, or an executor has."""

    cpu_cores: float
    memory_mb: int
    gpu_type: str | None
    gpu_count: int


class DefinitionOut(Struct, frozen=True):
    """What was submitted."""

    name: str
    image: str | None
    command: tuple[str, ...]
    resources: ResourcesOut
    environment: Mapping[str, str]


class ContainerOut(Struct, frozen=True):
    """The container of a job with an image."""

    container_id: str | None
    status: str
    exit_code: int | None
    started_at: Time | None
    finished_at: Time | None
    logs: str | None


class DefinedJobOut(Struct, frozen=True):
    """A job."""

    id: str
    job_id: str
    definition: DefinitionOut
    status: str
    executor_id: str | None
    assigned_executor_id: str | None
    ip_address: str | None
    created_at: Time
    updated_at: Time
    assigned_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    aborted_at: Time | None
    container_status: ContainerOut | None
    exit_code: int | None
    error: str | None
    error_message: str | None


class DefinedJobsOut(Struct, frozen=True):
    """A page of jobs, newest first."""

    jobs: tuple[DefinedJobOut, ...]


class ExecutorInfoOut(Struct, frozen=True):
    """A VM and all that it has."""

    id: str
    ip_address: str
    resources: ResourcesOut


class AvailableOut(Struct, frozen=True):
    """What nobody holds of a VM."""

    id: str
    resources: ResourcesOut


class HealthyExecutorOut(Struct, frozen=True):
    """A VM that takes jobs, or runs one."""

    executor_info: ExecutorInfoOut
    available_resources: AvailableOut
    assigned_jobs_count: int


class HealthyExecutorsOut(Struct, frozen=True):
    """All of them."""

    executors: tuple[HealthyExecutorOut, ...]


def shown_status(job: Job, known: Milestones, now: datetime) -> JobStatus:
    """The job's status as such clients are told it: a state that has just begun is not passed over.
    What was aborted is aborted at once. Clocks that differ hide nothing."""
    if job.status in (S.STOPPING, S.CANCELLED):
        return job.status
    if timedelta() <= now - job.submitted_at < PENDING_SHOWN:
        return S.QUEUED
    assigned_at = known.at.get(S.ASSIGNED)
    if assigned_at is None or WORDS[job.status].definition == WORDS[S.QUEUED].definition:
        return job.status
    since = max(assigned_at, job.submitted_at + PENDING_SHOWN)
    return S.ASSIGNED if timedelta() <= now - since < ASSIGNED_SHOWN else job.status


def defined_job(
    job: Job, known: Milestones, addresses: Mapping[str, str], status: JobStatus | None = None
) -> DefinedJobOut:
    """The job in that family's words. `addresses`: VM → where it is reached; `status`: as which it
    is shown, if not as what it is."""
    spec, shown = job.spec, status or job.status
    waits = WORDS[shown].definition == WORDS[S.QUEUED].definition
    began = not waits and shown not in (S.ASSIGNED, S.STARTING)
    vm = None if waits else job.lease.vm_name if job.lease else known.vm_name
    started = (job.started_at or known.at.get(S.RUNNING)) if began else None
    ended = job.ended_at if shown.final else None
    aborted = shown is S.CANCELLED
    error = job.reason if shown is S.FAILED or aborted else None
    return DefinedJobOut(
        id=spec.job_id,
        job_id=spec.job_id,
        definition=_definition(job),
        status=WORDS[shown].definition,
        executor_id=vm,
        assigned_executor_id=vm,
        ip_address=None if vm is None else addresses.get(vm) or vm,
        created_at=iso(job.submitted_at),
        updated_at=iso(job.status_since),
        assigned_at=iso_or_none(None if waits else known.at.get(S.ASSIGNED)),
        started_at=iso_or_none(started),
        finished_at=iso_or_none(ended),
        aborted_at=iso_or_none(ended if aborted else None),
        container_status=_container(job, started, ended) if vm and spec.image else None,
        exit_code=job.exit_code if shown.final else None,
        error=error,
        error_message=error,
    )


def _definition(job: Job) -> DefinitionOut:
    spec = job.spec
    return DefinitionOut(
        name=spec.name,
        image=spec.image,
        command=spec.command,
        resources=ResourcesOut(
            spec.cpu_cores,
            spec.memory_mb,
            None if spec.gpu_type is None else their_gpu_type(spec.gpu_type),
            spec.gpu_count,
        ),
        environment=spec.environment,
    )


def _container(job: Job, started: datetime | None, ended: datetime | None) -> ContainerOut:
    status = "created" if started is None else "running" if ended is None else "exited"
    exit_code = job.exit_code if ended is not None else None
    return ContainerOut(None, status, exit_code, iso_or_none(started), iso_or_none(ended), None)


def resources_of(vm: Vm, spec: ClusterSpec | None) -> ResourcesOut:
    """All that a VM has; of a cluster that is not configured any more nothing but its GPUs is
    known."""
    return ResourcesOut(
        cpu_cores=spec.cpus if spec else 0,
        memory_mb=spec.memory_gb * 1024 if spec else 0,
        gpu_type=their_gpu_type(spec.gpu_type) if spec and spec.gpus else None,
        gpu_count=vm.gpus,
    )


def held_of(has: ResourcesOut, vm: Vm, at_work: Mapping[str, Job], *, shared: bool) -> ResourcesOut:
    """What jobs have of a VM: what they asked for, or all of it where a job has its VM to itself.
    A job that was told to end counts no more: its part is about to be free."""
    jobs = [at_work[lease] for lease in vm.leases if lease in at_work]
    if not shared:
        return has if jobs else ResourcesOut(0.0, 0, None, 0)
    return ResourcesOut(
        sum(job.spec.cpu_cores for job in jobs),
        sum(job.spec.memory_mb for job in jobs),
        None,
        sum(job.spec.gpu_count for job in jobs),
    )


def healthy_executor(
    vm: Vm, has: ResourcesOut, jobs: int, held: ResourcesOut
) -> HealthyExecutorOut:
    """`held`: what jobs have of it."""
    left = ResourcesOut(
        max(0.0, has.cpu_cores - held.cpu_cores),
        max(0, has.memory_mb - held.memory_mb),
        has.gpu_type,
        max(0, has.gpu_count - held.gpu_count),
    )
    return HealthyExecutorOut(
        executor_info=ExecutorInfoOut(vm.name, vm.address or vm.name, has),
        available_resources=AvailableOut(vm.name, left),
        assigned_jobs_count=jobs,
    )
