"""Several VMs at once, capacity advice and the groups' errors: Google's own client library against
the pretend Compute server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from core.actions import Create, Delete, Queue
from core.clock import SystemClock
from core.cluster import ClusterSpec, RegionSpec
from core.errors import CloudRefused
from core.mig import MachineState, Queued, QueueState
from core.region_blocks import BlockKind
from migs.google_compute import GoogleCompute
from migs.manager import MigManager
from sim.cloud.faults import parse_fault
from sim.cloud.physics import CloudProject
from sim.cloud.server import build_app
from tests.sim.helpers import REGION, ZONES, make_world, mig_json

pytestmark = pytest.mark.slow

MIG = "zen-mig"
MACHINE = "a2-highgpu-1g"
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
    """A cloud with room for two VMs, its time in our hands, and a client of it."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0
        pools = [
            {"zone": zone, "machine_type": MACHINE, "spot": spot, "vms": 1}
            for zone in ZONES
            for spot in (False, True)
        ]
        world = make_world(mig_json(MIG), physics={"capacity": {"pools": pools}})
        self.cloud = CloudProject(world, self.seconds)
        self.compute: GoogleCompute
        self.mig: MigManager
        self.refuse: int | None = None
        """What advice calls are answered with."""
        self.advice_calls = 0

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.cloud.advance(self.seconds)

    def fault(self, **fields: object) -> None:
        self.cloud.set_fault(parse_fault(fields, self.cloud.world.known()), self.seconds)

    async def request(self, name: str = "gang") -> Queued:
        return next(queued for queued in await self.mig.queued() if queued.name == name)

    @web.middleware
    async def refusing(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if "/advice/" in request.path:
            self.advice_calls += 1
            if self.refuse is not None:
                return web.json_response({"error": {"message": "no"}}, status=self.refuse)
        answer: web.StreamResponse = await handler(request)
        return answer


@pytest.fixture
async def sky() -> AsyncIterator[Sky]:
    sky = Sky()
    app = build_app(sky.cloud, lambda: sky.seconds, lambda: None)
    app.middlewares.insert(0, sky.refusing)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    sky.compute = GoogleCompute(
        "zen-test", endpoint=url, clock=SystemClock(), calls_per_minute=60_000
    )
    sky.mig = MigManager(MIG, "1xa100-40gb", REGION, sky.compute, sky.compute)
    yield sky
    await sky.compute.close()
    await runner.cleanup()


def gang(*names: str, run_s: float = 3600, request_id: str = "") -> Queue:
    return Queue(REGION, "gang", names, run_s, request_id or str(uuid.uuid4()), "a gang")


async def test_gang_comes_all_at_once(sky: Sky) -> None:
    """The members are listed at once, under our names; their VMs come together."""
    await sky.compute.queue(MIG, gang("zen-a", "zen-b"))
    snapshot = await sky.mig.observe()
    assert {m.name for m in snapshot.members} == {"zen-a", "zen-b"}
    assert snapshot.target_size == 2
    assert await sky.request() == Queued("gang", QueueState.ACCEPTED, 2, 3600)
    sky.pass_time(20)
    assert (await sky.request()).state is QueueState.SUCCEEDED
    snapshot = await sky.mig.observe()
    assert {m.machine for m in snapshot.members} == {MachineState.RUNNING}
    assert all(m.terminates_at is not None for m in snapshot.members)


async def test_gang_too_big_takes_nothing(sky: Sky) -> None:
    """With room for two, a gang of three gets none and holds none: a single VM still fits. It
    waits, saying why, and comes once there is room for all."""
    sky.fault(kind="stockout", zone=ZONES[1], for_s=600)
    await sky.compute.queue(MIG, gang("zen-a", "zen-b"))
    sky.pass_time(30)
    waiting = await sky.request()
    assert waiting.state is QueueState.ACCEPTED
    assert [error.kind for error in waiting.refusals] == [BlockKind.STOCKOUT]
    assert sky.cloud.vms(sky.seconds) == []
    await sky.mig.apply(Create(REGION, ("zen-one",), str(uuid.uuid4()), "demand"))
    sky.pass_time(20)
    assert [vm.info.name for vm in sky.cloud.vms(sky.seconds)] == ["zen-one"]
    await sky.mig.apply(Delete(REGION, ("zen-one",), str(uuid.uuid4()), "idle"))
    sky.pass_time(700)
    assert (await sky.request()).state is QueueState.SUCCEEDED
    assert len(sky.cloud.vms(sky.seconds)) == 2


async def test_cancelled_gang_leaves_the_group(sky: Sky) -> None:
    """A request that waits is given up by name; doing so twice, or for one unknown, is harmless."""
    sky.fault(kind="stockout", region=REGION)
    await sky.compute.queue(MIG, gang("zen-a", "zen-b"))
    for name in ("gang", "gang", "no-such-gang"):
        await sky.compute.unqueue(MIG, REGION, name, str(uuid.uuid4()))
    assert (await sky.request()).state is QueueState.CANCELLED
    sky.pass_time(10)
    snapshot = await sky.mig.observe()
    assert (snapshot.members, snapshot.target_size) == ((), 0)


async def test_gang_that_came_is_not_cancelled(sky: Sky) -> None:
    """Cancelling what is over touches no VM."""
    await sky.compute.queue(MIG, gang("zen-a", "zen-b"))
    sky.pass_time(20)
    await sky.compute.unqueue(MIG, REGION, "gang", str(uuid.uuid4()))
    assert (await sky.request()).state is QueueState.SUCCEEDED
    assert len(sky.cloud.vms(sky.seconds)) == 2


async def test_hopeless_gang_fails(sky: Sky) -> None:
    """What no waiting heals ends the request: it says why, and its members are gone."""
    sky.fault(kind="permissions", region=REGION)
    await sky.compute.queue(MIG, gang("zen-a", "zen-b"))
    failed = await sky.request()
    assert failed.state is QueueState.FAILED
    assert [error.kind for error in failed.refusals] == [BlockKind.PERMISSION]
    sky.pass_time(10)
    assert (await sky.mig.observe()).target_size == 0


async def test_end_of_the_run(sky: Sky) -> None:
    """The cloud deletes the VMs when the time that was asked for is over."""
    await sky.compute.queue(MIG, gang("zen-a", "zen-b", run_s=600))
    sky.pass_time(20)
    sky.pass_time(610)
    assert (await sky.mig.observe()).members == ()


async def test_repeated_request_is_one(sky: Sky) -> None:
    """The same request id twice asks once; the same name under another id is refused."""
    action = gang("zen-a", "zen-b")
    await sky.compute.queue(MIG, action)
    await sky.compute.queue(MIG, action)
    assert len(await sky.mig.queued()) == 1
    with pytest.raises(CloudRefused, match="alreadyExists"):
        await sky.compute.queue(MIG, gang("zen-c", "zen-d"))


@pytest.mark.parametrize("run_s", [60, 8 * 86400])
async def test_run_that_google_does_not_allow(sky: Sky, run_s: float) -> None:
    """Ten minutes to seven days; anything else is refused whole."""
    with pytest.raises(CloudRefused, match="requestedRunDuration"):
        await sky.compute.queue(MIG, gang("zen-a", run_s=run_s))
    assert (await sky.mig.observe()).members == ()


async def test_advice_follows_the_room(sky: Sky) -> None:
    """Where there is room the score is high and the zone is named; where there is none it is low,
    for the whole region."""
    sky.fault(kind="stockout", zone=ZONES[0])
    (hint,) = await sky.compute.advise(SPOT, REGION)
    assert (hint.place.region, hint.place.zone, hint.place.offering, hint.place.spot) == (
        REGION,
        ZONES[1],
        MACHINE,
        True,
    )
    assert hint.likely
    full = GoogleCompute(
        "zen-test",
        endpoint=sky.compute._library._endpoint,
        clock=SystemClock(),
        calls_per_minute=60_000,
    )
    sky.fault(kind="stockout", zone=ZONES[1])
    (hint,) = await full.advise(SPOT, REGION)
    assert (hint.place.zone, hint.likely) == ("", False)
    await full.close()


async def test_advice_is_asked_for_rarely(sky: Sky) -> None:
    """Asking in every reconcile costs one call; standard VMs cost none, Google has nothing to
    say."""
    assert await sky.compute.advise(SPOT, REGION) == await sky.compute.advise(SPOT, REGION)
    assert await sky.compute.advise(replace(SPOT, spot=False), REGION) == ()
    assert sky.advice_calls == 1


@pytest.mark.parametrize("status", [403, 404, 501, 400])
async def test_refused_advice_is_no_error(
    sky: Sky, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where Google refuses there are no hints, one call, and one word about it."""
    sky.refuse = status
    other = replace(SPOT, machine_type="a2-highgpu-2g")
    for _ in range(3):
        assert await sky.compute.advise(SPOT, REGION) == ()
        assert await sky.compute.advise(other, REGION) == ()
    assert sky.advice_calls == 2
    assert capsys.readouterr().out.count("no capacity advice") == 1


async def test_group_tells_of_members_that_are_gone(sky: Sky) -> None:
    """A member that failed and left between two looks: its error, with zone and time, once."""
    await sky.mig.observe()
    sky.fault(kind="stockout", region=REGION)
    await sky.mig.apply(Create(REGION, ("zen-a",), str(uuid.uuid4()), "demand"))
    assert (await sky.mig.observe()).errors == ()
    sky.pass_time(3)
    await sky.mig.apply(Delete(REGION, ("zen-a",), str(uuid.uuid4()), "surplus"))
    sky.pass_time(10)
    fresh = GoogleCompute(
        "zen-test",
        endpoint=sky.compute._library._endpoint,
        clock=SystemClock(),
        calls_per_minute=60_000,
    )
    (told,) = (await fresh.observe(MIG, "1xa100-40gb", REGION)).errors
    assert told.name == "zen-a"
    assert told.refusal.kind is BlockKind.STOCKOUT
    assert told.refusal.zone in ZONES
    assert told.at.timestamp() == pytest.approx(1_800_000_002.0)
    assert (await fresh.observe(MIG, "1xa100-40gb", REGION)).errors == ()
    await fresh.close()
