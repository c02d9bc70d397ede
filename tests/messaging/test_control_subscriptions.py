"""Control subscriptions on the local bus, over the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.errors import BusDown
from core.messages import DrainVm
from core.names import BadName, Names
from localbus.server import LocalBus
from messaging import control_subscriptions
from messaging.codec import decode_control, encode_control
from messaging.control_subscriptions import PubSubControlSubscriptions
from messaging.errors import BusRefused
from messaging.pubsub import PubSubBus
from messaging.topics import apply_pubsub
from tests.messaging.control_subscriptions_contract import (
    NAMES,
    VM,
    ControlSubscriptionsContract,
)

pytestmark = pytest.mark.slow
OTHER_VM = "pipeline-zen-jobs-2xa100-40gb-us-central1-vm-xxxx"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LocalBus]:
    server = LocalBus(tmp_path, fsync=False)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def bus(server: LocalBus) -> AsyncIterator[PubSubBus]:
    async with PubSubBus("proj", emulator_host=server.grpc_address) as bus:
        await apply_pubsub(bus, NAMES, ())
        yield bus


@pytest.fixture
def port(bus: PubSubBus) -> PubSubControlSubscriptions:
    return PubSubControlSubscriptions(bus, NAMES)


class TestPubSubControlSubscriptions(ControlSubscriptionsContract):
    """The contract, over gRPC."""


async def test_a_vm_hears_what_is_for_it_alone(
    bus: PubSubBus, port: PubSubControlSubscriptions
) -> None:
    """The bus filters by the name of the VM; what is sent before the worker reads is kept."""
    await port.make(VM, "n1")
    sent = [encode_control(DrainVm(vm, "n1", "x"), NAMES) for vm in (OTHER_VM, VM)]
    await bus.publish(sent, 5.0)
    inbound = bus.subscribe(NAMES.control_subscription(VM, "n1"))
    batch = await anext(inbound.batches())
    assert [decode_control(message) for message in batch] == [DrainVm(VM, "n1", "x")]
    await inbound.close()


async def test_vms_are_let_read_it(bus: PubSubBus) -> None:
    """Where their account may read nothing else: also if a leader died before it came to that."""
    name = bus.subscription_path(NAMES.control_subscription(VM, "n1"))
    await PubSubControlSubscriptions(bus, NAMES).make(VM, "n1")
    account = "zen-vms@proj.iam.gserviceaccount.com"
    await PubSubControlSubscriptions(bus, NAMES, account).make(VM, "n1")
    policy = await bus.subscriber.get_iam_policy({"resource": name})
    assert [(each.role, list(each.members)) for each in policy.bindings] == [
        ("roles/pubsub.subscriber", [f"serviceAccount:{account}"])
    ]


async def test_many_are_listed_page_by_page(
    port: PubSubControlSubscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet has more of them than one answer holds."""
    monkeypatch.setattr(control_subscriptions, "PAGE", 3)
    for number in range(10):
        await port.make(VM, f"n{number}")
    assert len(await port.all()) == 10


@pytest.mark.parametrize(("vm", "nonce"), [('a"b', "n"), ("", "n"), (VM, ""), (VM, "a/b")])
async def test_bad_names_are_refused(port: PubSubControlSubscriptions, vm: str, nonce: str) -> None:
    """A worker's own word never becomes part of a filter or a path."""
    with pytest.raises(BadName, match="control subscription"):
        await port.make(vm, nonce)


async def test_long_ids_are_refused(bus: PubSubBus) -> None:
    """Google allows 255 characters."""
    with pytest.raises(BadName, match="255"):
        await PubSubControlSubscriptions(bus, Names("p" * 240)).make(VM, "n1")


async def test_without_its_topic_it_says_what_to_run(server: LocalBus) -> None:
    """Also when listing."""
    async with PubSubBus("proj", emulator_host=server.grpc_address) as bus:
        port = PubSubControlSubscriptions(bus, NAMES)
        with pytest.raises(BusRefused, match=f"{NAMES.control_topic}.*zen infra apply"):
            await port.make(VM, "n1")
        with pytest.raises(BusRefused, match=NAMES.control_topic):
            await port.all()


async def test_a_bus_that_is_away_is_said_to_be(server: LocalBus) -> None:
    """The caller tries again."""
    async with PubSubBus("proj", emulator_host="127.0.0.1:9") as bus:
        with pytest.raises(BusDown):
            await PubSubControlSubscriptions(bus, NAMES).make(VM, "n1")
