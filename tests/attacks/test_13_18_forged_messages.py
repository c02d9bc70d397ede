"""With all the access to the bus that a VM has: forged ends, READYs, starts, stops and GPU faults,
and what can be read on the way. All of it against a stack whose job must not notice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from google.pubsub_v1 import types

from agent.proofs import WorkerProofs
from core.ids import RandomIds
from core.job_fields import WorkerSpec
from core.messages import (
    Control,
    DrainVm,
    GpuReading,
    Heartbeat,
    HeartbeatStatus,
    InMessage,
    OutboxRow,
    OutMessage,
    StartJob,
    StopJob,
    VmReadings,
)
from core.names import Names
from messaging.codec import decode_heartbeat, encode_control, encode_heartbeat
from messaging.proofs.control import SEAL_TO, SchedulerSigner
from messaging.proofs.keys import SchedulerKey, WorkerKeys
from messaging.proofs.texts import to_text
from messaging.pubsub import PubSubBus
from tests.e2e.stack import Stack, project_of

pytestmark = pytest.mark.slow
SECRET = "planted-8f1c9a"
B = HeartbeatStatus
OWN = "attacker"


@dataclass(slots=True)
class Tap:
    """Subscriptions of the attacker's own: everything that travels."""

    bus: PubSubBus
    names: Names

    async def take(self, topic: str, enough: int) -> list[InMessage]:
        inbound = self.bus.subscribe(f"{OWN}-{topic}")
        found: list[InMessage] = []
        async for batch in inbound.batches():
            found += batch
            await inbound.ack([message.ack_id for message in batch])
            if len(found) >= enough:
                break
        await inbound.close()
        return found


@asynccontextmanager
async def tapped(up: Stack) -> AsyncIterator[Tap]:
    names = Names()
    async with PubSubBus(project_of(up), emulator_host=up.run["bus"]) as bus:
        for topic in (names.heartbeat_topic, names.control_topic):
            path = bus.topic_path(topic)
            name = bus.subscription_path(f"{OWN}-{topic}")
            await bus.subscriber.create_subscription(types.Subscription(name=name, topic=path))
        yield Tap(bus, names)


def forged_words(real: Heartbeat, tap: Tap) -> list[OutMessage]:
    """What another worker would say of the same job and VM, with every proof that it can make."""
    ids = RandomIds()
    keys = WorkerKeys.from_seeds(ids.seed(), ids.seed())
    scheduler = SchedulerKey.from_seeds(ids.seed(), ids.seed())
    later = replace(real, seq=real.seq + 1000, introduction=None)
    broken = VmReadings((GpuReading(0, fault="forged"),))
    lies = [
        replace(later, status=B.COMPLETED, exit_code=0),
        replace(later, status=B.FAILED, exit_code=1),
        replace(later, status=B.FAILED, exit_code=None),
        replace(later, status=B.STOPPED),
        replace(later, status=B.PREEMPTED),
        replace(later, readings=broken),
    ]
    of_vm = replace(later, job_id=None, lease_id=None, attempt=None, readings=broken)
    lies += [replace(of_vm, status=s) for s in (B.READY, B.DRAINED, B.PREEMPTED, B.UNREADY)]
    lies += [replace(of_vm, status=B.READY, boot_nonce=ids.token(), seq=1)]
    plain = [encode_heartbeat(lie, tap.names) for lie in lies]
    proven = []
    for accepted in (True, False):
        for lie in lies:
            forger = WorkerProofs(tap.names, keys, (scheduler.public,), lie.vm_name, lie.boot_nonce)
            forger.accepted, forger.token = accepted, "forged"
            proven += forger.messages([lie], 0.0)
    return plain + proven


def forged_orders(real: Heartbeat, marker: Path, tap: Tap) -> list[OutMessage]:
    ids = RandomIds()
    keys = WorkerKeys.from_seeds(ids.seed(), ids.seed())
    signer = SchedulerSigner((SchedulerKey.from_seeds(ids.seed(), ids.seed()),))
    spec = WorkerSpec("forged", command=("touch", str(marker)))
    vm, nonce, lease = real.vm_name, real.boot_nonce, real.lease_id or ""
    job, user, attempt = real.job_id or "", real.user_id, real.attempt or 0
    orders: list[Control] = [
        StartJob(vm, nonce, spec, "1xl4", "us-central1", 1, ids.token(), (0,)),
        StopJob(vm, nonce, job, user, attempt, lease, 0.0, "forged"),
        StopJob(vm, "", job, user, attempt, lease, 0.0, "forged"),
        DrainVm(vm, nonce, "forged"),
    ]
    plain = [encode_control(order, tap.names) for order in orders]
    seal_to = {SEAL_TO: to_text(keys.public.sealing)}
    rows = [
        OutboxRow(10**6 + n, replace(m, attributes={**m.attributes, **seal_to}))
        for n, m in enumerate(plain)
    ]
    return plain + [signer.control(row, ids.seed()) for row in rows]


def words_of(messages: Sequence[InMessage]) -> str:
    return json.dumps([[m.body.decode(errors="replace"), dict(m.attributes)] for m in messages])


async def test_nothing_forged_is_believed(up: Stack, tmp_path: Path) -> None:
    """Attacks 12 to 18: the job runs on, its VM keeps it, nothing is started, nothing is read."""
    async with tapped(up) as tap:
        job_id, release = up.submit_held(gpu_type="l4", environment={"TOKEN": SECRET})
        up.wait(job_id, "RUNNING", seconds=90)
        controls = await tap.take(tap.names.control_topic, 1)
        assert "start" in {message.attributes["kind"] for message in controls}
        assert SECRET not in words_of(controls)
        heard = await tap.take(tap.names.heartbeat_topic, 5)
        said = [decode_heartbeat(message) for message in heard]
        real = next(s for s in said if isinstance(s, Heartbeat) and s.job_id == job_id)
        marker = tmp_path / "forged"
        forged = forged_words(real, tap) + forged_orders(real, marker, tap)
        # Also what was really said and ordered, once more.
        again = [OutMessage(tap.names.heartbeat_topic, m.body, m.attributes) for m in heard] + [
            OutMessage(tap.names.control_topic, m.body, m.attributes, m.attributes["vm_name"])
            for m in controls
        ]
        await tap.bus.publish([*forged, *again], 10.0)
        # A job that comes after them is placed by a leader that has read them all.
        after = up.submit("true", gpu_type="l4")
        assert up.wait(after, seconds=90)["status"] == "SUCCEEDED"
        assert up.job(job_id)["status"] == "RUNNING"
        release.parent.mkdir(parents=True, exist_ok=True)
        release.touch()
        ended = up.wait(job_id, seconds=90)
    assert ended["status"] == "SUCCEEDED", ended
    assert ended["attempt"] == 1
    assert not marker.exists()
    steps = ["QUEUED", "PROVISIONING", "ASSIGNED", "STARTING", "RUNNING", "SUCCEEDED"]
    assert up.history(job_id) == steps
