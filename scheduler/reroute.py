"""Spot is for those who have time: a job whose deadline leaves none any more goes to the standard
VMs of the same kind. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from core.capacity import ClusterSpec, Demand, Vm
from core.changes import View
from core.job import WAITING, E, Job
from core.timers import Timers
from orchestrator.outlook import Outlook, outlooks
from orchestrator.picture import Picture
from scheduler.choice import standard_cluster
from scheduler.draft import Draft

Clusters = Mapping[str, ClusterSpec]


def leave_spot(draft: Draft, view: View, clusters: Clusters, typical_run_s: float) -> None:
    """Move each job that waits for a spot VM (never had one, or lost it) and can only just be done
    in time on a standard one. It does not come back: a second detour would cost the deadline."""
    timers = draft.rules.timers
    waits: dict[str, float | None] = {}
    for job in draft.waiting():
        if not _may_move(job, clusters):
            continue
        target = standard_of(job, clusters)
        if target is None:
            continue
        if target.name not in waits:
            waits[target.name] = delivery_s(target, view, draft.vms_of(target.name), timers)
        wait_s = waits[target.name]
        if wait_s is None:
            continue  # nothing is to be had there either: spot is the better hope
        run_s = run_time_s(job, timers, typical_run_s)
        if _start_by(job, run_s, wait_s) <= draft.now:
            reason = _reason(job, target, run_s, wait_s)
            draft.step(job, E.REROUTED, reason, cluster=target.name, left=job.cluster)


def _may_move(job: Job, clusters: Clusters) -> bool:
    """One that asked for exactly its cluster stays there."""
    here = clusters.get(job.cluster)
    waits = job.status in WAITING and job.spec.deadline is not None and job.gang is None
    waits = waits and job.offer is None  # a v1 worker may have taken it already
    return waits and job.spec.cluster is None and here is not None and here.spot


def standard_of(job: Job, clusters: Clusters) -> ClusterSpec | None:
    """The cheapest cluster of standard VMs with the same GPUs that gives the job all it asks."""
    return standard_cluster(job.spec, clusters[job.cluster], clusters.values())


def run_time_s(job: Job, timers: Timers, typical_run_s: float) -> float:
    """How long it is taken to run: its own limit if it stated one, else what is usual. All of it,
    also after a preemption: what a checkpoint saves is not known here."""
    stated = job.spec.max_runtime_s < timers.max_runtime_s
    return job.spec.max_runtime_s if stated else min(typical_run_s, job.spec.max_runtime_s)


def delivery_s(cluster: ClusterSpec, view: View, vms: Iterable[Vm], timers: Timers) -> float | None:
    """From asking for a VM to its first job, in nine of ten cases, where that is soonest; None if
    every region is blocked."""
    picture = Picture(
        spec=cluster,
        demand=Demand(cluster.name),
        vms=tuple(vms),
        troubles=view.troubles,
        experience=view.experience,
    )
    found = outlooks(picture, timers, view.now).values()
    return min((_late_s(outlook) for outlook in found if outlook.block is None), default=None)


def _late_s(outlook: Outlook) -> float:
    return outlook.late_after_s + outlook.boot_s


def _start_by(job: Job, run_s: float, wait_s: float) -> datetime:
    assert job.spec.deadline is not None, "only a job with a deadline can run out of time"
    return job.spec.deadline - timedelta(seconds=run_s + wait_s)


def _reason(job: Job, target: ClusterSpec, run_s: float, wait_s: float) -> str:
    return (
        f"moved from {job.cluster} to {target.name}: no more time to wait for a spot VM before the "
        f"deadline at {job.spec.deadline:%Y-%m-%d %H:%M:%S} UTC (taken to run {run_s:.0f} s, a "
        f"standard VM takes up to {wait_s:.0f} s)"
    )
