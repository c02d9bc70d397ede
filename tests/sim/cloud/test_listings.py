"""What people look at with gcloud: groups of all regions, templates, regions, batches."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from sim.cloud.physics import CloudProject
from sim.cloud.server import build_app
from tests.localbus.backends import gcloud_environment, why_no_gcloud
from tests.sim.helpers import REGION, HandClock, make_world

pytestmark = pytest.mark.slow

NO_GCLOUD = why_no_gcloud()
PROJECT = "/compute/v1/projects/zen-test"


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    """A served cloud with one group."""
    clock = HandClock()
    runner = web.AppRunner(build_app(CloudProject(make_world(), clock()), clock, lambda: None))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def get(url: str, path: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"{url}{PROJECT}{path}") as answer:
        return answer.status, await answer.json()


@pytest.mark.asyncio
async def test_groups_of_all_regions_are_listed_by_scope(url: str) -> None:
    """As `gcloud compute instance-groups managed list` reads them."""
    status, body = await get(url, "/aggregated/instanceGroupManagers")
    assert status == 200
    found = body["items"][f"regions/{REGION}"]["instanceGroupManagers"]
    assert "zen-mig" in {group["name"] for group in found}


@pytest.mark.asyncio
async def test_template_of_a_group_can_be_read(url: str) -> None:
    """The name that a group's versions carry leads to a template; another name is not found."""
    _, group = await get(url, f"/regions/{REGION}/instanceGroupManagers/zen-mig")
    name = group["instanceTemplate"].rpartition("/")[2]
    status, template = await get(url, f"/global/instanceTemplates/{name}")
    assert (status, template["name"]) == (200, name)
    assert template["properties"]["machineType"]
    _, listed = await get(url, "/aggregated/instanceTemplates")
    assert name in {t["name"] for t in listed["items"]["global"]["instanceTemplates"]}
    status, refused = await get(url, "/global/instanceTemplates/no-such")
    assert (status, refused["error"]["errors"][0]["reason"]) == (404, "notFound")


@pytest.mark.asyncio
async def test_no_group_is_autoscaled_and_regions_are_there(url: str) -> None:
    """gcloud asks for both before it shows a group."""
    assert (await get(url, f"/regions/{REGION}/autoscalers"))[1]["items"] == []
    assert (await get(url, f"/regions/{REGION}"))[1]["status"] == "UP"
    assert REGION in {r["name"] for r in (await get(url, "/regions"))[1]["items"]}
    assert (await get(url, "/regions/no-such1"))[0] == 404


@pytest.mark.asyncio
async def test_batch_answers_each_call_in_order(url: str) -> None:
    """A call that fails does not hide the others; what is no batch is refused."""
    calls = [f"{PROJECT}/regions", f"{PROJECT}/regions/no-such1", "/sim/v1/state"]
    parts = "".join(
        f"--b\r\nContent-Type: application/http\r\nContent-ID: <x+{n}>\r\n\r\n"
        f"GET {call} HTTP/1.1\r\n"
        "Content-Type: application/json\r\n\r\n\r\n"
        for n, call in enumerate(calls)
    )
    headers = {"Content-Type": "multipart/mixed; boundary=b"}
    async with aiohttp.ClientSession() as session:
        target = f"{url}/batch/compute/v1"
        async with session.post(target, data=f"{parts}--b--\r\n", headers=headers) as answer:
            text = await answer.text()
        async with session.post(target, data="x", headers={"Content-Type": "text/plain"}) as bad:
            assert bad.status == 400
    statuses = [line for line in text.splitlines() if line.startswith("HTTP/1.1 ")]
    assert statuses == ["HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found", "HTTP/1.1 400 Bad Request"]
    assert text.index("<response-x+0>") < text.index("<response-x+1>")


@pytest.mark.skipif(NO_GCLOUD is not None, reason=f"needs gcloud: {NO_GCLOUD}")
@pytest.mark.asyncio
async def test_gcloud_itself_lists_and_describes(url: str, tmp_path: Path) -> None:
    """The real command line ends well and shows the group."""
    environment = {
        **gcloud_environment(tmp_path),
        "CLOUDSDK_CORE_PROJECT": "zen-test",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}/compute/v1/",
    }

    async def gcloud(*words: str) -> Any:
        done = await asyncio.to_thread(
            subprocess.run,
            ["gcloud", "compute", *words, "--format=json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    managed = ("instance-groups", "managed")
    assert "zen-mig" in {group["name"] for group in await gcloud(*managed, "list")}
    one = await gcloud(*managed, "describe", "zen-mig", f"--region={REGION}")
    assert one["name"] == "zen-mig"
    assert await gcloud("instance-templates", "list")
