"""Where a submission changes no decision at once."""

from __future__ import annotations

from core.job import E
from core.messages import OutMessage
from scheduler.cycle.crowded import crowded
from scheduler.plan_builder import PlanBuilder
from tests.builders import RULES, cluster, job, snapshot, vm


def test_a_cluster_is_crowded_when_jobs_queue_and_no_vm_is_idle() -> None:
    """Behind jobs that are asked VMs for, the next may need one more: that is no crowd."""
    busy = vm("vm-1", leases=("lease-1",), idle_since=None)
    runs, asked, queued = job(1, E.ADMITTED, E.PLACED, E.STARTED), job(2, E.ADMITTED), job(3)
    worlds = {
        "queued behind a busy VM": ((runs, queued), (busy,), {"1xl4"}),
        "a VM is idle": ((runs, queued), (busy, vm("vm-2")), set()),
        "one is asked for": ((runs, asked), (busy,), set()),
        "nobody waits": ((runs,), (busy,), set()),
    }
    for words, (jobs, vms, expected) in worlds.items():
        plan = PlanBuilder(snapshot(jobs, vms), RULES, lambda _: OutMessage("control", b""))
        assert crowded(plan, {"1xl4": cluster()}) == expected, words
        assert crowded(plan, {"1xl4": cluster(share=True)}) == set(), words
