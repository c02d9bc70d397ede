"""What a queue is played on: running jobs, VMs in flight, and VMs that may still be had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.clouds import CLOUDS
from core.cluster import ClusterSpec
from core.job import E, Job, Membership
from core.region_blocks import BlockKind, RegionBlock
from core.supply import BOOT_S
from core.tenants import MachineShape, Quota, ResourceTotals, Tenant
from core.vm import Vm, VmState
from scheduler.forecast.eligibility import line_up
from scheduler.forecast.pool import Pool, Seen, cap_of, pool_of, waits_of
from scheduler.forecast.queue_simulation import TenantCap
from scheduler.forecast.run_times import Guess, JobKind, kind_of, unknown
from tests.builders import NOW, REGIONS, at, cluster, job, lease_on, vm

DELIVERY_S = CLOUDS["mig"].delivery_s

V = VmState
RUNS = (E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED)
KNOWN = Guess(tuple([100.0] * 9), "runs")


def guess(_: Job) -> Guess:
    return KNOWN


def pool(
    spec: ClusterSpec,
    jobs: tuple[Job, ...] = (),
    vms: tuple[Vm, ...] = (),
    blocks: tuple[RegionBlock, ...] = (),
) -> Pool:
    return pool_of(Seen(spec, at(60), jobs, vms, blocks), guess)


def stockout(region: str, until_s: float = 600) -> RegionBlock:
    kind = BlockKind.STOCKOUT
    return RegionBlock(region, "", "g2-standard-4", False, kind, NOW, NOW, at(until_s), 1, "")


def test_a_running_job_holds_its_vm() -> None:
    """For what its kind leaves it, and no longer than it may run."""
    runs = job(1, *RUNS, max_runtime_s=70.0)
    found = pool(cluster(vm_max=1), (runs,), (vm("vm-1", leases=("lease-1",)),))
    (busy,) = found.busy
    assert (found.units, found.jobs, busy.gpus) == (1, 1, 1)
    assert busy.ran_s == 59.0
    assert busy.ends_s(0.5) == pytest.approx(11.0)


def test_vms_are_there_or_come() -> None:
    """One idle VM is free, one that boots is free when it is up, and VMs that may still be asked
    for are free after a whole start."""
    boots = vm("vm-2", V.BOOTING, running_since=at(50))
    asked = vm("vm-3", V.REQUESTED)
    found = pool(cluster(vm_max=4), (), (vm("vm-1"), boots, asked))
    assert (found.units, found.jobs, len(found.busy)) == (4, 0, 3)
    soon, later, cold = (busy.ends_s(0.5) for busy in found.busy)
    assert soon == pytest.approx(BOOT_S - 10.0, rel=0.4)
    assert cold == pytest.approx(DELIVERY_S + BOOT_S, rel=0.1)
    assert later < cold


def test_what_is_stocked_out_comes_after_the_block() -> None:
    """What is there goes on; what may still be had, and what a group was asked for in vain, comes
    as usual after the first block ends. Of what waits in the cloud's own queue nobody knows."""
    spec = cluster(vm_max=4)
    blocks = tuple(stockout(region, 600 + n) for n, region in enumerate(REGIONS))
    found = pool(spec, (), (vm("vm-1"),), blocks)
    assert (found.units, found.jobs, found.open) == (4, 0, frozenset({REGIONS[0]}))
    late = 540 + DELIVERY_S + BOOT_S
    assert [busy.ends_s(0.5) for busy in found.busy] == pytest.approx([late] * 3, rel=0.05)
    here, there = job(1), job(2, regions=REGIONS[1:])
    line = line_up(spec, [here, there], found, guess)
    assert (line.playable, line.stuck) == ((here, there), {})
    assert [line.blocks[each.uid] for each in (here, there)] == [blocks[0], blocks[1]]
    assert list(line.floors) == [there.uid]
    asked = vm("vm-9", V.REQUESTED, region=REGIONS[1])
    same = pool(spec, (), (vm("vm-1"), asked), blocks)
    assert (same.units, len(same.busy), same.jobs, same.open) == (4, 3, 0, found.open)
    queued = vm("vm-9", V.REQUESTED, region=REGIONS[1], together="r-x")
    assert pool(spec, (), (vm("vm-1"), queued), blocks).units == 3


def test_what_people_must_mend_never_comes() -> None:
    """Where groups are missing or forbidden, only what is there can be had."""
    spec = cluster(vm_max=4)
    kinds = (BlockKind.MISSING, BlockKind.PERMISSION, BlockKind.UNSUPPORTED)
    each = zip(REGIONS, kinds, strict=True)
    blocks = tuple(replace(stockout(region), kind=kind) for region, kind in each)
    found = pool(spec, (), (vm("vm-1"),), blocks)
    assert (found.units, found.busy, found.heals) == (1, (), {})
    here, there = job(1), job(2, regions=REGIONS[1:])
    line = line_up(spec, [here, there], found, guess)
    assert (line.playable, set(line.stuck), line.blocks) == ((here,), {there.uid}, {})


def test_shared_vms_are_counted_by_gpus() -> None:
    """A job of two GPUs takes two of eight; a VM that may still be had brings all of its own."""
    spec = cluster("8xl4", vm_max=2, share=True)
    lease = replace(lease_on("vm-1"), slots=(0, 1))
    runs = replace(job(1, *RUNS, cluster="8xl4", gpu_count=2), lease=lease)
    found = pool(spec, (runs,), (vm("vm-1", cluster="8xl4", leases=("lease-1",)),))
    assert (found.units, found.busy[0].gpus, found.busy[1].gpus) == (16, 2, 8)
    assert waits_of(spec, job(3, cluster="8xl4", gpu_count=4), unknown).gpus == 4


def test_a_gang_ends_as_one() -> None:
    """Its members are one holder of all their VMs, and one that waits for all."""
    members = tuple(
        replace(job(n, *RUNS, replicas=2), gang=Membership("job-uid-0001", n - 1, 2))
        for n in (1, 2)
    )
    vms = tuple(vm(f"vm-{n}", leases=(f"lease-{n}",)) for n in (1, 2))
    found = pool(cluster(vm_max=2), members, vms)
    assert [busy.gpus for busy in found.busy] == [2]
    waits = replace(job(3, replicas=2), gang=Membership("job-uid-0003", 0, 2))
    again = replace(job(4, replicas=2), gang=Membership("job-uid-0003", 1, 2))
    assert line_up(cluster(vm_max=2), [waits, again], found, guess).playable == (waits,)
    assert waits_of(cluster(), waits, unknown).gpus == 2


def test_a_limit_that_was_lowered_gives_nothing() -> None:
    """Three run where one may: nobody starts before two have ended."""
    jobs = tuple(job(n, *RUNS) for n in (1, 2, 3))
    vms = tuple(vm(f"vm-{n}", leases=(f"lease-{n}",)) for n in (1, 2, 3))
    found = pool(cluster(vm_max=1), jobs, vms)
    assert found.units - sum(busy.gpus for busy in found.busy) == -2


def test_what_a_quota_leaves() -> None:
    """What is held in other clusters is not to be had here; CPUs and memory come with GPUs."""
    machines = {
        "1xl4": MachineShape("l4", 24.0, 12.0, 48.0),
        "8xh100": MachineShape("h100", 80.0, 26.0, 0),
    }
    holding = {
        "1xl4": ResourceTotals(jobs=1, gpus=1),
        "8xh100": ResourceTotals(jobs=2, gpus=4, cpus=8.0),
    }

    def cap(**limits: object) -> TenantCap | None:
        tenant = Tenant("a", quota=Quota(**limits))  # type: ignore[arg-type]
        return cap_of(tenant, holding, "1xl4", machines)

    assert cap() is None
    assert cap(gpus=10) == TenantCap(gpus=6.0)
    assert cap(gpus_by_type={"h100": 8}, jobs=5) == TenantCap(jobs=3.0)
    assert cap(gpus_by_type={"l4": 8}) == TenantCap(gpus=8.0)
    assert cap(cpus=44.0) == TenantCap(gpus=3.0)
    assert cap(gpu_memory_gb=96.0) == TenantCap(gpus=4.0)


def kind(job: Job) -> JobKind:
    return kind_of(job.spec, job.cluster)


def test_kinds() -> None:
    """A number at the end makes no other program, spot makes no other GPU, and who gives neither a
    name nor a workflow is known by the command."""
    one = kind(job(1, name="train-7"))
    assert one == kind(job(2, name="train-12"))
    assert one == kind(job(3, name="train", cluster="1xl4-spot"))
    assert one != kind(job(4, name="train-7", gpu_count=2, cluster="2xl4"))
    assert one != kind(job(5, name="train-7", tenant_id="other"))
    assert one != kind(job(6, name="train-7", replicas=2))
    assert kind(job(7, workflow="w")).name == "w"
    assert kind(job(8)).name == "true"
    assert kind(job(9, name="7")).name == "7"
    assert kind(job(10, name="a", cluster="cellar")).gpus == "1 x cellar"


@pytest.mark.parametrize("state", [V.DRAINING, V.DELETING])
def test_vm_that_leaves_with_its_job_is_nobodys_after_it(state: VmState) -> None:
    """It is the only one of a blocked region."""
    spec = cluster(vm_max=3)
    blocks = tuple(stockout(region, 5060) for region in REGIONS)
    there = vm("vm-1", state, leases=("lease-1",))
    found = pool(spec, (job(1, *RUNS),), (there,), blocks)
    assert not any(found.ready.values())
