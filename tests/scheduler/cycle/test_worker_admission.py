"""Workers that introduce themselves: what is checked and made before the cycle believes them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from core.cluster import ClusterSpec
from core.errors import BusDown
from core.ids import RandomIds
from core.messages import Heartbeat, HeartbeatStatus, InMessage, Introduction
from core.names import Names
from core.ports import Cloud, Compute
from core.vm import Vm, VmState
from core.worker_identity import IdentityRefused, IdentityUnsure, VmIdentity
from messaging.codec import encode_heartbeat
from messaging.proofs.heartbeats import HeartbeatProver
from messaging.proofs.keys import WorkerKeys
from scheduler.cycle import worker_admission
from scheduler.cycle.control_subscriptions import ControlSubscriptionCare
from scheduler.cycle.heartbeats import ReceivedHeartbeat
from scheduler.cycle.introductions import WAITING_EACH
from scheduler.cycle.worker_admission import WorkerAdmission
from scheduler.cycle.worker_checks import WorkerChecks
from tests.builders import NOW, HandClock, cluster, vm
from tests.workers import SCHEDULER, SIGNER, STRANGER, WORKER, received

NAMES = Names()
KEYS = WORKER.public
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
        self.asked = 0

    async def verify(self, token: str, audience: str) -> VmIdentity | IdentityRefused:
        self.asked += 1
        if token != "token":
            return IdentityRefused("forged")
        assert audience == KEYS.audience
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


def introduced(
    message_id: str = "m", said: Heartbeat = READY, keys: WorkerKeys = WORKER
) -> ReceivedHeartbeat:
    """As its worker signs it."""
    message = HeartbeatProver(keys, SCHEDULER.public, said.boot_nonce).signed(
        encode_heartbeat(said, NAMES)
    )
    return received(said, message, message_id)


def forged(number: int) -> ReceivedHeartbeat:
    """Well signed, by keys and with a token that somebody made up."""
    return introduced(
        f"forged-{number}",
        replace(READY, introduction=Introduction(STRANGER.public, f"{number}")),
        STRANGER,
    )


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
        self.counted: list[str] = []
        self.checks.count = self.counted.append
        self.checks.begin(NOW)
        ids = RandomIds(random.Random(7))
        self.admission = WorkerAdmission(clouds, self.checks, self.back.put_nowait, care, ids)

    def take(self, *items: ReceivedHeartbeat, on: Vm = VM) -> list[InMessage]:
        """A cycle that hears them."""
        heard = items or (introduced(),)
        self.checks.begin(NOW)
        for item in heard:
            assert self.checks.check(on, item) is None
        messages = [InMessage("ack", item.message_id, NOW, b"") for item in heard]
        return self.admission.take(messages, self.clusters)

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


async def test_no_flood_of_forged_ones_crowds_out_the_worker(desk: Desk) -> None:
    """In each cycle more come than are looked at, and the worker's own comes last. It has as good
    a chance as any, and is said again."""
    flood = [forged(number) for number in range(3 * WAITING_EACH)]
    for _ in range(100):
        taken = desk.take(*flood, introduced())
        if any(message.message_id == "m" for message in taken):
            break
        async with desk.running():
            for _ in taken:
                await desk.back.get()
        desk.checks._verdicts.clear()
    async with desk.running():
        while (await desk.back.get()).message_id != "m":
            pass
    assert desk.believes()


async def test_flood_for_one_vm_leaves_room_for_others(desk: Desk) -> None:
    """However many are invented of one VM, few wait, and another VM's worker finds room."""
    taken = desk.take(*(forged(number) for number in range(2 * WAITING_EACH)))
    assert len(taken) == WAITING_EACH
    assert desk.counted == ["too_many"] * WAITING_EACH
    assert desk.take(forged(-1)) == []
    assert desk.take(on=replace(VM, uid="other"))


async def test_token_of_a_wrongly_signed_one_is_not_checked(desk: Desk) -> None:
    """Signed by other keys than it brings."""
    assert desk.take(introduced(keys=STRANGER)) == []
    assert desk.counted == ["wrong_signature"]


async def test_worker_waits_until_compute_has_listed_its_vm(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token is checked once; it has no subscription before Compute's number is compared."""
    monkeypatch.setattr(worker_admission, "UNLISTED_S", 0.001)
    young = replace(VM, instance_id="", zone="")
    async with desk.running():
        for _ in range(3):
            assert desk.take(on=young)
            await desk.back.get()
            assert not desk.believes()
            assert desk.outside.made == []
        assert desk.take(on=VM)
        await desk.back.get()
    assert desk.believes()
    assert desk.outside.made == [NAMES.control_subscription("vm-1", "n1")]
    assert desk.outside.asked == 1


async def test_another_instance_than_compute_lists_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It spoke before the VM was listed, and the VM is another one."""
    monkeypatch.setattr(worker_admission, "UNLISTED_S", 0.001)
    async with desk.running():
        desk.take(on=replace(VM, instance_id=""))
        await desk.back.get()
        other = replace(VM, instance_id="8")
        desk.take(on=other)
        await desk.back.get()
    assert desk.checks.check(other, introduced()) is None
    assert desk.outside.made == []
    assert desk.counted == ["other_instance"]


async def test_a_worker_of_an_unknown_cluster_does_not_stay(desk: Desk) -> None:
    """It says it again."""
    desk.clusters.clear()
    assert desk.take() == []
