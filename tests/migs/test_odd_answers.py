"""GoogleCompute against answers that the pretend cloud never gives."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from core.capacity import Create, Delete
from core.clock import SystemClock
from core.errors import CloudUnsure, Forbidden
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
        return web.json_response({"name": "m", "distributionPolicy": {"zones": zones}})

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
    assert (member.zone, member.status) == ("", "")
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
