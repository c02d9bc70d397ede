"""A gang's VMs by one resize request: our manager, Google's own client library, and the pretend
Compute server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from aiohttp import web

from core.changes import JobMove, NewJob
from core.clock import SystemClock
from core.cluster import ClusterSpec, RegionSpec
from core.job import E, Job, JobEvent, Membership
from core.job_steps import EventFacts, advance, entry_for
from core.region_blocks import BlockKind
from core.vm import Vm, VmState
from migs.google_compute import GoogleCompute
from migs.manager import MigManager
from orchestrator.cluster_manager import ClusterManager
from orchestrator.reconcile.context import Wiring
from sim.cloud.faults import parse_fault
from sim.cloud.physics import CloudProject
from sim.cloud.server import build_app
from sim.memory.store import MemoryStore
from tests.builders import NAMES, RULES, dice, job, live
from tests.sim.helpers import make_world, mig_json

pytestmark = pytest.mark.slow
V = VmState
MACHINE, CLUSTER = "a2-highgpu-1g", "1xa100-40gb"
HERE, THERE = "us-central1", "us-east1"
ZONES = {HERE: ("us-central1-a", "us-central1-b"), THERE: ("us-east1-b", "us-east1-c")}
BEGIN = 1_800_000_000.0


class House:
    """Two regions with room for four each, a gang of four, a manager; time is in our hands."""

    def __init__(self) -> None:
        self.seconds = BEGIN
        pools = [
            {"zone": zone, "machine_type": MACHINE, "spot": False, "vms": 2}
            for zones in ZONES.values()
            for zone in zones
        ]
        groups = [
            {
                **mig_json(NAMES.mig(CLUSTER, region)),
                "region": region,
                "zones": list(zones),
                "machine_type": MACHINE,
            }
            for region, zones in ZONES.items()
        ]
        world = make_world(*groups, physics={"capacity": {"pools": pools}})
        self.cloud = CloudProject(world, self.seconds)
        self.store = MemoryStore(self)
        self.gang: list[Job] = []
        self.manager: ClusterManager

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def lead(self, compute: GoogleCompute) -> None:
        prices = (3.0, 4.0)
        regions = tuple(
            RegionSpec(region, ZONES[region], price, price)
            for region, price in zip(ZONES, prices, strict=True)
        )
        spec = ClusterSpec(CLUSTER, "a100-40gb", 1, MACHINE, 6, regions, flex_start_wait_s=3600.0)
        wiring = Wiring(
            store=self.store,
            names=NAMES,
            settings=live(spec),
            ids=dice(),
            clock=self,
            term=lambda: 1,
            mig_of=lambda name, region: MigManager(
                NAMES.mig(name, region), name, region, compute, compute
            ),
            on_cloud_call=lambda *_: None,
        )
        self.manager = ClusterManager(spec, wiring)

    async def submit(self) -> None:
        await self.store.lead("me", 1e6)
        for rank in range(4):
            new = replace(
                job(rank + 1, cluster=CLUSTER, max_runtime_s=3600.0),
                gang=Membership("job-uid-0001", rank, 4),
            )
            self.gang.append(new)
            first = NewJob(new, entry_for(None, new, JobEvent.SUBMITTED), f"hash-{rank}")
            assert (await self.store.commit([(first,)], None)).all_applied
        await self.step(E.ADMITTED, HERE)

    async def step(self, event: JobEvent, region: str | None = None) -> None:
        for index, before in enumerate(self.gang):
            after = advance(before, event, self.now(), RULES, facts=EventFacts(gang_region=region))
            move = JobMove(before, after, (entry_for(before, after, event),))
            assert (await self.store.commit([(move,)], None)).all_applied
            self.gang[index] = after

    async def rounds(self, until: Callable[[tuple[Vm, ...]], bool], most: int = 30) -> None:
        for _ in range(most):
            await self.round()
            if until(await self.vms()):
                return
            self.seconds += 6
            self.cloud.advance(self.seconds)
        raise AssertionError(f"not within {most} rounds: {await self.vms()}")

    async def round(self) -> None:
        """With the answers of all regions, however slow this machine is."""
        await self.manager.reconcile()
        if tasks := self.manager._context.lanes._running.values():
            await asyncio.wait(tasks)

    async def vms(self) -> tuple[Vm, ...]:
        return tuple((await self.store.snapshot(0)).vms)

    def fault(self, **fields: object) -> None:
        self.cloud.set_fault(parse_fault(fields, self.cloud.world.known()), self.seconds)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    app = build_app(house.cloud, lambda: house.seconds, lambda: None)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    compute = GoogleCompute("zen-test", endpoint=url, clock=SystemClock(), calls_per_minute=60_000)
    house.lead(compute)
    await house.submit()
    yield house
    await house.manager.close()
    await compute.close()
    await runner.cleanup()


def running(vms: tuple[Vm, ...]) -> bool:
    return len(vms) == 4 and all(vm.running_since is not None for vm in vms)


async def test_four_wait_until_there_is_room_for_four(house: House) -> None:
    """Room for two: the four wait and hold none, longer than any boot may take; then all of them
    run, and it is known when the cloud ends them."""
    house.fault(kind="stockout", zone=ZONES[HERE][0], for_s=1200)
    await house.rounds(lambda vms: len(vms) == 4 and all(vm.queued for vm in vms))
    for _ in range(4):
        house.seconds += 280
        house.cloud.advance(house.seconds)
        await house.round()
        assert house.cloud.vms(house.seconds) == []
    assert all(vm.queued and vm.region == HERE for vm in await house.vms())
    await house.rounds(running)
    vms = await house.vms()
    assert {vm.region for vm in vms} == {HERE}
    assert all(vm.ends_at is not None and vm.lasts(3600.0, house.now()) for vm in vms)
    (request,) = await house.manager._context.calls.mig(HERE).queued()
    assert request.vms == 4


async def test_failed_gang_goes_on_elsewhere(house: House) -> None:
    """What no waiting heals ends the request: the reason blocks the region, the names are free, and
    the gang gets its four in the next one."""
    house.fault(kind="permissions", region=HERE)
    await house.rounds(lambda vms: len(vms) == 4)
    await house.rounds(lambda vms: not vms)
    (block,) = (await house.store.snapshot(0)).blocks
    assert (block.region, block.kind) == (HERE, BlockKind.PERMISSION)
    await house.step(E.GANG_TIMEOUT)
    await house.step(E.ADMITTED, THERE)
    await house.rounds(running)
    assert {vm.region for vm in await house.vms()} == {THERE}
