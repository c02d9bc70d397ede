"""How many VMs a shared cluster is asked for."""

from __future__ import annotations

from dataclasses import replace

from core.demand import Demand, VmRequest
from core.health import BadGpu, GpuFault, VmHealth
from core.job import E, Job, Lease
from core.job_steps import EventFacts, advance
from core.vm import Vm
from orchestrator.planning.packing import packed
from tests.builders import NOW, RULES, at, cluster, job, vm

SPEC = cluster("4xl4", share=True, cpus=48, memory_gb=192)


def requests(*gpus: int, **facts: object) -> tuple[VmRequest, ...]:
    whose = {"tenant": "default", **facts}
    return tuple(VmRequest(gpus=count, **whose) for count in gpus)  # type: ignore[arg-type]


def sizes(*given: VmRequest, vms: tuple[Vm, ...] = (), jobs: tuple[Job, ...] = ()) -> list[int]:
    found = packed(Demand("4xl4", given), SPEC, vms, jobs)
    return [request.gpus for request in found.requests]


def busy(name: str, number: int, *slots: int, cpus: float = 0, **facts: object) -> tuple[Vm, Job]:
    lease = Lease(f"lease-{number}", name, f"uid-{name}", "us-central1", "us-central1-a", slots)
    made = job(number, E.ADMITTED, cluster="4xl4", gpu_count=len(slots), cpu_cores=cpus)
    held = advance(made, E.PLACED, at(number), RULES, facts=EventFacts(lease=lease))
    return replace(vm(name, cluster="4xl4", leases=(lease.lease_id,)), **facts), held  # type: ignore[arg-type]


def test_small_jobs_share_one_vm_request() -> None:
    """Four of one GPU need one VM, a fifth another; the order of the queue decides who shares."""
    assert sizes(*requests(1, 1, 1, 1)) == [4]
    assert sizes(*requests(1, 1, 1, 1, 1)) == [4, 1]
    assert sizes(*requests(3, 2, 1, 2)) == [4, 4]


def test_free_gpus_of_busy_vms_come_first() -> None:
    """What fits beside a running job asks for no VM."""
    on, held = busy("vm-1", 1, 0)
    assert sizes(*requests(1, 2), vms=(on,), jobs=(held,)) == []
    assert sizes(*requests(2, 2), vms=(on,), jobs=(held,)) == [2]


def test_hole_that_the_job_may_not_use_does_not_count() -> None:
    """In another region, too dear, or with a bad GPU in it."""
    on, held = busy("vm-1", 1, 0)
    assert sizes(*requests(1, regions=("us-east1",)), vms=(on,), jobs=(held,)) == [1]
    assert sizes(*requests(1, denied=("us-central1",)), vms=(on,), jobs=(held,)) == [1]
    assert sizes(*requests(1, max_usd_per_hour=0.5), vms=(on,), jobs=(held,)) == [1]
    for odd in (replace(on, region="withdrawn1"), replace(on, taken=True)):
        assert sizes(*requests(1), vms=(odd,), jobs=(held,)) == [1]
    bad = VmHealth(gpus=(BadGpu(2, GpuFault.ECC, "has errors", NOW),))
    ill, other = busy("vm-2", 2, 0, 1, health=bad)
    assert sizes(*requests(2), vms=(ill,), jobs=(other,)) == [2]


def test_only_vm_requests_with_the_same_regions_share() -> None:
    """Whatever VM comes must serve all jobs that requested it; the most urgent speaks for all."""
    west, late = VmRequest(regions=("us-east1",), since=at(5)), VmRequest(since=at(9), position=1)
    early = VmRequest(since=at(1), position=2)
    found = packed(Demand("4xl4", (late, west, early)), SPEC, (), ()).requests
    assert [request.regions for request in found] == [(), ("us-east1",)]
    assert (found[0].since, found[0].position, found[0].gpus) == (at(1), 1, 2)


def test_cpu_and_memory_count_as_they_do_in_placement() -> None:
    """A hole that cannot feed the job is none, or it would wait there for ever; two that are too
    much for one VM ask for two."""
    on, held = busy("vm-1", 1, 0, cpus=40)
    assert sizes(*requests(1, cpus=8), vms=(on,), jobs=(held,)) == []
    assert sizes(*requests(1, cpus=9), vms=(on,), jobs=(held,)) == [1]
    assert sizes(*requests(1, 1, cpus=30)) == [1, 1]
    assert sizes(*requests(1, 1, memory_mb=100 * 1024)) == [1, 1]


def test_a_vm_is_one_tenants() -> None:
    """A tenant's job asks for a VM of its own where another's has room, unless tenants share."""
    there = busy("vm-1", 1, 0)
    mine, foreign = requests(1), requests(1, tenant="other")
    assert sizes(*mine, vms=there[:1], jobs=there[1:]) == []
    assert sizes(*foreign, *mine, vms=there[:1], jobs=there[1:]) == [1]
    assert sizes(*mine, *foreign, *mine) == [2, 1]
    between = replace(SPEC, share_between_tenants=True)
    found = packed(Demand("4xl4", (*mine, *foreign)), between, there[:1], there[1:])
    assert found.requests == ()
