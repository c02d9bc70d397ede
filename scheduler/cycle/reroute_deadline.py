"""Spot is for those who have time: a job whose deadline leaves none any more goes to the standard
VMs of the same kind. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from core.changes import Snapshot
from core.cluster import ClusterSpec
from core.demand import Demand
from core.job import WAITING, E, Job
from core.job_steps import EventFacts
from core.remaining import MARGIN_SHARE, Remaining, latest_start, reserve_s
from core.timers import Timers
from core.vm import Vm
from orchestrator.planning.plan_input import PlanInput
from orchestrator.planning.region_estimates import Outlooks
from scheduler.plan_builder import PlanBuilder
from scheduler.submission.cluster_selection import standard_cluster

Clusters = Mapping[str, ClusterSpec]


def leave_spot(plan: PlanBuilder, snapshot: Snapshot, clusters: Clusters) -> None:
    """Move each job that waits for a spot VM (never had one, or lost it) and can only just be done
    in time on a standard one, a gang with all its members. It does not come back: a second detour
    would cost the deadline."""

    @cache
    def starts(cluster: str) -> tuple[float | None, float]:
        vms, timers = plan.vms_of(cluster), plan.rules.timers
        return delivery_s(clusters[cluster], snapshot, vms, timers)

    if not any(spec.spot for spec in clusters.values()):
        return
    for job in plan.waiting():
        gang = _gang(job, plan, clusters)
        here = clusters.get(job.cluster)
        target = standard_cluster(job.spec, here, clusters.values()) if gang and here else None
        if target is None:
            continue
        (wait_s, target_boot_s), (detour_s, spot_boot_s) = starts(target.name), starts(job.cluster)
        if wait_s is None:
            continue  # nothing is to be had there either: spot is the better hope
        left = plan.deadline_slack.runs.left(job)
        # A spot VM must be worth its start: it may be reclaimed at once, and then a standard one
        # has to start.
        boot_s = max(target_boot_s, spot_boot_s)
        before_s = wait_s + boot_s + (detour_s or 0.0) + spot_boot_s
        start_by = latest_start(job, left, before_s + MARGIN_SHARE * reserve_s(job, left))
        if start_by is not None and start_by <= plan.now:
            reason = _reason(job, target, left, wait_s + boot_s)
            with plan.together():
                for member in gang:
                    facts = EventFacts(cluster=target.name, gang_region="")
                    plan.step(member, E.REROUTED, reason, facts=facts, left=job.cluster)


def _gang(job: Job, plan: PlanBuilder, clusters: Clusters) -> Sequence[Job]:
    """The job, or all of its gang when its first member is asked about; empty: it does not move.
    One that asked for exactly its cluster stays there."""
    here = clusters.get(job.cluster)
    if job.spec.deadline is None or job.spec.cluster is not None or here is None or not here.spot:
        return ()
    gang: Sequence[Job] = (job,)
    if job.gang is not None:
        if job.gang.rank:
            return ()
        gang = [m for m in plan.gang(job.gang.uid) if not m.status.final]
    # A v1 worker may have taken one already.
    waits = all(m.status in WAITING and m.offer is None for m in gang)
    return gang if waits else ()


def delivery_s(
    cluster: ClusterSpec, snapshot: Snapshot, vms: Iterable[Vm], timers: Timers
) -> tuple[float | None, float]:
    """From asking for a VM until it runs, in nine of ten cases, where that is soonest (None if
    every region is blocked), and from there to its first job."""
    inputs = PlanInput(
        spec=cluster,
        demand=Demand(cluster.name),
        vms=tuple(vms),
        blocks=snapshot.blocks,
        supply=snapshot.supply,
    )
    found = list(Outlooks(inputs, timers, snapshot.now).values())
    free = [outlook.late_after_s for outlook in found if outlook.block is None]
    return min(free, default=None), max((outlook.boot_s for outlook in found), default=0.0)


def _reason(job: Job, target: ClusterSpec, left: Remaining, wait_s: float) -> str:
    saved = f", {left.saved_s:.0f} s of it are saved" if left.saved_s > 0 else ""
    return (
        f"moved from {job.cluster} to {target.name}: no more time to wait for a spot VM before the "
        f"deadline at {job.spec.deadline:%Y-%m-%d %H:%M:%S} UTC ({left.run_s:.0f} s of its run are "
        f"left, {left.basis}{saved}; a standard VM takes up to {wait_s:.0f} s)"
    )
