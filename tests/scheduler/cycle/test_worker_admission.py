"""Workers that introduce themselves: what is checked and made before the cycle believes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from core.cluster import ClusterSpec
from core.errors import BusDown
from core.messages import Heartbeat, HeartbeatStatus, InMessage, Introduction
from core.names import Names
from core.ports import Cloud, Compute
from core.vm import VmState
from core.worker_identity import IdentityRefused, IdentityUnsure, VmIdentity, WorkerPublicKeys
from scheduler.cycle import worker_admission
from scheduler.cycle.control_subscriptions import ControlSubscriptionCare
from scheduler.cycle.worker_admission import WorkerAdmission
from scheduler.cycle.worker_checks import WorkerChecks
from tests.builders import NOW, HandClock, cluster, vm
from tests.workers import SIGNER

NAMES = Names()
KEYS = WorkerPublicKeys(b"s" * 32, b"x" * 32)
GOOD = VmIdentity("tests", "us-central1-a", "7", "vm-1", 1)
VM = vm("vm-1", VmState.BOOTING, instance_id="7", zone="us-central1-a", boot_nonce="")
READY = Heartbeat(
    HeartbeatStatus.READY,
    "vm-1",
    instance_id="7",
    zone="us-central1-a",
    boot_nonce="n1",
    introduction=Introduction(KEYS, "token"),
)


class Outside:
    """The issuer, and the bus with its subscriptions."""

    def __init__(self) -> None:
        self.verdict: VmIdentity | IdentityRefused | IdentityUnsure = GOOD
        self.bus_down = False
        self.made: list[str] = []

    async def verify(self, token: str, audience: str) -> VmIdentity | IdentityRefused:
        assert (token, audience) == ("token", KEYS.audience)
        if isinstance(self.verdict, IdentityUnsure):
            raise self.verdict
        return self.verdict

    async def make(self, vm_name: str, boot_nonce: str) -> None:
        if self.bus_down:
            raise BusDown("away")
        self.made.append(NAMES.control_subscription(vm_name, boot_nonce))

    async def remove(self, subscription: str) -> None:
        raise AssertionError(subscription)

    async def all(self) -> Sequence[str]:
        return self.made


def nobody(_: object) -> Compute:
    raise AssertionError("no group is looked at")


class Desk:
    """Admission at work; `back` is what returns to the cycle."""

    def __init__(self) -> None:
        self.outside = Outside()
        self.back: asyncio.Queue[InMessage] = asyncio.Queue()
        self.checks = WorkerChecks(SIGNER, "tests")
        self.clusters: dict[str, ClusterSpec] = {"1xl4": cluster()}
        care = ControlSubscriptionCare(self.outside, NAMES, HandClock())
        clouds = {"mig": Cloud(nobody, identities=self.outside)}
        self.admission = WorkerAdmission(clouds, self.checks, self.back.put_nowait, care)

    def take(self, heartbeat: Heartbeat = READY, message_id: str = "m") -> list[InMessage]:
        self.checks.unjudged[message_id] = (VM, heartbeat)
        return self.admission.take([InMessage("ack", message_id, NOW, b"")], self.clusters)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.admission.run())
        yield
        task.cancel()
        await asyncio.wait([task])

    def believes(self) -> bool:
        return any(isinstance(each, VmIdentity) for each in self.checks._verdicts.values())


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(worker_admission, "UNSURE_S", 0.0)
    return Desk()


async def test_its_subscription_is_there_before_it_is_believed(desk: Desk) -> None:
    """A start that is sent in the next cycle finds it."""
    assert desk.take()
    assert not desk.believes()
    async with desk.running():
        await desk.back.get()
    assert desk.believes()
    assert desk.outside.made == [NAMES.control_subscription("vm-1", "n1")]


REFUSED: list[Callable[[Outside], None]] = [
    lambda outside: setattr(outside, "verdict", IdentityRefused("no")),
    lambda outside: setattr(outside, "verdict", VmIdentity("tests", GOOD.zone, "8", "vm-1", 1)),
    lambda outside: setattr(outside, "verdict", VmIdentity("tests", GOOD.zone, "7", "vm-2", 1)),
    lambda outside: setattr(outside, "verdict", VmIdentity("other", GOOD.zone, "7", "vm-1", 1)),
]


@pytest.mark.parametrize("change", REFUSED, ids=["token", "instance", "name", "project"])
async def test_nobody_else_gets_a_subscription(
    desk: Desk, change: Callable[[Outside], None]
) -> None:
    """A bad token, and a good one of another VM that names this one."""
    change(desk.outside)
    desk.take()
    async with desk.running():
        await desk.back.get()
    assert desk.outside.made == []


async def test_nothing_is_decided_while_the_bus_is_away(desk: Desk) -> None:
    """The heartbeat comes back, and is looked at again."""
    desk.outside.bus_down = True
    desk.take()
    async with desk.running():
        await desk.back.get()
    assert not desk.checks._verdicts
    desk.outside.bus_down = False
    desk.take()
    async with desk.running():
        await desk.back.get()
    assert desk.believes()


async def test_nothing_is_decided_while_the_issuer_is_away(desk: Desk) -> None:
    """Neither believed nor refused."""
    desk.outside.verdict = IdentityUnsure("no certificates")
    desk.take()
    async with desk.running():
        await desk.back.get()
    assert not desk.checks._verdicts


async def test_a_worker_of_an_unknown_cluster_does_not_stay(desk: Desk) -> None:
    """It says it again."""
    desk.clusters.clear()
    assert desk.take() == []
