"""GoogleCompute against answers that the pretend cloud never gives."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from core.actions import Create, Delete
from core.clock import SystemClock
from core.errors import CloudUnsure, Forbidden
from core.mig import MachineState
from migs.google_compute import GoogleCompute

pytestmark = pytest.mark.slow

REGION = "us-central1"


def create(name: str) -> Create:
    return Create(REGION, (name,), str(uuid.uuid4()), "demand")


class Odd:
    """Members without a zone, half a body, one answer after another."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.answers: list[tuple[int, str]] = []
        """(status, body) for each create call; the last one stays."""
        self.group: dict[str, object] = {}
        """Settings of the group."""

    def app(self) -> web.Application:
        app = web.Application()
        base = "/compute/v1/projects/p/regions/{region}/instanceGroupManagers/{mig}"
        app.router.add_get(base, self.get)
        app.router.add_post(base + "/listManagedInstances", self.members)
        app.router.add_post(base + "/deleteInstances", self.delete)
        app.router.add_post(base + "/createInstances", self.create)
        return app

    async def get(self, _: web.Request) -> web.Response:
        zones = [{"zone": "https://x/zones/us-central1-f"}]
        policy = {"zones": zones, "targetShape": "ANY"}
        lifecycle = {"defaultActionOnFailure": "DO_NOTHING"}
        body = {"name": "m", "region": "https://x/regions/us-central1"}
        settings = {"distributionPolicy": policy, "instanceLifecyclePolicy": lifecycle}
        return web.json_response({**body, **settings, **self.group})

    async def members(self, _: web.Request) -> web.Response:
        soon = {"terminationTimestamp": "2026-12-01T10:00:00.000-07:00"}
        member = {"name": "new", "currentAction": "CREATING", "scheduling": soon}
        return web.json_response({"managedInstances": [member]})

    async def delete(self, request: web.Request) -> web.Response:
        self.deleted += (await request.json())["instances"]
        return web.json_response({"name": "operation-1"})

    async def create(self, _: web.Request) -> web.Response:
        status, text = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.Response(status=status, text=text)


@pytest.fixture
async def odd() -> AsyncIterator[tuple[Odd, GoogleCompute]]:
    odd = Odd()
    runner = web.AppRunner(odd.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    compute = GoogleCompute("p", endpoint=url, clock=SystemClock(), calls_per_minute=6000)
    yield odd, compute
    await compute.close()
    await runner.cleanup()


async def test_member_without_a_zone_is_deleted(odd: tuple[Odd, GoogleCompute]) -> None:
    """A member that has no URL yet is named in a zone of its group."""
    server, compute = odd
    snapshot = await compute.observe("m", "1xl4", REGION)
    (member,) = snapshot.members
    assert (member.zone, member.machine) == ("", MachineState.NONE)
    assert member.terminates_at is not None
    assert member.terminates_at.isoformat() == "2026-12-01T10:00:00-07:00"
    await compute.delete("m", Delete(REGION, ("new",), str(uuid.uuid4()), "idle"))
    assert server.deleted == ["zones/us-central1-f/instances/new"]


async def test_garbled_answer_to_a_write_is_unsure(odd: tuple[Odd, GoogleCompute]) -> None:
    """Half a body means that somebody took the request: we cannot know what came of it."""
    server, compute = odd
    server.answers = [(200, "{")]
    with pytest.raises(CloudUnsure):
        await compute.create("m", create("a"))


@pytest.mark.parametrize("second", [409, 429, 403, 404])
async def test_refusal_after_a_lost_answer_is_unsure(
    odd: tuple[Odd, GoogleCompute], second: int
) -> None:
    """The first try may have got through; what its repeat hears does not undo that."""
    server, compute = odd
    server.answers = [(503, "{}"), (second, "{}")]
    with pytest.raises(CloudUnsure, match=f"an answer was lost, then: m: {second}"):
        await compute.create("m", create("a"))


async def test_forbidden(odd: tuple[Odd, GoogleCompute]) -> None:
    """A refusal that is no rate limit is not repeated."""
    server, compute = odd
    server.answers = [(403, '{"error": {"code": 403, "message": "no"}}')]
    with pytest.raises(Forbidden):
        await compute.create("m", create("a"))


UPDATE = "gcloud compute instance-groups managed update m --region=us-central1"


@pytest.mark.parametrize(
    ("settings", "word", "command", "deadly"),
    [
        ({"distributionPolicy": {}}, "EVEN", "--target-distribution-shape=any", True),
        (
            {
                "distributionPolicy": {"targetShape": "EVEN"},
                "updatePolicy": {"instanceRedistributionType": "NONE"},
            },
            "EVEN",
            "--target-distribution-shape=any",
            False,
        ),
        (
            {
                "distributionPolicy": {"targetShape": "BALANCED"},
                "updatePolicy": {"instanceRedistributionType": "PROACTIVE"},
            },
            "BALANCED",
            "--instance-redistribution-type=NONE",
            True,
        ),
        (
            {
                "distributionPolicy": {"targetShape": "ANY_SINGLE_ZONE"},
                "updatePolicy": {"instanceRedistributionType": "PROACTIVE"},
            },
            "ANY_SINGLE_ZONE",
            "--instance-redistribution-type=NONE",
            True,
        ),
        (
            {"instanceLifecyclePolicy": {}},
            "REPAIR",
            "--default-action-on-vm-failure=do-nothing",
            False,
        ),
        (
            {"updatePolicy": {"type": "PROACTIVE"}},
            "updatePolicy.type",
            "--update-policy-type=opportunistic",
            True,
        ),
        (
            {"autoHealingPolicies": [{"healthCheck": "https://x/healthChecks/h"}]},
            "autoHealingPolicies",
            "--clear-autohealing",
            True,
        ),
    ],
)
async def test_settings_that_work_against_us(
    odd: tuple[Odd, GoogleCompute],
    settings: dict[str, object],
    word: str,
    command: str,
    deadly: bool,
) -> None:
    """Each wrong setting is told with the command that mends it, and whether it kills work."""
    server, compute = odd
    server.group = settings
    snapshot = await compute.observe("m", "1xl4", REGION)
    (fault,) = snapshot.faults
    assert word in fault
    assert f"{UPDATE} " in fault
    assert command in fault
    assert snapshot.deadly == ((fault,) if deadly else ())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"distributionPolicy": {"targetShape": "ANY_SINGLE_ZONE"}},
        {"updatePolicy": {"type": "PROACTIVE", "mostDisruptiveAllowedAction": "REFRESH"}},
        {"updatePolicy": {"type": "OPPORTUNISTIC", "instanceRedistributionType": "NONE"}},
    ],
)
async def test_good_settings(odd: tuple[Odd, GoogleCompute], settings: dict[str, object]) -> None:
    """A group that leaves running VMs alone is not complained about."""
    server, compute = odd
    server.group = settings
    assert (await compute.observe("m", "1xl4", REGION)).faults == ()


async def test_autoscaler_is_deadly(odd: tuple[Odd, GoogleCompute]) -> None:
    """An autoscaler chooses victims among busy VMs; the command names the group."""
    server, compute = odd
    server.group = {"status": {"autoscaler": "https://x/autoscalers/a"}}
    (fault,) = (await compute.observe("m", "1xl4", REGION)).deadly
    assert "managed stop-autoscaling m --region=us-central1" in fault


async def test_errors_that_cannot_be_read_cost_no_observation(
    odd: tuple[Odd, GoogleCompute],
) -> None:
    """This group has no list of errors to give; what it shows of its members still counts."""
    _, compute = odd
    snapshot = await compute.observe("m", "1xl4", REGION)
    assert ([m.name for m in snapshot.members], snapshot.errors) == (["new"], ())
