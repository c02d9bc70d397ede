"""The cloud in virtual time gives the same answers as the adapter for Google does."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from core.actions import Create, Delete, Queue
from core.cluster import ClusterSpec, RegionSpec
from core.errors import CloudRefused
from core.mig import QueueState
from core.region_blocks import BlockKind
from migs.manager import MigManager
from sim.cloud.faults import Stockout
from sim.virtual.compute import ADVICE_S, CloudInTime, VirtualCompute
from sim.virtual.loop import VirtualLoop
from sim.virtual.trace import Trace
from tests.sim.helpers import REGION, ZONES, make_world, mig_json

MIG, MACHINE = "zen-mig", "a2-highgpu-1g"
SPOT = ClusterSpec(
    name="1xa100-40gb",
    gpu_type="a100-40gb",
    gpus=1,
    machine_type=MACHINE,
    vm_max=8,
    regions=(RegionSpec(REGION, tuple(ZONES), 3.0, 1.0),),
    spot=True,
)


class Sky:
    """A group of standard VMs and one that evens out its zones, in virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        even = mig_json("even-mig", target_shape="EVEN")
        self.world = CloudInTime(loop, make_world(mig_json(MIG), even))
        self.compute = VirtualCompute(self.world, loop, random.Random(1), Trace(loop))
        self.mig = MigManager(MIG, SPOT.name, REGION, self.compute, self.compute)
        self.even = MigManager("even-mig", SPOT.name, REGION, self.compute, self.compute)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.dispose()


def gang(*names: str) -> Queue:
    return Queue(REGION, "gang", names, 3600, str(uuid.UUID(int=7)), "a gang")


def test_gang_waits_comes_and_is_given_up(loop: VirtualLoop) -> None:
    """All at once when there is room, none before, none after it was cancelled."""

    async def run() -> None:
        sky = Sky(loop)
        sky.world.fault(Stockout(region=REGION, for_s=60))
        await sky.compute.queue(MIG, gang("zen-a", "zen-b"))
        (waiting,) = await sky.mig.queued()
        assert (waiting.state, waiting.vms) == (QueueState.ACCEPTED, 2)
        assert [error.kind for error in waiting.refusals] == [BlockKind.STOCKOUT]
        await sky.compute.unqueue(MIG, REGION, "gang", str(uuid.UUID(int=8)))
        await sky.compute.unqueue(MIG, REGION, "gang", str(uuid.UUID(int=9)))
        (given_up,) = await sky.mig.queued()
        assert given_up.state is QueueState.CANCELLED

    loop.run_until_complete(run())


def test_group_that_evens_out_takes_nothing(loop: VirtualLoop) -> None:
    """Neither a VM nor a gang is put where it would be deleted at work."""

    async def run() -> None:
        sky = Sky(loop)
        with pytest.raises(CloudRefused, match="EVEN"):
            await sky.even.apply(Create(REGION, ("zen-a",), str(uuid.UUID(int=1)), "demand"))
        with pytest.raises(CloudRefused, match="EVEN"):
            await sky.even.apply(gang("zen-a", "zen-b"))
        assert (await sky.even.observe()).members == ()

    loop.run_until_complete(run())


def test_advice_follows_the_room(loop: VirtualLoop) -> None:
    """High where there is room, low where there is none, asked for every five minutes; nothing for
    standard VMs."""

    async def run() -> None:
        sky = Sky(loop)
        (good,) = await sky.compute.advise(SPOT, REGION)
        assert (good.place.zone, good.likely) == (ZONES[0], True)
        sky.world.fault(Stockout(region=REGION))
        assert await sky.compute.advise(SPOT, REGION) == (good,), "kept for a while"
        await pass_s(loop, ADVICE_S)
        (bad,) = await sky.compute.advise(SPOT, REGION)
        assert (bad.place.zone, bad.likely) == ("", False)
        assert await sky.compute.advise(replace(SPOT, spot=False), REGION) == ()

    loop.run_until_complete(run())


def test_errors_of_the_gone_are_told_once(loop: VirtualLoop) -> None:
    """A member that failed and left: its error comes with the next look, and not again."""

    async def run() -> None:
        sky = Sky(loop)
        await sky.mig.observe()
        sky.world.fault(Stockout(region=REGION))
        await sky.mig.apply(Create(REGION, ("zen-a",), str(uuid.UUID(int=1)), "demand"))
        await sky.mig.observe()
        await pass_s(loop, 31)
        await sky.mig.apply(Delete(REGION, ("zen-a",), str(uuid.UUID(int=2)), "surplus"))
        await pass_s(loop, 10)
        told = (await sky.mig.observe()).errors
        assert {error.name for error in told} == {"zen-a"}
        assert {error.refusal.kind for error in told} == {BlockKind.STOCKOUT}
        await pass_s(loop, 60)
        assert (await sky.mig.observe()).errors == ()

    loop.run_until_complete(run())


async def pass_s(loop: VirtualLoop, seconds: float) -> None:
    """Let virtual time go by; it costs none of ours."""
    done = loop.create_future()
    loop.later(seconds, done.set_result, None)
    await done
