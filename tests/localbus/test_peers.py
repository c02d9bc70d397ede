"""Whose a connection is, by the kernel's word."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.sandbox import SandboxRules
from localbus.errors import Denied
from localbus.peers import check_grpc_peer, is_stranger
from localbus.server import LocalBus
from messaging import connection_owners

JOB = SandboxRules().uid_first
PROJECT = "tests"
TRY = """
import json, sys, urllib.request
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
import encodings.idna, grpc, os
address, rest, user = sys.argv[1:]
os.setgroups([])
os.setgid(int(user))
os.setuid(int(user))
channel = grpc.insecure_channel(address)
publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
topic = "projects/tests/topics/topic"
name = "projects/tests/subscriptions/own"
calls = {
    "subscribe": lambda: subscriber.create_subscription(
        {"name": name, "topic": topic}, timeout=5, retry=None),
    "publish": lambda: publisher.publish(
        {"topic": topic, "messages": [{"data": b"x"}, {"data": b"y"}]}, timeout=5, retry=None),
    "list": lambda: list(publisher.list_topics(
        {"project": "projects/tests"}, timeout=5, retry=None)),
    "pull": lambda: subscriber.pull(
        {"subscription": "projects/tests/subscriptions/sub", "max_messages": 1},
        timeout=5, retry=None),
    "stream": lambda: next(iter(subscriber.streaming_pull(iter([
        {"subscription": "projects/tests/subscriptions/sub", "stream_ack_deadline_seconds": 10}]),
        timeout=5, retry=None))),
    "REST": lambda: urllib.request.urlopen(f"http://{rest}/v1/projects/tests/topics", timeout=5),
}
worked = []
for what, call in calls.items():
    try:
        call()
        worked.append(what)
    except Exception as error:
        assert "PermissionDenied" in type(error).__name__ or "403" in str(error), repr(error)
print(json.dumps(worked))
"""


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[LocalBus]:
    bus = LocalBus(tmp_path, rest_port=0, fsync=False)
    await bus.start()
    yield bus
    await bus.stop()


async def tried_by(bus: LocalBus, user: int) -> list[str]:
    """What works for a process of that user."""
    for words in (("topics", "topic"), ("subscriptions", "sub")):
        body = {} if words[0] == "topics" else {"topic": f"projects/{PROJECT}/topics/topic"}
        await _put(f"http://{bus.rest_address}/v1/projects/{PROJECT}/{'/'.join(words)}", body)
    text = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", TRY, bus.grpc_address, str(bus.rest_address), str(user)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert text.returncode == 0, text.stderr
    worked: list[str] = json.loads(text.stdout)
    return worked


async def _put(url: str, body: dict[str, str]) -> None:
    import aiohttp  # noqa: PLC0415  # for this alone

    async with aiohttp.ClientSession() as session, session.put(url, json=body) as answer:
        assert answer.status == 200


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to be another user")
async def test_a_job_can_do_nothing_on_the_bus(bus: LocalBus) -> None:
    """No subscription of its own, no message, no list: neither by gRPC nor by REST."""
    assert await tried_by(bus, JOB) == []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to be another user")
async def test_its_owner_can(bus: LocalBus) -> None:
    """The same words work for the user who runs the bus."""
    assert await tried_by(bus, 0) == ["subscribe", "publish", "list", "pull", "stream", "REST"]


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = socket.create_connection(listening.getsockname())
        here, _ = listening.accept()
    return there, here


@pytest.mark.parametrize("ask", ["_ask_kernel", "_look_up"])
def test_both_ways_to_ask_agree(ask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By netlink, and where the kernel has none by /proc."""
    if ask == "_look_up":
        monkeypatch.setattr(connection_owners, "_ask_kernel", _no_netlink)
    there, here = pair()
    with there, here:
        assert not is_stranger(there.getsockname(), here.getsockname())
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        assert is_stranger(there.getsockname(), here.getsockname()) == (there_uid() != 0)


def there_uid() -> int:
    return Path("/proc/self").stat().st_uid


def _no_netlink(*_: object) -> int:
    raise OSError("protocol not supported")


@pytest.mark.parametrize("ask", ["_ask_kernel", "_look_up"])
def test_a_connection_that_nobody_holds_is_a_strangers(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends and closes at once is nobody by the time he is looked at; the kernel would call
    that root's."""
    if ask == "_look_up":
        monkeypatch.setattr(connection_owners, "_ask_kernel", _no_netlink)
    there, here = pair()
    address = there.getsockname()
    there.sendall(b"forged")
    there.close()
    with here:
        assert is_stranger(address, here.getsockname())


def test_who_comes_from_another_machine_is_not_judged() -> None:
    """Only one machine's kernel knows its users."""
    assert not is_stranger(("10.0.0.7", 5000), ("10.0.0.1", 8085))


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: other kernels are not asked")
def test_another_address_of_this_machine_opens_nothing() -> None:
    """A job may bind the machine's own address before it connects to loopback; and of IPv6 the
    kernel is not asked."""
    assert is_stranger(("10.0.0.7", 5000), ("127.0.0.1", 8085))
    assert is_stranger(("::1", 5000), ("::1", 8085))
    for peer in ("ipv6:[::1]:5000", "unix:/tmp/x", "ipv4:10.0.0.7:5000", "nonsense"):
        with pytest.raises(Denied):
            check_grpc_peer(peer, ("127.0.0.1", 8085))
