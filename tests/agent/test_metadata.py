"""Identity and settings from the instance metadata server."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent import metadata as metadata_module
from agent.metadata import MetadataClient, MetadataDown, MetadataResponse, parse_settings
from core.errors import BadInput
from tests.agent.vm import VM, FakeMetadata, instance

GOOD = {
    path.removeprefix("instance/").removeprefix("attributes/"): value
    for path, value in instance("file:///s", "127.0.0.1:1", heartbeat_s=2.0).items()
}


def test_settings_are_parsed() -> None:
    """Every value has its place and type; the zone loses its path."""
    settings = parse_settings(GOOD)
    assert (settings.vm_name, settings.instance_id) == (VM, "4242")
    assert (settings.zone, settings.gpus) == ("us-central1-a", 2)
    assert settings.pubsub_host == "127.0.0.1:1"
    assert settings.timers.heartbeat_s == 2.0
    assert settings.timers.self_stop_after_s == 60.0


def test_optional_values_may_be_missing() -> None:
    """Without a Pub/Sub host Google's is used, without timers the defaults, without GPUs none."""
    small = {name: GOOD[name] for name in GOOD if name not in metadata_module._OPTIONAL}
    settings = parse_settings(small)
    assert (settings.pubsub_host, settings.gpus, settings.timers.heartbeat_s) == (None, 0, 10.0)


def test_every_fault_is_told_at_once() -> None:
    """One error lists all that is missing or wrong."""
    bad = {"name": "x", "zen-gpus": "many", "zen-timers": '{"hartbeat_s": 1}'}
    with pytest.raises(BadInput) as caught:
        parse_settings(bad)
    fields = [fault.field.removeprefix("metadata ") for fault in caught.value.faults]
    assert fields == [
        "id", "zone", "zen-cluster", "zen-project", "zen-prefix", "zen-store",
        "zen-scheduler-keys", "zen-gpus", "zen-timers",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "timers",
    ["[]", "{", '{"heartbeat_s": 0}', '{"heartbeat_s": "1"}', '{"heartbeat_s": true}',
     '{"heartbeat_s": Infinity}', '{"lost_after_s": 5}'],
)  # fmt: skip
def test_bad_timers_are_refused(timers: str) -> None:
    """Timers are numbers above 0 with names that are the agent's."""
    with pytest.raises(BadInput, match="zen-timers"):
        parse_settings({**GOOD, "zen-timers": timers})


@pytest.mark.slow
async def test_over_the_wire() -> None:
    """The settings are read with the header that Google asks for."""
    fake = FakeMetadata(instance("file:///s", "127.0.0.1:1"))
    async with fake.serve() as host:
        settings = await MetadataClient(host).settings()
    assert settings.vm_name == VM
    assert {headers["metadata-flavor"] for _, headers in fake.requests} == {"Google"}


@pytest.mark.slow
async def test_old_notice_is_found() -> None:
    """A preemption that came before we looked is noticed at the first look."""
    fake = FakeMetadata({"instance/preempted": "TRUE"})
    noticed = asyncio.Event()
    async with fake.serve() as host, asyncio.timeout(5):
        await MetadataClient(host).watch_preempted(lambda _: noticed.set())
    assert noticed.is_set()
    assert [path for path, _ in fake.requests].count("/computeMetadata/v1/instance/preempted") == 1


@pytest.mark.slow
async def test_new_notice_is_awaited() -> None:
    """While nothing changes one request hangs; a change is noticed through it."""
    fake = FakeMetadata({"instance/preempted": "FALSE"})
    noticed = asyncio.Event()
    async with fake.serve() as host, asyncio.timeout(5):
        watch = asyncio.create_task(MetadataClient(host).watch_preempted(lambda _: noticed.set()))
        while not any("preempted?" in path for path, _ in fake.requests):  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # the fake has no event for a request
        assert any("preempted?" in path and "last_etag=1" in path for path, _ in fake.requests)
        await fake.put("instance/preempted", "TRUE")
        await watch
    assert noticed.is_set()


@pytest.mark.slow
async def test_maintenance_that_stops_the_vm_is_a_notice() -> None:
    """A VM with GPUs cannot move to another host: it is told that it will be stopped, and says why
    it goes. A move to another host is no reason to go."""
    fake = FakeMetadata({"instance/preempted": "FALSE", "instance/maintenance-event": "NONE"})
    told: list[str] = []
    async with fake.serve() as host, asyncio.timeout(5):
        watch = asyncio.create_task(MetadataClient(host).watch_preempted(told.append))
        while not any("event?" in path for path, _ in fake.requests):  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # the fake has no event for a request
        await fake.put("instance/maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
        while sum("event?" in path for path, _ in fake.requests) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert told == []
        await fake.put("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
        await watch
    assert told == ["host maintenance: the cloud stops it"]


@pytest.mark.slow
async def test_silent_server_is_an_error() -> None:
    """No server: MetadataDown with the address."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(MetadataDown, match=f"127.0.0.1:{port}"):
        await MetadataClient(f"127.0.0.1:{port}").get("instance/name")
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "abc",
        ),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", "until the end"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokIGNORED", "ok"),
    ],
)
async def test_bodies(answer: bytes, body: str) -> None:
    """All three ways of HTTP to end a body are understood."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await MetadataClient(f"127.0.0.1:{port}").get("x") == MetadataResponse(200, "", body)
    server.close()


def test_timers_of_the_test_vm_are_json() -> None:
    """The helper writes what the parser reads."""
    assert json.loads(GOOD["zen-timers"]) == {"heartbeat_s": 2.0}
