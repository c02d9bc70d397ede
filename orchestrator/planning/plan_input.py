"""All that a plan may look at, and who serves whom in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from core.cluster import ClusterSpec
from core.demand import Demand, VmRequest, VmRequestKind
from core.floors import floor_at
from core.job import Job, JobStatus
from core.region_blocks import RegionBlock
from core.remaining import RunTimes, latest_start, reserve_s
from core.supply import Arrivals, CapacityPolicy, SupplyHistory
from core.vm import Vm

STARTS_S = 600.0
"""Of a job with a deadline: time for a start on a VM that may be reclaimed, and another one."""
NO_ANSWER = "the cloud did not answer there, trying again soon"
BUSY = "another call is under way there, the next one follows its answer"
FLOOR = VmRequest(kind=VmRequestKind.FLOOR)
"""A warm VM that nobody waits for."""


@dataclass(frozen=True, slots=True)
class PlanInput:
    """All that the plan may look at."""

    spec: ClusterSpec
    demand: Demand
    vms: tuple[Vm, ...]
    """Every VM of the cluster that is not gone."""
    blocks: tuple[RegionBlock, ...]
    asked: frozenset[str] = frozenset()
    """Names that the cloud deletes already, or was asked to: no need to ask again."""
    quiet: Mapping[str, str] = field(default_factory=dict)
    """Regions where no call is made for now, and why: NO_ANSWER or BUSY."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Regions whose group must not grow as it is set up, and why."""
    supply: tuple[SupplyHistory, ...] = ()
    arrivals: Arrivals | None = None
    """None: no job has come lately."""
    policy: CapacityPolicy = field(default_factory=CapacityPolicy)
    spurned: frozenset[str] = frozenset()
    """Regions where a request for several VMs at once failed a moment ago: no other for now."""
    at_work: tuple[VmRequest, ...] = ()
    """What the running jobs once requested; `since`: when they began."""


def demand_of(
    cluster: str,
    jobs: Iterable[Job],
    runs: RunTimes = RunTimes(),  # noqa: B008  # frozen
    admitted: Sequence[str] = (),
) -> Demand:
    """PROVISIONING jobs are the demand: each wants one VM. `runs`: how much of each is left to run.
    `admitted`: uids in the order of the last admission, which is the order of the demand; jobs that
    it did not consider come after them."""
    order = {uid: place for place, uid in enumerate(admitted)}
    waiting = [j for j in jobs if j.status is JobStatus.PROVISIONING and j.cluster == cluster]
    waiting.sort(key=lambda job: (order.get(job.uid, len(order)), job.queued_since, job.uid))
    return Demand(
        cluster,
        tuple(replace(request_of(job, runs), position=n) for n, job in enumerate(waiting)),
    )


def at_work(jobs: Iterable[Job], spec: ClusterSpec) -> tuple[VmRequest, ...]:
    """Of the jobs that run in a cluster. Where they share VMs, the end of one frees none."""
    if spec.share:
        return ()
    return tuple(
        VmRequest(
            _reach_of(job),
            job.spec.max_usd_per_hour,
            job.started_at,
            denied=job.spec.regions_denied,
            job=job.uid,
        )
        for job in jobs
        if job.cluster == spec.name and job.started_at is not None and job.lease is not None
    )


def request_of(job: Job, runs: RunTimes) -> VmRequest:
    """What the planner must know of a waiting job."""
    spec, start_by, left_s = job.spec, None, 0.0
    if spec.deadline is not None:
        left = runs.left(job)
        left_s = left.run_s
        start_by = latest_start(job, left, STARTS_S + reserve_s(job, left))
    return VmRequest(
        regions=_reach_of(job),
        max_usd_per_hour=spec.max_usd_per_hour,
        since=job.queued_since,
        start_by=start_by,
        left_s=left_s,
        denied=spec.regions_denied,
        gpus=spec.slots,
        cpus=spec.cpu_cores,
        memory_mb=spec.memory_mb,
        tenant=spec.tenant_id,
        gang=job.gang.uid if job.gang is not None else "",
        run_s=spec.max_runtime_s,
        job=job.uid,
    )


def _reach_of(job: Job) -> tuple[str, ...]:
    """A gang's VMs must come up together: all of it looks in one region at a time."""
    return (job.gang_region,) if job.gang_region else job.spec.regions


def requests_of(inputs: PlanInput, now: datetime) -> tuple[VmRequest, ...]:
    """The demand, and the floor: idle VMs that no job waits for are requested as well."""
    floor = floor_at(inputs.spec.vm_min, inputs.spec.floors, now)
    if not floor:
        return inputs.demand.requests
    busy = sum(vm.state.ready and vm.busy for vm in inputs.vms)
    short = max(0, floor - busy - len(inputs.demand.requests))
    return inputs.demand.requests + (FLOOR,) * short


@dataclass(frozen=True, slots=True)
class Match:
    """Who serves whom."""

    unmet: tuple[VmRequest, ...]
    """In the order of the VM requests."""
    spare: tuple[Vm, ...]


def match(requests: Iterable[VmRequest], supply: Sequence[Vm], now: datetime) -> Match:
    """Give each VM request a VM that it allows, the choosy ones first; VMs are given in order."""
    free = list(supply)
    unmet: list[tuple[int, VmRequest]] = []
    for place, request in sorted(enumerate(requests), key=lambda item: _choosiness(item[1])):
        fitting = next((vm for vm in free if request.served_by(vm, now)), None)
        if fitting is None:
            unmet.append((place, request))
        else:
            free.remove(fitting)
    unmet.sort(key=lambda item: item[0])
    return Match(tuple(request for _, request in unmet), tuple(free))


def _choosiness(request: VmRequest) -> tuple[bool, int, bool, bool]:
    capped = request.max_usd_per_hour is not None
    return (not request.regions, len(request.regions), not request.denied, not capped)
