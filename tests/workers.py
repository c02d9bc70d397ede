"""Keys and proofs of workers and of the scheduler, for tests."""

from __future__ import annotations

from agent.proofs import WorkerProofs
from core.messages import Heartbeat, InMessage, OutboxRow, OutMessage
from core.names import Names
from core.vm import Vm
from core.worker_identity import ProvenKeys
from messaging.proofs.control import SchedulerSigner
from messaging.proofs.keys import SchedulerKey, WorkerKeys
from scheduler.cycle.heartbeats import Proven, ReceivedHeartbeat
from tests.builders import NOW

SCHEDULER = SchedulerKey.from_seeds(b"1" * 32, b"2" * 32)
SIGNER = SchedulerSigner((SCHEDULER,))
WORKER = WorkerKeys.from_seeds(b"3" * 32, b"4" * 32)
STRANGER = WorkerKeys.from_seeds(b"5" * 32, b"6" * 32)
PROVEN = ProvenKeys(WORKER.public, 1_000)


def trusted(vm: Vm, item: ReceivedHeartbeat) -> Proven:
    """For tests of what heartbeats mean: their senders are who they say, and sign."""
    return Proven(signed=True)


def as_sent(row: OutboxRow) -> OutMessage:
    """For tests of the road to the bus: nothing is signed or sealed."""
    return row.message


def proofs(
    vm_name: str = "vm-1",
    nonce: str = "nonce",
    keys: WorkerKeys = WORKER,
    names: Names | None = None,
) -> WorkerProofs:
    return WorkerProofs(names or Names(), keys, (SCHEDULER.public,), vm_name, nonce)


def arrived(message: OutMessage, message_id: str = "m-1") -> InMessage:
    return InMessage("ack", message_id, NOW, message.body, message.attributes)


def received(
    heartbeat: Heartbeat, message: OutMessage, message_id: str = "m-1"
) -> ReceivedHeartbeat:
    proof = message.attributes.get("proof", "")
    return ReceivedHeartbeat(heartbeat, NOW, message_id, message.body, proof)
