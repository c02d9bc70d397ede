"""GoogleCompute, with Google's own client library, against the pretend Compute server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import web

from core.actions import Create, Delete
from core.clock import SystemClock
from core.errors import CloudBusy, CloudRefused, CloudUnsure, MigMissing
from core.mig import Leaving, MachineState, ManagedInstance, OperationFailed
from core.region_blocks import BlockKind
from migs import operations
from migs.calling import THREADS_PER_REGION
from migs.google_compute import GoogleCompute
from migs.manager import MigManager
from sim.cloud.faults import parse_fault
from sim.cloud.physics import CloudProject
from sim.cloud.server import build_app
from sim.cloud.world import parse_world
from tests.sim.helpers import eventually

pytestmark = pytest.mark.slow

REGION = "us-central1"
MIG = "zen-1xl4-us-central1-mig"
PAGED = "zen-paged-mig"
FAR, FAR_MIG = "europe-west4", "zen-1xl4-europe-west4-mig"
REPAIRING = "zen-repairing-mig"


def group(name: str, **more: object) -> dict[str, object]:
    return {
        "name": name,
        "region": REGION,
        "zones": [f"{REGION}-a", f"{REGION}-b"],
        "base_instance_name": name.removesuffix("-mig") + "-vm",
        "machine_type": "g2-standard-4",
        "gpus": 1,
        **more,
    }


WORLD = {
    "project": "some-project",
    "migs": [
        group(MIG),
        group(PAGED, list_mode="PAGINATED"),
        group(FAR_MIG, region=FAR, zones=[f"{FAR}-a"]),
        group(REPAIRING, default_action_on_failure="REPAIR", target_shape="EVEN"),
    ],
    "physics": {
        "create_s": [5, 5],
        "boot_s": [20, 20],
        "stockout_answer_s": 10,
        "retry_s": 30,
        "delete_s": 15,
        "group_vms_max": 4000,
    },
}


class Sky:
    """The pretend cloud behind HTTP, with its time in our hands, and a client of it."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0
        self.cloud = CloudProject(parse_world(WORLD), self.seconds)
        self.calls: list[str] = []
        self.compute: GoogleCompute
        self.url = ""

    def time(self) -> float:
        return self.seconds

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.cloud.advance(self.seconds)

    def fault(self, **fields: object) -> None:
        self.cloud.set_fault(parse_fault(fields, self.cloud.world.known()), self.seconds)

    def client(self, **more: Any) -> GoogleCompute:
        options: dict[str, Any] = {"calls_per_minute": 60_000, **more}
        return GoogleCompute("some-project", endpoint=self.url, clock=SystemClock(), **options)

    async def members(self, mig: str = MIG) -> Mapping[str, ManagedInstance]:
        snapshot = await self.compute.observe(mig, "1xl4", REGION)
        return {member.name: member for member in snapshot.members}


@web.middleware
async def _note(request: web.Request, handler: Any) -> web.StreamResponse:
    request.app[_CALLS].append(request.path.rpartition("/")[2])
    answer: web.StreamResponse = await handler(request)
    return answer


_CALLS = web.AppKey("calls", list)


async def _serve(app: web.Application) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


@pytest.fixture
async def sky() -> AsyncIterator[Sky]:
    sky = Sky()
    app = build_app(sky.cloud, sky.time, lambda: None)
    app[_CALLS] = sky.calls
    app.middlewares.insert(0, _note)
    runner, sky.url = await _serve(app)
    sky.compute = sky.client()
    yield sky
    await sky.compute.close()
    await runner.cleanup()


def create(*names: str, request_id: str = "") -> Create:
    return Create(REGION, names, request_id or str(uuid.uuid4()), "demand")


def delete(*names: str) -> Delete:
    return Delete(REGION, names, str(uuid.uuid4()), "idle")


async def test_life_of_a_member(sky: Sky) -> None:
    """A name is a member before its VM exists, then runs, then is deleted by name."""
    manager = MigManager(MIG, "1xl4", REGION, sky.compute)
    await manager.apply(create("zen-a", "zen-b"))
    snapshot = await manager.observe()
    assert (snapshot.mig, snapshot.cluster, snapshot.region) == (MIG, "1xl4", REGION)
    assert (snapshot.target_size, snapshot.stable) == (2, False)
    assert {m.name for m in snapshot.members} == {"zen-a", "zen-b"}
    assert all(m.machine is MachineState.NONE for m in snapshot.members)
    assert all(m.instance_id == "" and m.refusals == () for m in snapshot.members)

    sky.pass_time(30)
    snapshot = await manager.observe()
    assert snapshot.stable
    for member in snapshot.members:
        assert (member.leaving, member.machine) == (None, MachineState.RUNNING)
        assert member.zone in (f"{REGION}-a", f"{REGION}-b")
        assert int(member.instance_id) > 0

    await manager.apply(delete("zen-a"))
    assert (await sky.members())["zen-a"].leaving is Leaving.DELETING
    sky.pass_time(20)
    snapshot = await manager.observe()
    assert [m.name for m in snapshot.members] == ["zen-b"]
    assert snapshot.target_size == 1


async def test_stockout_is_observed(sky: Sky) -> None:
    """A stockout is no error of a call: the member carries it, with the zones that have room."""
    sky.fault(kind="stockout", zone=f"{REGION}-a")
    sky.fault(kind="stockout", zone=f"{REGION}-b")
    await sky.compute.create(MIG, create("zen-a"))
    sky.pass_time(12)
    member = (await sky.members())["zen-a"]
    assert (member.machine, member.leaving) == (MachineState.NONE, None)
    (error,) = member.refusals
    assert error.kind is BlockKind.STOCKOUT
    assert "does not have enough resources available" in error.message

    await sky.compute.delete(MIG, delete("zen-a"))
    sky.pass_time(20)
    assert await sky.members() == {}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"kind": "quota", "metric": "NVIDIA_L4_GPUS", "limit": 0}, BlockKind.QUOTA),
        ({"kind": "address-space"}, BlockKind.ADDRESS_SPACE),
        ({"kind": "permissions"}, BlockKind.PERMISSION),
        ({"kind": "create-error", "code": "CONDITION_NOT_MET"}, BlockKind.OTHER),
        (
            {
                "kind": "create-error",
                "code": "UNSUPPORTED_OPERATION",
                "message": "Instance failed to start due to preemption.",
            },
            BlockKind.STOCKOUT,
        ),
    ],
)
async def test_other_faults_are_told_apart(
    sky: Sky, fault: dict[str, object], kind: BlockKind
) -> None:
    """Each kind of region block is recognised from what the member carries."""
    sky.fault(**fault, region=REGION)
    await sky.compute.create(MIG, create("zen-a"))
    sky.pass_time(12)
    assert [error.kind for error in (await sky.members())["zen-a"].refusals] == [kind]


async def test_a_quota_over_all_regions_is_recognised(sky: Sky) -> None:
    """From its details as Google gives them, through the library."""
    sky.fault(kind="quota", metric="GPUS_ALL_REGIONS", limit=0, region="global")
    await sky.compute.create(MIG, create("zen-a"))
    sky.pass_time(12)
    (error,) = (await sky.members())["zen-a"].refusals
    assert (error.kind, error.everywhere) == (BlockKind.QUOTA, True)


async def test_an_operation_that_ends_with_an_error_is_a_failure(sky: Sky) -> None:
    """Google accepts the call and fails it afterwards: the operation is read, also by a repeat with
    the same request id, and its error is what a member's would be."""
    sky.fault(
        kind="operation-error",
        region=REGION,
        code="ZONE_RESOURCE_POOL_EXHAUSTED",
        message="none left",
    )
    action = create("zen-a")
    for _ in range(2):
        with pytest.raises(OperationFailed) as caught:
            await sky.compute.create(MIG, action)
        (error,) = caught.value.refusals
        assert (error.message, error.kind) == ("none left", BlockKind.STOCKOUT)
    assert await sky.members() == {}


async def test_a_deletion_whose_operation_fails_is_a_failure(sky: Sky) -> None:
    """The member stays, and somebody is told."""
    await sky.compute.create(MIG, create("zen-a"))
    sky.fault(kind="operation-error", region=REGION, call="deleteInstances", code="INTERNAL_ERROR")
    with pytest.raises(OperationFailed, match="INTERNAL_ERROR"):
        await sky.compute.delete(MIG, delete("zen-a"))
    assert set(await sky.members()) == {"zen-a"}


async def test_an_operation_is_waited_for_within_bounds(
    sky: Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not over in time leaves the call unsure: its repeat finds the same operation, and
    then what became of it."""
    monkeypatch.setattr(operations, "PAUSES_S", (0.0, 0.0))
    sky.fault(kind="operation-error", region=REGION, code="NEW", takes_s=60)
    action = create("zen-a")
    with pytest.raises(CloudUnsure, match="not over yet"):
        await sky.compute.create(MIG, action)
    assert sky.calls.count("createInstances") == 1
    assert sum(name.startswith("operation-") for name in sky.calls) == 2
    sky.pass_time(61)
    with pytest.raises(OperationFailed, match="NEW"):
        await sky.compute.create(MIG, action)


async def test_zones_with_room_are_read(sky: Sky) -> None:
    """Google's hint where capacity is reaches the planner."""
    sky.fault(kind="stockout", zone=f"{REGION}-a")
    await sky.compute.create(REPAIRING, create("zen-a"))  # EVEN: it hangs on the empty zone
    sky.pass_time(12)
    (error,) = (await sky.members(REPAIRING))["zen-a"].refusals
    assert error.zones_available == (f"{REGION}-b",)


async def test_repeated_request_id_creates_once(sky: Sky) -> None:
    """The same action twice is one action."""
    action = create("zen-a")
    await sky.compute.create(MIG, action)
    await sky.compute.create(MIG, action)
    snapshot = await sky.compute.observe(MIG, "1xl4", REGION)
    assert snapshot.target_size == 1


async def test_same_name_under_another_request_is_refused(sky: Sky) -> None:
    """A name that is taken can never be created: that is for the caller to know."""
    await sky.compute.create(MIG, create("zen-a"))
    with pytest.raises(CloudRefused, match="alreadyExists"):
        await sky.compute.create(MIG, create("zen-a"))


async def test_delete_is_idempotent(sky: Sky) -> None:
    """Members that are leaving, gone or unknown are skipped, without a call for them."""
    await sky.compute.create(MIG, create("zen-a", "zen-b"))
    await sky.compute.delete(MIG, delete("zen-a"))
    await sky.compute.delete(MIG, delete("zen-a", "zen-b", "zen-unknown"))
    assert {m.leaving for m in (await sky.members()).values()} <= {Leaving.DELETING}
    before = sky.calls.count("deleteInstances")
    await sky.compute.delete(MIG, delete("zen-a", "zen-unknown"))
    assert sky.calls.count("deleteInstances") == before == 2


async def test_rate_limit_is_busy_after_bounded_repeats(sky: Sky) -> None:
    """A refusal for the rate is repeated a few times, then said to be so; nothing happened."""
    sky.fault(kind="api-errors", rate=1.0, kinds=["rateLimitExceeded"])
    with pytest.raises(CloudBusy, match="rateLimitExceeded"):
        await sky.compute.observe(MIG, "1xl4", REGION)
    assert len(sky.calls) == 3
    with pytest.raises(CloudBusy):
        await sky.compute.create(MIG, create("zen-a"))
    sky.cloud.faults.clear(None, sky.seconds)
    assert await sky.members() == {}


async def test_server_error_on_a_read_is_busy(sky: Sky) -> None:
    """A read that failed changed nothing, whatever the reason."""
    sky.fault(kind="api-errors", rate=1.0, kinds=["500", "503"])
    with pytest.raises(CloudBusy):
        await sky.compute.observe(MIG, "1xl4", REGION)


async def test_lost_answer_is_unsure_and_observe_finds_it(sky: Sky) -> None:
    """Every answer is lost: we say that we do not know, and looking shows one VM, not three."""
    sky.fault(kind="api-errors", rate=1.0, kinds=["timeout-after-success"])
    with pytest.raises(CloudUnsure):
        await sky.compute.create(MIG, create("zen-a"))
    assert sky.calls.count("createInstances") == 3
    sky.cloud.faults.clear(None, sky.seconds)
    assert set(await sky.members()) == {"zen-a"}


async def test_one_lost_answer_is_healed_by_the_request_id(sky: Sky) -> None:
    """When only some answers are lost, the repeat gets the original operation's."""
    patient = sky.client(attempts=20)
    sky.fault(kind="api-errors", rate=0.5, kinds=["timeout-after-success"])
    await patient.create(MIG, create("zen-a"))
    await patient.close()
    sky.cloud.faults.clear(None, sky.seconds)
    assert (await sky.compute.observe(MIG, "1xl4", REGION)).target_size == 1


async def test_slow_answer_ends_in_time(sky: Sky) -> None:
    """A call that hangs is given up within its time: unsure for a write, busy for a read."""
    hasty = sky.client(call_s=0.3)
    # The library is loaded by one who has the time: that is not what hangs.
    await sky.compute.observe(MIG, "1xl4", REGION)
    sky.fault(kind="api-errors", rate=0.0, latency_s=10.0)
    clock = SystemClock()
    began = clock.monotonic()
    with pytest.raises(CloudUnsure):
        await hasty.create(MIG, create("zen-a"))
    with pytest.raises(CloudBusy):
        await hasty.observe(MIG, "1xl4", REGION)
    assert clock.monotonic() - began < 5
    await hasty.close()


async def test_missing_group_and_region(sky: Sky) -> None:
    """A group that does not exist is a configuration fault, for reads and writes alike."""
    with pytest.raises(MigMissing, match="no-such-mig"):
        await sky.compute.observe("no-such-mig", "1xl4", REGION)
    with pytest.raises(MigMissing):
        await sky.compute.create("no-such-mig", create("zen-a"))
    with pytest.raises(MigMissing):
        await sky.compute.delete("no-such-mig", delete("zen-a"))
    with pytest.raises(MigMissing):
        await sky.compute.observe(MIG, "1xl4", "mars-north1")


async def test_nobody_listens_is_busy(sky: Sky) -> None:
    """A refused connection did not take effect, so also a write is not unsure."""
    lonely = GoogleCompute(
        "some-project", endpoint="http://127.0.0.1:9", clock=SystemClock(), calls_per_minute=600
    )
    with pytest.raises(CloudBusy):
        await lonely.create(MIG, create("zen-a"))
    await lonely.close()


async def test_write_that_found_no_thread_is_busy(sky: Sky) -> None:
    """Time ran out before the call was sent: it did not take effect, and we know it."""
    hasty = sky.client(call_s=0.2)
    for _ in range(THREADS_PER_REGION):
        await hasty._caller.free(REGION).acquire()
    with pytest.raises(CloudBusy):
        await hasty.create(MIG, create("zen-a"))
    assert sky.calls == []
    await hasty.close()


async def test_region_that_hangs_holds_no_other(sky: Sky) -> None:
    """Many calls hang in one region; a VM is asked for in another as if nothing was the matter."""
    patient = sky.client(call_s=5.0)
    await patient.observe(FAR_MIG, "1xl4", FAR)
    sky.fault(kind="api-errors", region=REGION, rate=0.0, latency_s=60.0)
    hanging = [asyncio.create_task(patient.observe(MIG, "1xl4", REGION)) for _ in range(100)]
    await eventually(lambda: sky.calls.count(MIG) == THREADS_PER_REGION)
    clock = SystemClock()
    began = clock.monotonic()
    await patient.create(FAR_MIG, Create(FAR, ("zen-far",), str(uuid.uuid4()), "demand"))
    assert clock.monotonic() - began < 2
    assert not any(task.done() for task in hanging)
    assert sky.calls.count(MIG) == THREADS_PER_REGION
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    await patient.close()


async def test_call_budget_binds(sky: Sky) -> None:
    """When the budget is spent, a call that could not be made in time is not made at all."""
    frugal = sky.client(calls_per_minute=20, call_s=1.0)
    await frugal.observe(MIG, "1xl4", REGION)
    made = len(sky.calls)
    with pytest.raises(CloudBusy, match="budget"):
        await frugal.observe(MIG, "1xl4", REGION)
    assert len(sky.calls) == made
    await frugal.close()


@pytest.mark.parametrize("mig", [MIG, PAGED])
async def test_thousands_of_members(sky: Sky, mig: str) -> None:
    """A large group is created and deleted in portions and read to its end, page by page."""
    names = tuple(f"zen-{number:04d}" for number in range(3000))
    action = create(*names)
    await sky.compute.create(mig, action)
    await sky.compute.create(mig, action)  # a repeat repeats the same portions
    assert sky.calls.count("createInstances") == 6
    sky.calls.clear()
    assert set(await sky.members(mig)) == set(names)
    assert sky.calls.count("listManagedInstances") == (6 if mig == PAGED else 1)
    await sky.compute.delete(mig, delete(*names))
    assert {m.leaving for m in (await sky.members(mig)).values()} <= {Leaving.DELETING}


async def test_settings_of_a_group_that_work_against_us(sky: Sky) -> None:
    """A group that would repair or even itself out is told with every look; a good one is not.
    The one that evens itself out gets no VM."""
    assert (await sky.compute.observe(MIG, "1xl4", REGION)).faults == ()
    snapshot = await sky.compute.observe(REPAIRING, "1xl4", REGION)
    repair, even = snapshot.faults
    assert "defaultActionOnFailure: got REPAIR" in repair
    assert "got EVEN" in even
    assert snapshot.deadly == (even,)
    with pytest.raises(CloudRefused, match="deletes busy VMs"):
        await MigManager(REPAIRING, "1xl4", REGION, sky.compute).apply(create("zen-a"))
    assert sky.calls.count("createInstances") == 0


_WARM_UP = """
import asyncio, sys
from core.clock import SystemClock
from migs.google_compute import GoogleCompute

async def main():
    compute = GoogleCompute("p", endpoint="http://127.0.0.1:9", clock=SystemClock(),
                            calls_per_minute=60)
    assert "google.cloud.compute_v1" not in sys.modules, "imported before it was asked for"
    compute.warm_up()
    compute.warm_up()
    ticks = 0
    while "google.cloud.compute_v1.services" not in sys.modules:
        ticks += 1
        await asyncio.sleep(0.001)
    while not compute._library.start().done():
        ticks += 1
        await asyncio.sleep(0.001)
    print(ticks)
    await compute.close()

asyncio.run(main())
"""


def test_library_is_loaded_beside_the_loop() -> None:
    """Nothing is imported until warm_up(), and the loop goes on turning during the import."""
    done = subprocess.run(
        [sys.executable, "-c", _WARM_UP], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
