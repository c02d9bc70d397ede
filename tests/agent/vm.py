"""What a VM has around it, on loopback: a metadata server, a bus, and the agent as a process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from core.errors import BusDown
from core.ids import RandomIds
from core.messages import Canary, Control, Heartbeat, OutboxRow, StartJob
from core.names import Names
from core.worker_identity import WorkerPublicKeys
from localbus.server import LocalBus
from messaging.codec import decode_heartbeat, encode_control
from messaging.control_subscriptions import PubSubControlSubscriptions
from messaging.proofs.control import SEAL_TO
from messaging.proofs.texts import to_text
from messaging.pubsub import PubSubBus
from tests.workers import SCHEDULER, SIGNER, STRANGER

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0
PROJECT = "test-project"
NAMES = Names("zen-test")
VM = NAMES.vm("2xl4", "us-central1", "b2c4")


class FakeMetadata:
    """The instance metadata protocol: values by path, ETags, wait_for_change."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._changed = asyncio.Condition()
        self._version = 1
        self._closing = False

    async def put(self, path: str, value: str) -> None:
        async with self._changed:
            self.values[path] = value
            self._version += 1
            self._changed.notify_all()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        try:
            yield f"{host}:{port}"
        finally:
            server.close()
            self._closing = True
            async with self._changed:
                self._changed.notify_all()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            target, headers = _parse(head)
            self.requests.append((target, headers))
            path, _, query = target.partition("?")
            path = path.removeprefix("/computeMetadata/v1/")
            if "wait_for_change=true" in query:
                seen = query.partition("last_etag=")[2].partition("&")[0]
                async with self._changed:
                    await self._changed.wait_for(
                        lambda: self._closing or str(self._version) != seen
                    )
            status = "200 OK" if path in self.values else "404 Not Found"
            if headers.get("metadata-flavor") != "Google":
                status = "403 Forbidden"
            body = self.values.get(path, "").encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nETag: {self._version}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


def _parse(head: str) -> tuple[str, dict[str, str]]:
    first, *lines = head.split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return first.split()[1], {name.lower(): value.strip() for name, _, value in pairs}


def instance(store: str, pubsub_host: str, **timers: float) -> dict[str, str]:
    """The metadata of a VM with two pretend GPUs."""
    return {
        "instance/name": VM,
        "instance/id": "4242",
        "instance/zone": "projects/1/zones/us-central1-a",
        "instance/preempted": "FALSE",
        "instance/attributes/zen-cluster": "2xl4",
        "instance/attributes/zen-project": PROJECT,
        "instance/attributes/zen-prefix": NAMES.prefix,
        "instance/attributes/zen-store": store,
        "instance/attributes/zen-scheduler-keys": SCHEDULER.public.text,
        "instance/attributes/zen-gpus": "2",
        "instance/attributes/zen-pretend-gpus": "true",
        "instance/attributes/zen-pubsub-host": pubsub_host,
        "instance/attributes/zen-timers": json.dumps(timers),
    }


class Scheduler:
    """The other end of the bus: hears heartbeats, sends orders."""

    def __init__(self, bus: PubSubBus, server: LocalBus, data_dir: Path) -> None:
        self.bus = bus
        self._server = server
        self._data_dir = data_dir
        self.heartbeats: list[Heartbeat] = []
        self._keys: dict[str, WorkerPublicKeys] = {}
        self._subscriptions = PubSubControlSubscriptions(bus, NAMES)
        self._sent = 0
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        inbound = self.bus.subscribe(NAMES.heartbeat_subscription)
        async for batch in inbound.batches():
            for message in batch:
                heartbeat = decode_heartbeat(message)
                assert not isinstance(heartbeat, Canary)
                if heartbeat.introduction is not None:
                    self._keys[heartbeat.boot_nonce] = heartbeat.introduction.keys
                    with suppress(BusDown):  # the worker introduces itself again
                        await self._subscriptions.make(heartbeat.vm_name, heartbeat.boot_nonce)
                self.heartbeats.append(heartbeat)
            with suppress(BusDown):  # it went away meanwhile: these come again
                await inbound.ack([message.ack_id for message in batch])
            async with self._news:
                self._news.notify_all()

    async def bus_goes_away(self) -> None:
        await self._server.stop()

    async def bus_comes_back(self) -> None:
        port = int(self._server.grpc_address.rpartition(":")[2])
        self._server = LocalBus(self._data_dir, port=port, fsync=False)
        await self._server.start()

    async def close(self) -> None:
        await self.bus.close()
        await self._server.stop()

    async def send(self, control: Control) -> None:
        message = encode_control(control, NAMES)
        if isinstance(control, StartJob):
            # One for a boot that nobody knows is sealed for somebody all the same.
            keys = self._keys.get(control.boot_nonce, STRANGER.public)
            attributes = {**message.attributes, SEAL_TO: to_text(keys.sealing)}
            message = replace(message, attributes=attributes)
        self._sent += 1
        proven = SIGNER.control(OutboxRow(self._sent, message), RandomIds().seed())
        await self.bus.publish([proven], 5.0)

    async def heartbeat(
        self, status: str, lease_id: str | None = None, after: int = 0
    ) -> Heartbeat:
        """The first heartbeat with that status (and lease), with seq > after."""

        def found() -> Heartbeat | None:
            for heartbeat in sorted(self.heartbeats, key=lambda heartbeat: heartbeat.seq):
                right = lease_id is None or heartbeat.lease_id == lease_id
                if heartbeat.status == status and right and heartbeat.seq > after:
                    return heartbeat
            return None

        async with asyncio.timeout(DEADLINE_S), self._news:
            await self._news.wait_for(lambda: found() is not None)
        heartbeat = found()
        assert heartbeat is not None
        return heartbeat


@asynccontextmanager
async def scheduler_on_a_bus(data_dir: Path) -> AsyncIterator[tuple[Scheduler, str]]:
    server = LocalBus(data_dir, fsync=False)
    await server.start()
    bus = PubSubBus(PROJECT, emulator_host=server.grpc_address)
    scheduler = Scheduler(bus, server, data_dir)
    task: asyncio.Task[None] | None = None
    try:
        for topic in (NAMES.heartbeat_topic, NAMES.control_topic):
            await bus.publisher.create_topic(name=bus.topic_path(topic))
        await bus.subscriber.create_subscription(
            name=bus.subscription_path(NAMES.heartbeat_subscription),
            topic=bus.topic_path(NAMES.heartbeat_topic),
        )
        task = asyncio.create_task(scheduler.listen())
        yield scheduler, server.grpc_address
    finally:
        if task is not None:
            task.cancel()
        await scheduler.close()


@asynccontextmanager
async def agent_process(
    metadata_host: str, vm_dir: Path, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "agent",
        cwd=ROOT,
        env={
            **os.environ,
            "GCE_METADATA_HOST": metadata_host,
            "ZEN_VM_DIR": str(vm_dir),
            **environment,
        },
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(true: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    """Looks again and again until the condition holds; fails after the deadline."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = true()
                if answer is True or (not isinstance(answer, bool) and await answer):
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never came true: {what}") from None


def gone(pid: int) -> bool:
    """Dead; whether somebody has collected the body does not matter."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
