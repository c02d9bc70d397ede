"""What each tenant would have on a part of the pool of its own: what sharing is held against."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bench.replay.pool import PoolJob, replay
from bench.replay.queue_rivals import Fill
from sim.replay.workload import TraceJob


def apart(trace: Sequence[TraceJob], gpus: int) -> dict[str, float]:
    """Tenant → its mean completion, on GPUs in proportion to its work (and enough for its largest
    job), first come, whatever fits may start."""
    by_tenant: dict[str, list[TraceJob]] = {}
    for job in trace:
        by_tenant.setdefault(job.group, []).append(job)
    whole = sum(job.duration_s * job.gpus for job in trace)
    found: dict[str, float] = {}
    for tenant, jobs in by_tenant.items():
        work = sum(job.duration_s * job.gpus for job in jobs)
        part = max(round(gpus * work / whole), *(job.gpus for job in jobs), 1)
        found[tenant] = fmean(job.completion_s for job in replay(jobs, part, Fill()))
    return found


def finish_time_fairness(jobs: Sequence[PoolJob], alone: dict[str, float]) -> float:
    """Of the tenant that fares worst by sharing: its mean completion over what it would be apart.
    Below 1 everybody gains."""
    shared: dict[str, list[float]] = {}
    for job in jobs:
        shared.setdefault(job.tenant, []).append(job.completion_s)
    return max(fmean(values) / alone[tenant] for tenant, values in shared.items())
