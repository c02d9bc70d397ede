"""Applying topics and subscriptions, against the local bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
from google.protobuf import duration_pb2
from google.pubsub_v1 import types

from core.cluster import ClusterSpec, RegionSpec
from core.errors import BusDown
from core.names import Names
from localbus.server import LocalBus
from messaging.pubsub import PubSubBus
from messaging.topics import Applied, SetupOutcome, apply_pubsub

pytestmark = pytest.mark.slow

NAMES = Names()


def cluster(name: str, worker: Literal["v1", "v2"]) -> ClusterSpec:
    """A cluster of one region."""
    return ClusterSpec(
        name=name,
        gpu_type="l4",
        gpus=1,
        machine_type="g2-standard-4",
        vm_max=1,
        regions=(RegionSpec("us-central1", ("us-central1-a",), 1.0, 0.5),),
        worker=worker,
    )


CLUSTERS = (cluster("1xl4", "v1"), cluster("2xl4", "v2"))


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[PubSubBus]:
    """A client of an empty local bus."""
    server = LocalBus(tmp_path, fsync=False)
    await server.start()
    async with PubSubBus("proj", emulator_host=server.grpc_address) as bus:
        yield bus
    await server.stop()


def outcomes(applied: list[Applied]) -> dict[str, SetupOutcome]:
    return {item.name: item.outcome for item in applied}


async def get(bus: PubSubBus, name: str) -> types.Subscription:
    path = bus.subscription_path(name)
    return await bus.subscriber.get_subscription(subscription=path, retry=None, timeout=20)


async def test_everything_is_created_then_nothing_changes(bus: PubSubBus) -> None:
    """The first run creates every item, the second changes none and says so."""
    first = await apply_pubsub(bus, NAMES, CLUSTERS)
    assert [(item.kind, item.name) for item in first] == [
        ("topic", "pipeline-zen-jobs-start"),
        ("topic", "pipeline-zen-jobs-stop"),
        ("topic", "pipeline-zen-jobs-heartbeats"),
        ("topic", "pipeline-zen-jobs-control"),
        ("topic", "pipeline-zen-jobs-submit"),
        ("topic", "pipeline-zen-jobs-submit-dead"),
        ("subscription", "pipeline-zen-jobs-start-runner-1xl4"),
        ("subscription", "pipeline-zen-jobs-stop-runner"),
        ("subscription", "pipeline-zen-jobs-heartbeats-scheduler"),
        ("subscription", "pipeline-zen-jobs-submit-scheduler"),
        ("subscription", "pipeline-zen-jobs-submit-dead-scheduler"),
    ]
    assert {item.outcome for item in first} == {SetupOutcome.CREATED}
    second = await apply_pubsub(bus, NAMES, CLUSTERS)
    assert {item.outcome for item in second} == {SetupOutcome.UNCHANGED}


async def test_subscriptions_have_the_contract_s_settings(bus: PubSubBus) -> None:
    """Filter, ack deadline, retention and dead letter are those of the wire contract."""
    await apply_pubsub(bus, NAMES, CLUSTERS)
    start = await get(bus, NAMES.start_subscription("1xl4"))
    assert start.filter == 'attributes.cluster = "1xl4"'
    assert start.ack_deadline_seconds == 60
    assert types.Subscription.pb(start).message_retention_duration.seconds == 4 * 86400
    assert (await get(bus, NAMES.stop_subscription)).filter == ""
    submit = await get(bus, NAMES.submit_subscription)
    assert submit.dead_letter_policy.dead_letter_topic.endswith("/pipeline-zen-jobs-submit-dead")


async def test_changed_setting_is_put_right(bus: PubSubBus) -> None:
    """A setting that can be changed in place is, and the answer names it."""
    await apply_pubsub(bus, NAMES, ())
    name = NAMES.heartbeat_subscription
    path = bus.subscription_path(name)
    await bus.subscriber.delete_subscription(subscription=path, retry=None, timeout=20)
    wrong = types.Subscription(
        name=path,
        topic=bus.topic_path(NAMES.heartbeat_topic),
        ack_deadline_seconds=10,
        message_retention_duration=duration_pb2.Duration(seconds=4 * 86400),
        expiration_policy=types.ExpirationPolicy(),
    )
    await bus.subscriber.create_subscription(wrong, retry=None, timeout=20)
    applied = await apply_pubsub(bus, NAMES, ())
    assert (
        Applied("subscription", name, SetupOutcome.UPDATED, "changed: ack_deadline_seconds")
        in applied
    )
    assert (await get(bus, name)).ack_deadline_seconds == 60
    assert outcomes(await apply_pubsub(bus, NAMES, ()))[name] is SetupOutcome.UNCHANGED


async def test_other_filter_is_reported_not_repaired(bus: PubSubBus) -> None:
    """A filter cannot change: the subscription stays, and the answer says what to do."""
    await apply_pubsub(bus, NAMES, ())
    name = NAMES.start_subscription("1xl4")
    wrong = types.Subscription(
        name=bus.subscription_path(name),
        topic=bus.topic_path(NAMES.start_topic),
        filter='attributes.cluster = "8xl4"',
    )
    await bus.subscriber.create_subscription(wrong, retry=None, timeout=20)
    applied = await apply_pubsub(bus, NAMES, CLUSTERS)
    (item,) = [item for item in applied if item.name == name]
    assert item.outcome is SetupOutcome.DIFFERS
    assert "8xl4" in item.detail
    assert f"gcloud pubsub subscriptions delete {name}" in item.detail
    assert (await get(bus, name)).filter == 'attributes.cluster = "8xl4"'


async def test_without_a_server_it_is_bus_down() -> None:
    """An outage while applying is BusDown: run it again."""
    async with PubSubBus("proj", emulator_host="127.0.0.1:1") as bus:
        with pytest.raises(BusDown):
            await apply_pubsub(bus, NAMES, ())
