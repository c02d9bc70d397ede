"""The instance metadata protocol, as a process on a VM sees it."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from sim.cloud.metadata_server import MetadataServer, VmMetadata
from sim.cloud.model import VmInfo

pytestmark = pytest.mark.slow

VM = VmInfo(
    id=4567890123456789012,
    name="zen-vm-aaaa",
    zone="us-central1-a",
    region="us-central1",
    mig="zen-mig",
    machine_type="a2-highgpu-2g",
    gpus=2,
    spot=True,
    metadata=(
        ("zen-cluster", "2xa100-40gb"),
        ("zen-timers", '{"heartbeat_s": 10}'),
        ("created-by", "projects/7/regions/us-central1/instanceGroupManagers/zen-mig"),
    ),
    labels=(),
)
FLAVOR = {"Metadata-Flavor": "Google"}


class Guest:
    """A process on the VM, with nothing but the address of the metadata server."""

    def __init__(self, session: aiohttp.ClientSession, metadata: VmMetadata) -> None:
        self.session = session
        self.metadata = metadata

    async def get(
        self, path: str, *, headers: dict[str, str] | None = None, **query: str
    ) -> tuple[int, str, Any]:
        headers = FLAVOR if headers is None else headers
        async with self.session.get(path, headers=headers, params=query) as answer:
            return answer.status, await answer.text(), answer.headers

    async def read(self, path: str, **query: str) -> str:
        status, text, _ = await self.get(f"/computeMetadata/v1/{path}", headers=FLAVOR, **query)
        assert status == 200, text
        return text


@pytest.fixture
async def guest() -> AsyncIterator[Guest]:
    metadata = VmMetadata(VM, "zen-test", 7)
    server = MetadataServer(metadata)
    address = await server.start()
    async with aiohttp.ClientSession(f"http://{address}") as session:
        yield Guest(session, metadata)
    await server.stop()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("instance/name", "zen-vm-aaaa"),
        ("instance/zone", "projects/7/zones/us-central1-a"),
        ("instance/id", "4567890123456789012"),
        ("instance/hostname", "zen-vm-aaaa.us-central1-a.c.zen-test.internal"),
        ("instance/machine-type", "projects/7/machineTypes/a2-highgpu-2g"),
        ("instance/attributes/zen-cluster", "2xa100-40gb"),
        (
            "instance/attributes/created-by",
            "projects/7/regions/us-central1/instanceGroupManagers/zen-mig",
        ),
        ("instance/attributes/", "created-by\nzen-cluster\nzen-timers\n"),
        ("instance/preempted", "FALSE"),
        ("instance/maintenance-event", "NONE"),
        ("instance/scheduling/preemptible", "TRUE"),
        ("instance/service-accounts/", "7-compute@developer.gserviceaccount.com/\ndefault/\n"),
        ("project/project-id", "zen-test"),
        ("project/numeric-project-id", "7"),
        ("", "instance/\nproject/\n"),
    ],
)
async def test_values_and_directories(guest: Guest, path: str, value: str) -> None:
    """Each value is plain text; a directory is a list of names."""
    assert await guest.read(path) == value


async def test_the_flavor_header_is_required_and_returned(guest: Guest) -> None:
    """Without Metadata-Flavor: Google the answer is 403; with it, it comes back."""
    path = "/computeMetadata/v1/instance/name"
    status, _, _ = await guest.get(path, headers={})
    assert status == 403
    status, _, _ = await guest.get(path, headers={**FLAVOR, "X-Forwarded-For": "10.0.0.1"})
    assert status == 403
    status, _, headers = await guest.get(path)
    assert (status, headers["Metadata-Flavor"]) == (200, "Google")


async def test_what_is_not_there_is_404(guest: Guest) -> None:
    """An unknown path or attribute is 404, with the flavor header as always."""
    for path in ("instance/attributes/none", "instance/none", "instance/name/none"):
        status, _, headers = await guest.get(f"/computeMetadata/v1/{path}")
        assert (status, headers["Metadata-Flavor"]) == (404, "Google")


async def test_recursive_answers_are_json(guest: Guest) -> None:
    """recursive=true gives JSON in camelCase, with attribute names untouched and a numeric id."""
    async with guest.session.get(
        "/computeMetadata/v1/instance/", headers=FLAVOR, params={"recursive": "true"}
    ) as answer:
        assert answer.content_type == "application/json"
        body = await answer.json()
    assert body["id"] == VM.id
    assert body["attributes"]["zen-cluster"] == "2xa100-40gb"
    assert body["machineType"].endswith("a2-highgpu-2g")
    assert body["preempted"] == "FALSE"


async def test_directory_without_slash_redirects(guest: Guest) -> None:
    """A directory is asked for with a slash at its end; without, the client is sent there."""
    assert await guest.read("instance/attributes") == await guest.read("instance/attributes/")


async def test_long_poll_ends_with_the_change(guest: Guest) -> None:
    """wait_for_change answers when the VM is preempted, with the new value and another ETag."""
    _, _, before = await guest.get("/computeMetadata/v1/instance/preempted")
    poll = asyncio.create_task(
        guest.get(
            "/computeMetadata/v1/instance/preempted",
            wait_for_change="true",
            last_etag=before["ETag"],
        )
    )
    done, _ = await asyncio.wait([poll], timeout=0.1)
    assert not done
    guest.metadata.preempt()
    status, text, after = await asyncio.wait_for(poll, 20)
    assert (status, text) == (200, "TRUE")
    assert after["ETag"] != before["ETag"]


async def test_long_poll_with_an_old_etag_answers_at_once(guest: Guest) -> None:
    """A change between two polls is not missed: the caller's last_etag is no longer the current."""
    _, _, before = await guest.get("/computeMetadata/v1/instance/preempted")
    guest.metadata.preempt()
    query = {"wait_for_change": "true", "last_etag": before["ETag"], "timeout_sec": "60"}
    assert await asyncio.wait_for(guest.read("instance/preempted", **query), 20) == "TRUE"


async def test_long_poll_times_out_with_the_present_value(guest: Guest) -> None:
    """After timeout_sec the answer is the value as it is; a bad timeout is a 400."""
    query = {"wait_for_change": "true", "timeout_sec": "0"}
    assert await guest.read("instance/preempted", **query) == "FALSE"
    status, text, _ = await guest.get(
        "/computeMetadata/v1/instance/preempted", wait_for_change="true", timeout_sec="soon"
    )
    assert status == 400
    assert "timeout_sec" in text


async def test_changes_elsewhere_do_not_end_a_poll(guest: Guest) -> None:
    """A poll on one value sleeps through changes of another."""
    poll = asyncio.create_task(
        guest.read("instance/maintenance-event", wait_for_change="true", timeout_sec="1")
    )
    done, _ = await asyncio.wait([poll], timeout=0.1)
    guest.metadata.preempt()
    done, _ = await asyncio.wait([poll], timeout=0.1)
    assert not done
    assert await asyncio.wait_for(poll, 20) == "NONE"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to ask as another user")
async def test_it_is_closed_to_the_users_of_jobs() -> None:
    """A job on a pretend VM is refused, as a real VM's firewall refuses it; its agent is not."""
    server = MetadataServer(VmMetadata(VM, "p", 7))
    address = await server.start()
    ask = [
        "curl",
        "-s",
        "-H",
        "Metadata-Flavor: Google",
        f"{address}/computeMetadata/v1/instance/id",
    ]
    job = ["setpriv", "--reuid", "1879048192", "--regid", "1879048192", "--clear-groups"]
    heard = []
    for words in (ask, [*job, *ask]):
        process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        heard.append((await process.communicate())[0].decode())
    await server.stop()
    assert heard == [str(VM.id), "Closed to this user\n"]
