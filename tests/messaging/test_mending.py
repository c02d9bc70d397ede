"""Subscriptions that somebody deleted, detached or replaced, on the local bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.pubsub_v1 import types

from core.messages import OutMessage, SubscriptionFault
from core.names import Names
from localbus.server import LocalBus
from messaging.mending import mend_subscriptions
from messaging.pubsub import PubSubBus, delete_subscription
from messaging.topics import apply_pubsub

pytestmark = pytest.mark.slow

NAMES = Names()
EAR = NAMES.heartbeat_subscription


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[PubSubBus]:
    """A client of a local bus with all that a deployment needs."""
    server = LocalBus(tmp_path, fsync=False)
    await server.start()
    async with PubSubBus("proj", emulator_host=server.grpc_address) as bus:
        await apply_pubsub(bus, NAMES, ())
        yield bus
    await server.stop()


async def hears(bus: PubSubBus) -> bool:
    """Whether a message to the topic comes out of the subscription."""
    await bus.publish([OutMessage(NAMES.heartbeat_topic, b"x", {})], 10)
    inbound = bus.subscribe(EAR)
    try:
        return bool(await anext(inbound.batches()))
    finally:
        await inbound.close()


async def test_nothing_to_mend(bus: PubSubBus) -> None:
    """All is well: nothing is told, nothing is changed."""
    assert await mend_subscriptions(bus, NAMES, ()) == []


async def test_deleted_and_detached_are_made_again(bus: PubSubBus) -> None:
    """They are read again afterwards; so is one whose topic was deleted."""
    await delete_subscription(bus, EAR)
    made = [SubscriptionFault(EAR, "it was deleted", made_again=True)]
    assert await mend_subscriptions(bus, NAMES, ()) == made
    assert await hears(bus)
    path = bus.subscription_path(EAR)
    await bus.publisher.detach_subscription({"subscription": path}, timeout=10)
    made = [SubscriptionFault(EAR, "it was detached", made_again=True)]
    assert await mend_subscriptions(bus, NAMES, ()) == made
    assert await hears(bus)
    await bus.publisher.delete_topic(topic=bus.topic_path(NAMES.heartbeat_topic), timeout=10)
    made = [SubscriptionFault(EAR, "its topic was deleted", made_again=True)]
    assert await mend_subscriptions(bus, NAMES, ()) == made
    assert await hears(bus)
    assert await mend_subscriptions(bus, NAMES, ()) == []


async def test_replaced_is_told_and_left_alone(bus: PubSubBus) -> None:
    """A filter that lets nothing through may hide messages that matter: a human decides."""
    await delete_subscription(bus, EAR)
    deaf = types.Subscription(
        name=bus.subscription_path(EAR),
        topic=bus.topic_path(NAMES.heartbeat_topic),
        filter='attributes.kind = "nothing"',
    )
    await bus.subscriber.create_subscription(deaf, timeout=10)
    (fault,) = await mend_subscriptions(bus, NAMES, ())
    assert not fault.made_again
    assert "subscriptions delete" in fault.problem
