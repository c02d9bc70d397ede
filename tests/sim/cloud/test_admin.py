"""The pretend cloud's own API: look at everything, set and clear faults while it runs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sim.cloud.physics import CloudProject
from sim.cloud.server import PretendCloud, build_app
from tests.sim.helpers import REGION, ZONES, HandClock, eventually, make_world, mig_json

pytestmark = pytest.mark.slow

GROUP = f"/compute/v1/projects/zen-test/regions/{REGION}/instanceGroupManagers/zen-mig"


class Caller:
    def __init__(
        self, session: aiohttp.ClientSession, clock: HandClock, cloud: CloudProject
    ) -> None:
        self.session = session
        self.clock = clock
        self.cloud = cloud

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        async with self.session.request(method, path, json=body) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def api(clock: HandClock) -> AsyncIterator[Caller]:
    cloud = CloudProject(make_world(mig_json(spot=True, target_size=1)), clock())
    woken: list[bool] = []
    runner = web.AppRunner(build_app(cloud, clock, lambda: woken.append(True)))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as session:
        yield Caller(session, clock, cloud)
    await runner.cleanup()


async def test_state_shows_groups_vms_and_faults(api: Caller) -> None:
    """GET /state: members and VMs by name, faults with the time they have left."""
    await api.call("POST", "/sim/v1/faults", {"kind": "stockout", "region": REGION, "for_s": 60})
    api.clock.pass_s(15)
    status, state = await api.call("GET", "/sim/v1/state")
    assert status == 200
    assert state["project"] == "zen-test"
    vm = state["vms"][0]
    assert (vm["status"], vm["spot"], vm["gpus"]) == ("RUNNING", True, 1)
    member = state["migs"][0]["members"][0]
    assert (member["name"], member["vm_id"]) == (vm["name"], vm["id"])
    fault = state["faults"][0]
    assert (fault["kind"], fault["region"], fault["left_s"]) == ("stockout", REGION, 45.0)


async def test_a_fault_is_set_and_cleared_by_id(api: Caller) -> None:
    """POST answers 201 with an id; DELETE of the id ends it; a second DELETE says so."""
    status, fault = await api.call("POST", "/sim/v1/faults", {"kind": "stockout", "zone": ZONES[0]})
    assert status == 201
    path = f"/sim/v1/faults/{fault['id']}"
    assert await api.call("DELETE", path) == (200, {"kind": "clear", "hit": [fault["id"]]})
    status, body = await api.call("DELETE", path)
    assert (status, body["problems"]) == (422, ["id: no active fault 'f1' (none exist)"])


async def test_all_faults_are_cleared_at_once(api: Caller) -> None:
    """DELETE /faults ends every fault."""
    for zone in ZONES:
        await api.call("POST", "/sim/v1/faults", {"kind": "stockout", "zone": zone})
    status, body = await api.call("DELETE", "/sim/v1/faults")
    assert (status, len(body["hit"])) == (200, 2)
    assert (await api.call("GET", "/sim/v1/state"))[1]["faults"] == []


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/sim/v1/faults", {"kind": "stockout", "zone": "us-central-a"}, "nearest: us-central1-a"),
        ("/sim/v1/faults", {"kind": "stokout"}, "nearest: stockout"),
        ("/sim/v1/faults", [1], "expected an object"),
        ("/sim/v1/preempt", {"vm": "nobody"}, "vm: expected a known VM"),
        ("/sim/v1/preempt", {}, "either a vm or a zone"),
        ("/sim/v1/preempt", {"zone": ZONES[0], "hard": True}, "hard: unknown field"),
    ],
)
async def test_bad_faults_are_refused_with_reasons(
    api: Caller, path: str, body: object, said: str
) -> None:
    """422 with the problems, naming what exists."""
    api.clock.pass_s(15)
    status, answer = await api.call("POST", path, body)
    assert status == 422
    assert said in answer["error"]


async def test_a_body_that_is_no_json_is_refused(api: Caller) -> None:
    """Broken JSON is a 422 here and Google's parseError on Compute's routes."""
    async with api.session.post("/sim/v1/faults", data=b"{") as answer:
        assert (answer.status, "body: expected" in (await answer.json())["error"]) == (422, True)
    async with api.session.post(f"{GROUP}/createInstances", data=b"{") as answer:
        body = await answer.json()
        assert (answer.status, body["error"]["errors"][0]["reason"]) == (400, "parseError")


async def test_a_group_is_made_while_the_cloud_runs(api: Caller) -> None:
    """POST /groups makes what is not there, in regions that nobody knew of; VMs can be made in it
    at once, and the groups that were there keep theirs."""
    there, new = mig_json(), mig_json(name="other-mig", region="us-east4", zones=["us-east4-a"])
    before = (await api.call("GET", GROUP))[1]
    status, body = await api.call("POST", "/sim/v1/groups", {"migs": [there, new]})
    assert (status, body) == (200, {"made": ["other-mig"]})
    assert (await api.call("GET", GROUP))[1] == before
    path = "/compute/v1/projects/zen-test/regions/us-east4/instanceGroupManagers/other-mig"
    made = {"instances": [{"name": "vm-1"}]}
    assert (await api.call("POST", f"{path}/createInstances", made))[0] == 200
    assert (await api.call("POST", "/sim/v1/groups", {"migs": [{**new, "zones": ["x-1-a"]}]}))[
        0
    ] == 422


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/sim/v1/none", 404),
        ("PUT", "/sim/v1/state", 405),
        ("GET", "/compute/v1/none", 404),
        ("PUT", GROUP, 405),
        ("POST", f"{GROUP}/resize?size=many", 400),
        ("POST", f"{GROUP}/resize", 400),
        ("POST", f"{GROUP}/resize?size=-1", 400),
        ("GET", f"{GROUP}/listErrors?pageToken=!!", 400),
        ("GET", f"{GROUP}/listErrors?maxResults=0", 400),
    ],
)
async def test_every_refusal_is_json(api: Caller, method: str, path: str, status: int) -> None:
    """Unknown paths, methods and parameters are refused in JSON."""
    found, body = await api.call(method, path)
    assert found == status
    assert body["error"]


async def test_latency_holds_up_every_call(api: Caller) -> None:
    """latency_s delays an answer that is otherwise right."""
    await api.call("POST", "/sim/v1/faults", {"kind": "api-errors", "latency_s": 0.2})
    begin = asyncio.get_running_loop().time()
    status, body = await api.call("GET", GROUP)
    assert (status, body["targetSize"]) == (200, 1)
    assert asyncio.get_running_loop().time() - begin >= 0.2


async def test_waiting_for_an_operation_ends_with_it(tmp_path: Path) -> None:
    """Zone operations take their time; wait answers when the VM has stopped, in real time."""
    physics = {"create_s": [0, 0], "boot_s": [0, 0], "delete_s": 0.3}
    world = make_world(mig_json(target_size=1), physics=physics)
    command = ["sleep", "600"]
    async with (
        PretendCloud(world, tmp_path, command=command) as pretend,
        aiohttp.ClientSession(pretend.compute_url) as session,
    ):
        await eventually(lambda: pretend.cloud.vms(pretend.clock()))
        vm = pretend.cloud.vms(pretend.clock())[0]
        zone = f"/compute/v1/projects/zen-test/zones/{vm.info.zone}"
        async with session.post(f"{zone}/instances/{vm.info.name}/stop") as answer:
            operation = await answer.json()
        assert operation["status"] == "RUNNING"
        async with session.post(f"{zone}/operations/{operation['name']}/wait") as answer:
            assert (await answer.json())["status"] == "DONE"
        async with session.get(f"{zone}/instances/{vm.info.name}") as answer:
            assert (await answer.json())["status"] == "TERMINATED"
