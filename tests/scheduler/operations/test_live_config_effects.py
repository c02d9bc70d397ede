"""What an edit does to clusters and queues: never grow, drain what idles, let work end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.actions import Create
from core.cluster import ClusterSpec
from core.errors import BadInput, MigMissing
from core.job import E, S
from core.job_fields import JobSpec
from core.messages import Control, OutMessage
from core.timers import Timers
from core.vm import VmState
from orchestrator.orchestrator import ClusterOrchestrator
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.plan_builder import PlanBuilder
from scheduler.submission.cluster_selection import choose_cluster
from tests.builders import NAMES, RULES, cluster, dice, job, snapshot, vm
from tests.orchestrator.test_cluster_manager import House

V = VmState
DRAINED = cluster(vm_max=0, drain=True)


def only(spec: ClusterSpec, *regions: str) -> ClusterSpec:
    return replace(spec, regions=tuple(r for r in spec.regions if r.region in regions))


class Cycle:
    """One planned cycle under a configuration."""

    def __init__(self, spec: ClusterSpec, *jobs: object, vms: tuple[object, ...] = ()) -> None:
        seen = snapshot(jobs, vms)  # type: ignore[arg-type]
        self.plan = PlanBuilder(seen, RULES, self._encode)
        around = Circumstances({spec.name: spec}, Silence(()), True)
        self.reasons = {w.uid: w.why for w in plan_jobs(self.plan, seen, around, dice())}

    def _encode(self, _: Control) -> OutMessage:
        return OutMessage("control", b"")

    def status(self, number: int) -> S:
        return self.plan.jobs[f"job-uid-{number:04d}"].status

    def why(self, number: int) -> str:
        return self.reasons[f"job-uid-{number:04d}"]


# --- the queue ------------------------------------------------------------------------------


def test_a_drained_cluster_admits_nobody() -> None:
    """Waiting jobs go back to the queue and are told; an idle VM is given no work."""
    cycle = Cycle(DRAINED, job(1), job(2, E.ADMITTED), vms=(vm("vm-9"),))
    assert (cycle.status(1), cycle.status(2)) == (S.QUEUED, S.QUEUED)
    assert "being drained" in cycle.why(1)


def test_a_withdrawn_region_takes_nothing_new() -> None:
    """Its idle VM is left alone by the queue, even if it is the only one."""
    spec = only(cluster(), "us-east1")
    cycle = Cycle(spec, job(1), vms=(vm("vm-9", region="us-central1"),))
    assert cycle.status(1) is S.PROVISIONING


def test_a_job_without_any_region_holds_no_place() -> None:
    """All its regions were withdrawn: it waits with the reason, and the next one goes ahead."""
    spec = only(cluster(vm_max=1), "us-east1")
    lost = job(1, E.ADMITTED, regions=("us-central1",))
    cycle = Cycle(spec, lost, job(2), vms=(vm("vm-9", region="us-east1"),))
    assert (cycle.status(1), cycle.status(2)) == (S.QUEUED, S.ASSIGNED)
    assert "none of the job's regions any more (us-central1)" in cycle.why(1)


def test_a_drained_cluster_is_chosen_by_nobody() -> None:
    """By name it is a fault that names the others; without a name another one is taken."""
    other = cluster("2xl4")
    spec = JobSpec(job_id="j", command=("true",), gpu_type="l4", gpu_count=1)
    assert choose_cluster(spec, [DRAINED, other]).cluster == "2xl4"
    with pytest.raises(BadInput, match=r"not being drained \(2xl4\)"):
        choose_cluster(replace(spec, cluster="1xl4"), [DRAINED, other])
    with pytest.raises(BadInput, match="drained"):
        choose_cluster(spec, [DRAINED])


# --- the clusters ---------------------------------------------------------------------------


async def filled(count: int, *, busy: int = 0) -> House:
    """A cluster with that many VMs, some of them at work."""
    house = await House(cluster(vm_max=8)).open()
    for number in range(count):
        name = NAMES.vm("1xl4", "us-central1", f"aaa{number}")
        leases = (f"lease-{number}",) if number < busy else ()
        idle_since = None if leases else house.clock.now()
        made = vm(name, zone="us-central1-a", leases=leases, idle_since=idle_since)
        await house.add_vm(made)
        house.cloud._add(Create("us-central1", (name,), "r", "w"))
    return house


async def test_a_lowered_limit_drains_what_idles() -> None:
    """What is idle above the limit goes at once, without waiting for the idle time-out; what works
    stays, though it is more than the limit."""
    house = await filled(5, busy=3)
    house.configure(cluster(vm_max=2))
    await house.reconciles(4)
    left = await house.vms()
    assert len(left) == 3
    assert all(made.leases for made in left)
    assert house.cloud.calls["create"] == 0


async def test_a_lowered_limit_keeps_idle_ones_below_it() -> None:
    """Three of five may stay: two go."""
    house = await filled(5)
    house.configure(cluster(vm_max=3))
    await house.reconciles(4)
    assert len(await house.vms()) == 3


async def test_a_raised_limit_is_used_at_once() -> None:
    """Four jobs wait under a limit of one; the next reconcile under a limit of four asks for
    more."""
    house = await House(cluster(vm_max=1)).open()
    await house.wait_for_work(4)
    await house.reconciles(2)
    assert len(await house.vms()) == 1
    house.configure(cluster(vm_max=4))
    await house.reconciles(2)
    assert len(await house.vms()) == 4


async def test_a_limit_lowered_after_the_plan_was_made() -> None:
    """The names of a plan are written under the limit of that moment: a create that was planned
    under the old one is refused, and no call is made. A region withdrawn since is not asked."""
    house = await House(cluster(vm_max=4)).open()
    await house.wait_for_work(2)
    plan = Create("us-central1", (NAMES.vm("1xl4", "us-central1", "bbbb"),), "request", "why")
    for late in (cluster(vm_max=0), only(cluster(vm_max=4), "us-east1")):
        house.configure(late)
        await house.manager._applier._create(plan, house.clock.now())
        assert await house.vms() == ()
    assert house.cloud.calls["create"] == 0


async def test_a_withdrawn_region_is_emptied() -> None:
    """Its idle VMs go at once, busy ones stay until they are done, new ones come elsewhere."""
    house = await filled(2, busy=1)
    await house.wait_for_work(1)
    house.configure(only(cluster(vm_max=8), "us-east1"))
    await house.reconciles(4)
    left = {(made.region, bool(made.leases)) for made in await house.vms()}
    assert left == {("us-central1", True), ("us-east1", False)}


async def test_a_withdrawn_region_complains_no_more() -> None:
    """A group that does not exist is an alert; with its region withdrawn it is over."""
    house = await House(cluster()).open()
    house.cloud.fail["observe us-east1"] = MigMissing("there is no such group")
    await house.wait_for_work(1)
    await house.reconciles(2)
    assert await house.alerts() == {("cloud_missing", NAMES.mig("1xl4", "us-east1"))}
    house.configure(only(cluster(), "us-central1"))
    await house.reconciles(2)
    assert await house.alerts() == set()


async def test_clusters_come_and_go() -> None:
    """A new one gets a manager, one that went keeps its own until it is empty, timers follow."""
    house = await filled(1)
    orchestrator = ClusterOrchestrator(house.wiring)
    house.configure(cluster("2xl4"), timers=replace(Timers(), idle_timeout_s=7.0))
    for _ in range(6):
        orchestrator.poke(await house.store.snapshot(0))
        for task in list(orchestrator._running.values()):
            await task
        house.clock.passed_s += 2
    await orchestrator.close()
    assert await house.vms() == ()
    assert set(orchestrator._managers) == {"1xl4", "2xl4"}
    assert orchestrator._managers["1xl4"].spec.vm_max == 0
    assert orchestrator._managers["2xl4"]._context.timers.idle_timeout_s == 7.0
