"""A job that is due is not starved by those of its tenant that need less of the quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from core.cluster import ClusterSpec
from core.job import E, Job, S
from core.messages import OutMessage
from core.tenants import Quota, Tenant
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, RULES, cluster, dice, job, snapshot, vm

BIG, OTHER = cluster("4xl4", vm_max=4), cluster("1xl4", vm_max=4)
RUNS = (E.ADMITTED, E.PLACED, E.STARTED)


def mine(number: int, *events: E, gpus: int = 1, at: str = "4xl4", **spec: object) -> Job:
    return job(number, *events, cluster=at, tenant_id="a", gpu_count=gpus, **spec)


def due(made: Job, ago_s: float = 60) -> Job:
    return replace(made, due_at=NOW - timedelta(seconds=ago_s))


def not_due(made: Job) -> Job:
    return replace(made, due_at=NOW + timedelta(hours=1))


def cycle(
    jobs: Sequence[Job], quota: Quota, clusters: Sequence[ClusterSpec] = (BIG, OTHER)
) -> tuple[dict[str, S], dict[str, str]]:
    """What became of each, and what the waiting ones are told."""
    vms = [
        vm(j.lease.vm_name, cluster=j.cluster, leases=(j.lease.lease_id,))
        for j in jobs
        if j.lease is not None
    ]
    seen = replace(snapshot(tuple(jobs), tuple(vms)), tenants={"a": Tenant("a", quota=quota)})
    plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b"", {}))
    around = Circumstances({c.name: c for c in clusters}, Silence(()), bus_steady=True)
    reasons = plan_jobs(plan, seen, around, dice())
    states = {j.spec.job_id: plan.jobs[j.uid].status for j in jobs}
    return states, {plan.jobs[why.uid].spec.job_id: why.why for why in reasons}


def test_what_becomes_free_is_kept_for_the_one_that_is_due() -> None:
    """Two of four GPUs are in use. It asks for three: the next one waits with it, in any cluster,
    and is told for whom."""
    big = due(mine(1, gpus=3))
    small, elsewhere = not_due(mine(2)), not_due(mine(3, at="1xl4"))
    running = mine(4, *RUNS, gpus=2)
    states, reasons = cycle((big, small, elsewhere, running), Quota(gpus=4))
    assert [states[name] for name in ("job-1", "job-2", "job-3")] == [S.QUEUED] * 3
    assert reasons["job-2"] == (
        "what is left of the GPUs of tenant a is kept for job-1, which has waited longer; "
        "it starts after that one"
    )


def test_one_that_is_not_due_yet_keeps_nothing() -> None:
    big, small, running = not_due(mine(1, gpus=3)), not_due(mine(2)), mine(4, *RUNS, gpus=2)
    states, _ = cycle((big, small, running), Quota(gpus=4))
    assert (states["job-1"], states["job-2"]) == (S.QUEUED, S.PROVISIONING)


def test_when_enough_is_free_it_goes_first_whatever_the_order_of_the_clusters() -> None:
    """The other cluster comes first in the configuration: its job would have taken the last one."""
    big, small, running = due(mine(1, gpus=3)), not_due(mine(2, at="1xl4")), mine(4, *RUNS)
    states, _ = cycle((small, big, running), Quota(gpus=4), (OTHER, BIG))
    assert (states["job-1"], states["job-2"]) == (S.PROVISIONING, S.QUEUED)


def test_those_that_fit_beside_it_need_not_wait() -> None:
    big, small = due(mine(1, gpus=3)), not_due(mine(2))
    states, _ = cycle((big, small, mine(4, *RUNS, gpus=2)), Quota(gpus=6))
    assert set(states.values()) == {S.PROVISIONING, S.RUNNING}


def test_a_higher_class_passes_it() -> None:
    big, urgent = due(mine(1, gpus=3)), not_due(mine(2, priority=2000))
    states, _ = cycle((big, urgent, mine(4, *RUNS, gpus=2)), Quota(gpus=4))
    assert states["job-2"] is S.PROVISIONING


def test_one_that_the_quota_refuses_for_ever_holds_nobody_up() -> None:
    """The quota was lowered after it came."""
    big, small = due(mine(1, gpus=4)), not_due(mine(2))
    states, _ = cycle((big, small), Quota(gpus=3))
    assert (states["job-1"], states["job-2"]) == (S.QUEUED, S.PROVISIONING)


def test_one_without_room_in_its_cluster_holds_nobody_up_elsewhere() -> None:
    """It waits for a VM, not for its quota."""
    big, small = due(mine(1, gpus=3)), not_due(mine(2, at="1xl4"))
    full = [job(n, *RUNS, cluster="4xl4") for n in range(5, 9)]
    states, _ = cycle((big, small, *full), Quota(gpus=3))
    assert (states["job-1"], states["job-2"]) == (S.QUEUED, S.PROVISIONING)
