"""The Pub/Sub client against the local bus, over the wire."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from core.clock import SystemClock
from core.errors import BusDown
from core.messages import DrainVm, Heartbeat, HeartbeatStatus, InMessage, OutMessage
from core.names import Names
from core.ports import Bus, Inbound
from localbus.server import LocalBus
from messaging import inbound as inbound_module
from messaging import pubsub
from messaging.calls import MessageCalls
from messaging.codec import decode_control, decode_heartbeat, encode_control, encode_heartbeat
from messaging.control_subscriptions import PubSubControlSubscriptions
from messaging.errors import BusRefused
from messaging.pubsub import PubSubBus
from messaging.topics import apply_pubsub

pytestmark = pytest.mark.slow

NAMES = Names()
TOPIC, EAR = NAMES.heartbeat_topic, NAMES.heartbeat_subscription
VM = "pipeline-zen-jobs-2xa100-40gb-us-central1-vm-bcdf"
OTHER_VM = "pipeline-zen-jobs-2xa100-40gb-us-central1-vm-xxxx"
DEADLINE_S = 20.0


class SkippingClock(SystemClock):
    """The real clock, and a number of seconds that the test adds to it."""

    skip_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skip_s


@pytest.fixture
def clock() -> SkippingClock:
    """The server's clock."""
    return SkippingClock()


@pytest.fixture
async def server(tmp_path: Path, clock: SkippingClock) -> AsyncIterator[LocalBus]:
    """A local bus on a free port."""
    server = LocalBus(tmp_path, fsync=False, clock=clock)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def bus(server: LocalBus) -> AsyncIterator[PubSubBus]:
    """A client with the topics of a deployment in place."""
    async with PubSubBus("proj", emulator_host=server.grpc_address) as bus:
        await apply_pubsub(bus, NAMES, ())
        yield bus


def words(*bodies: str, topic: str = TOPIC, key: str = "") -> list[OutMessage]:
    return [OutMessage(topic, body.encode(), ordering_key=key) for body in bodies]


class Reader:
    """Reads one subscription and remembers what came."""

    def __init__(self, inbound: Inbound) -> None:
        self.inbound = inbound
        self._batches = inbound.batches()

    async def batch(self) -> list[InMessage]:
        async with asyncio.timeout(DEADLINE_S):
            return list(await anext(self._batches))

    async def take(self, count: int, *, ack: bool = True) -> list[InMessage]:
        """Exactly `count` messages, acknowledged one batch at a time."""
        got: list[InMessage] = []
        while len(got) < count:
            batch = await self.batch()
            got += batch
            if ack:
                await self.inbound.ack([message.ack_id for message in batch])
        assert len(got) == count
        return got


def bodies(messages: list[InMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


def test_it_is_a_bus() -> None:
    """The client has the shape of the port, and of its inbound half."""
    bus: Bus = PubSubBus("proj", emulator_host="127.0.0.1:1")
    assert callable(bus.publish)


async def test_published_messages_arrive_whole(bus: PubSubBus) -> None:
    """Body, attributes and id arrive as sent, with a publish time that knows its zone."""
    reader = Reader(bus.subscribe(EAR))
    heartbeat = Heartbeat(HeartbeatStatus.READY, VM, boot_nonce="n1", seq=3)
    (message_id,) = await bus.publish([encode_heartbeat(heartbeat, NAMES)], 5)
    (message,) = await reader.take(1)
    assert decode_heartbeat(message) == heartbeat
    assert message.message_id == message_id
    assert message.attributes == {"vm_name": VM, "kind": "heartbeat"}
    assert message.publish_time.tzinfo is not None


async def test_ids_come_back_in_the_order_given(bus: PubSubBus) -> None:
    """Messages for several topics, mixed, get their own ids in the order they were given."""
    reader = Reader(bus.subscribe(EAR))
    mixed = [
        message
        for place in range(50)
        for message in (*words(f"b{place}"), *words("s", topic=NAMES.stop_topic))
    ]
    ids = await bus.publish(mixed, 5)
    by_id = {message.message_id: message.body.decode() for message in await reader.take(50)}
    assert [by_id.get(message_id) for message_id in ids[::2]] == [f"b{n}" for n in range(50)]


async def test_acknowledged_messages_do_not_come_again(bus: PubSubBus) -> None:
    """A second reader of the subscription sees only what the first did not acknowledge."""
    first = Reader(bus.subscribe(EAR))
    await bus.publish(words("done"), 5)
    await first.take(1)
    await bus.publish(words("held"), 5)
    await first.take(1, ack=False)
    await first.inbound.close()
    second = Reader(bus.subscribe(EAR))
    assert bodies(await second.take(1)) == ["held"]


async def test_nack_redelivers(bus: PubSubBus) -> None:
    """A message that is given back comes again at once, under the same id."""
    reader = Reader(bus.subscribe(EAR))
    await bus.publish(words("again"), 5)
    (first,) = await reader.take(1, ack=False)
    await reader.inbound.nack([first.ack_id])
    (second,) = await reader.take(1)
    assert second.message_id == first.message_id


async def test_close_ends_a_waiting_reader(bus: PubSubBus) -> None:
    """A reader that waits for messages is released by close(), without an error."""
    inbound = bus.subscribe(EAR)

    async def drain() -> int:
        return sum([len(batch) async for batch in inbound.batches()])

    reading = asyncio.create_task(drain())
    await bus.publish(words("x"), 5)
    await inbound.close()
    async with asyncio.timeout(DEADLINE_S):
        assert await reading in (0, 1)


async def test_one_key_stays_in_order_over_many_requests(
    bus: PubSubBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Concurrent publishes, each cut into several requests, keep the order of their key."""
    monkeypatch.setattr(pubsub, "PUBLISH_MESSAGES_MAX", 7)
    await PubSubControlSubscriptions(bus, NAMES).make(VM, "n1")
    ear = NAMES.control_subscription(VM, "n1")
    reader = Reader(bus.subscribe(ear))
    drains = [
        encode_control(DrainVm(VM, "n1", reason=f"{number:03}"), NAMES) for number in range(90)
    ]
    await asyncio.gather(*(bus.publish(drains[at : at + 30], 10) for at in (0, 30, 60)))
    got = [decode_control(message) for message in await reader.take(90)]
    reasons = [drain.reason for drain in got if isinstance(drain, DrainVm)]
    assert reasons == [f"{number:03}" for number in range(90)]


async def test_large_publish_is_cut_into_requests(bus: PubSubBus) -> None:
    """More bytes than one request may hold are sent in several, all confirmed."""
    reader = Reader(bus.subscribe(EAR))
    big = "x" * 2_000_000
    ids = await bus.publish(words(*(big for _ in range(7))), 20)
    assert len(set(ids)) == 7
    assert {len(message.body) for message in await reader.take(7)} == {2_000_000}


async def test_unacknowledged_messages_are_bounded(bus: PubSubBus) -> None:
    """A reader that does not acknowledge is sent no more than its limit."""
    reader = Reader(bus.subscribe(EAR, max_messages=10))
    await bus.publish(words(*(f"{n}" for n in range(35))), 5)
    first = await reader.take(10, ack=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await reader.batch()
    await reader.inbound.close()
    reader = Reader(bus.subscribe(EAR, max_messages=10))
    seen = await reader.take(35)
    assert len({message.message_id for message in [*first, *seen]}) == 35


async def test_cancelled_read_loses_nothing(bus: PubSubBus) -> None:
    """A read that times out leaves the subscription as it was: the next read gets the message."""
    reader = Reader(bus.subscribe(EAR))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await reader.batch()
    await bus.publish(words("later"), 5)
    assert bodies(await reader.take(1)) == ["later"]


async def test_slow_reader_keeps_its_lease(
    bus: PubSubBus, clock: SkippingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message held past its deadline is extended, not delivered a second time."""
    monkeypatch.setattr(inbound_module, "HEARTBEAT_S", 0.02)
    extended: asyncio.Queue[int] = asyncio.Queue()
    modify = MessageCalls.modify_ack_deadline

    async def watched(
        calls: MessageCalls, path: str, ids: Sequence[str], deadline_s: int, timeout_s: float
    ) -> None:
        await modify(calls, path, ids, deadline_s, timeout_s)
        extended.put_nowait(deadline_s)

    monkeypatch.setattr(MessageCalls, "modify_ack_deadline", watched)
    reader = Reader(bus.subscribe(EAR))
    await bus.publish(words("slow"), 5)
    (slow,) = await reader.take(1, ack=False)
    deadline_s = inbound_module.STREAM_ACK_DEADLINE_S
    clock.skip_s += 0.75 * deadline_s
    for _ in range(extended.qsize() + 2):  # at least one that began after the skip
        async with asyncio.timeout(DEADLINE_S):
            assert await extended.get() == deadline_s
    clock.skip_s += 0.75 * deadline_s
    await bus.publish(words("next"), 5)  # makes the server look at its clock
    assert bodies(await reader.take(1)) == ["next"]
    await reader.inbound.ack([slow.ack_id])


async def test_message_held_too_long_is_let_go(
    bus: PubSubBus, clock: SkippingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extension is bounded: what a stuck reader holds comes again after its deadline."""
    monkeypatch.setattr(inbound_module, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(inbound_module, "HOLD_MAX_S", 0.0)
    let_go = asyncio.Event()
    monkeypatch.setattr(inbound_module.log, "warning", lambda *_: let_go.set())
    reader = Reader(bus.subscribe(EAR))
    await bus.publish(words("stuck"), 5)
    await reader.take(1, ack=False)
    async with asyncio.timeout(DEADLINE_S):
        await let_go.wait()
    clock.skip_s += 61
    await bus.publish(words("next"), 5)
    assert sorted(bodies(await reader.take(2))) == ["next", "stuck"]


async def test_reader_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    """The stream is opened again by itself; what was published before the restart arrives."""
    server = LocalBus(tmp_path, fsync=False)
    await server.start()
    host, _, port = server.grpc_address.rpartition(":")
    async with PubSubBus("proj", emulator_host=server.grpc_address) as ours:
        await apply_pubsub(ours, NAMES, ())
        reader = Reader(ours.subscribe(EAR))
        await ours.publish(words("before"), 5)
        assert bodies(await reader.take(1)) == ["before"]
        waiting = asyncio.create_task(reader.take(1))
        await server.stop()
        with pytest.raises(BusDown):
            await ours.publish(words("lost"), 0.5)
        server = LocalBus(tmp_path, host, int(port), fsync=False)
        await server.start()
        try:
            await _publish_when_back(ours, words("after"))
            assert bodies(await waiting) == ["after"]
        finally:
            await ours.close()
            await server.stop()


async def _publish_when_back(bus: PubSubBus, messages: list[OutMessage]) -> None:
    """What the relay does: try again until the bus confirms."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await bus.publish(messages, 1)
            except BusDown:
                await asyncio.sleep(0.05)
            else:
                return


async def test_bus_down_when_nobody_listens(server: LocalBus) -> None:
    """A server that is gone is BusDown, well within the time-out."""
    await server.stop()
    loop = asyncio.get_running_loop()
    async with PubSubBus("proj", emulator_host=server.grpc_address) as bus:
        start = loop.time()
        with pytest.raises(BusDown, match="does not answer"):
            await bus.publish(words("x"), 3)
        assert loop.time() - start < 3.5


async def test_bus_down_within_the_timeout_when_the_server_hangs() -> None:
    """A server that accepts and says nothing is BusDown when the time-out is over."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as hung:
        port = hung.getsockname()[1]
        async with PubSubBus("proj", emulator_host=f"127.0.0.1:{port}") as bus:
            start = loop.time()
            with pytest.raises(BusDown):
                await bus.publish(words("x"), 0.5)
            assert 0.4 < loop.time() - start < 2


async def test_ack_without_a_server_is_bus_down(bus: PubSubBus, server: LocalBus) -> None:
    """An acknowledgement that cannot be delivered says so after a few tries."""
    reader = Reader(bus.subscribe(EAR))
    await bus.publish(words("x"), 5)
    (message,) = await reader.take(1, ack=False)
    await server.stop()
    with pytest.raises(BusDown, match="ack on"):
        await reader.inbound.ack([message.ack_id])


async def test_missing_topic_says_what_to_run(bus: PubSubBus) -> None:
    """A topic that nobody made is not an outage: the error names the command that makes it."""
    with pytest.raises(BusRefused, match=r"nowhere.*zen infra apply --pubsub"):
        await bus.publish(words("x", topic="nowhere"), 5)


async def test_missing_subscription_says_what_to_run(bus: PubSubBus) -> None:
    """Reading a subscription that nobody made ends with the command that makes it."""
    with pytest.raises(BusRefused, match=r"nobody.*zen infra apply --pubsub"):
        await Reader(bus.subscribe("nobody")).batch()


async def test_publishing_nothing_is_nothing(bus: PubSubBus) -> None:
    """An empty batch needs no server."""
    assert await bus.publish([], 1) == []


async def test_closed_bus_refuses() -> None:
    """A bus that was closed says so instead of opening a connection nobody will close."""
    bus = PubSubBus("proj", emulator_host="127.0.0.1:1")
    await bus.close()
    with pytest.raises(BusDown, match="closed"):
        await bus.publish(words("x"), 1)
