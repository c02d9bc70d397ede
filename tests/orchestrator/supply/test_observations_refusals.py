"""What jobs meet at the regions: asked, refused, cancelled, not asked."""

from __future__ import annotations

from core.errors import Forbidden
from core.mig import Refusal
from core.region_blocks import BlockKind
from core.vm import VmState
from core.waits import WaitKind, WaitRow
from sim.memory.reads import MemoryReads
from tests.builders import cluster, job
from tests.orchestrator.test_cluster_manager import House

V, K = VmState, WaitKind


async def met(house: House, number: int = 1) -> dict[tuple[WaitKind, str], WaitRow]:
    reads = MemoryReads(house.store)
    return {(row.kind, row.region): row for row in await reads.waits(job(number).uid)}


async def test_region_that_is_asked_is_on_the_jobs_trace() -> None:
    """With the reason of the request, in the commit that counts the VM."""
    house = await House().open()
    await house.wait_for_work()
    await house.reconciles(3)
    rows = await met(house)
    row = rows[K.VM_REQUEST, "us-central1"]
    assert (row.count, row.reason) == (1, "1 VM is wanted, us-central1 is the best region now")


async def test_refusal_of_a_region_is_on_the_jobs_trace() -> None:
    """In Google's own words; the next region is asked, and that is there too. Hours of the same
    are a few rows."""
    house = await House().open()
    house.cloud.refuses = Refusal(BlockKind.STOCKOUT, "no room there")
    await house.wait_for_work()
    await house.reconciles(400, every_s=10.0)
    rows = await met(house)
    assert rows[K.REFUSAL, "us-central1"].reason == "stockout: no room there"
    assert rows[K.VM_REQUEST, "us-east1"].count >= 1
    assert "stockout until" in rows[K.NOT_ASKED, "us-central1"].reason
    assert len(await MemoryReads(house.store).waits(job(1).uid)) <= 20


async def test_call_that_is_refused_is_on_the_jobs_trace() -> None:
    """A permission that is missing, for instance."""
    house = await House(cluster(regions=cluster().regions[:1])).open()
    house.cloud.fail["create"] = Forbidden("missing compute.instances.create")
    await house.wait_for_work()
    await house.reconciles(3)
    rows = await met(house)
    assert "missing compute.instances.create" in rows[K.REFUSAL, "us-central1"].reason
    assert "permission" in rows[K.NOT_ASKED, "us-central1"].reason


async def test_jobs_behind_the_limit_know_it_and_those_with_a_vm_do_not() -> None:
    """Only the jobs that were left without are told why nothing was asked."""
    house = await House(cluster(vm_max=1)).open()
    await house.wait_for_work(2)
    await house.reconciles(3)
    assert not any(kind is K.NOT_ASKED for kind, _ in await met(house, 1))
    assert (await met(house, 2))[K.NOT_ASKED, ""].reason.startswith("cluster limit 1 reached")
