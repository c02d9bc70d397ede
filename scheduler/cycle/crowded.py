"""Where a submission changes no decision at once. Pure: the plan builder of a cycle in, names of
clusters out."""

from __future__ import annotations

from collections.abc import Mapping

from core.cluster import ClusterSpec
from core.job import S
from scheduler.plan_builder import PlanBuilder


def crowded(plan: PlanBuilder, clusters: Mapping[str, ClusterSpec]) -> frozenset[str]:
    """Clusters in which one more job cannot start and asks for no VM: none is idle, and others wait
    in the queue beyond what is asked for. Where jobs share VMs, a small one may still fit."""
    waiting = plan.waiting_by_cluster()
    full = (
        name
        for name, spec in clusters.items()
        if not spec.share
        and any(job.status is S.QUEUED for job in waiting.get(name, ()))
        and not plan.idle_in(name)
    )
    return frozenset(full)
