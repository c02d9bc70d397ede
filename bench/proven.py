"""Workers' proofs for benchmarks: all workers have the same keys, each boot has its own MAC key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from core.messages import Heartbeat, OutMessage
from core.names import Names
from core.worker_identity import ProvenKeys
from messaging.codec import encode_heartbeat
from messaging.proofs.control import SchedulerSigner
from messaging.proofs.heartbeats import HeartbeatProver
from messaging.proofs.keys import SchedulerKey, WorkerKeys

SCHEDULER = SchedulerKey.from_seeds(
    b"bench scheduler signs with this.", b"bench scheduler seals with this."
)
WORKER = WorkerKeys.from_seeds(
    b"bench workers all sign with this", b"bench workers all seal with this"
)
SIGNER = SchedulerSigner((SCHEDULER,))
PROVEN = ProvenKeys(WORKER.public, 1)


@cache
def prover(boot_nonce: str) -> HeartbeatProver:
    return HeartbeatProver(WORKER, SCHEDULER.public, boot_nonce)


def signed(heartbeat: Heartbeat, names: Names) -> OutMessage:
    return prover(heartbeat.boot_nonce).signed(encode_heartbeat(heartbeat, names))


class MadeSubscriptions:
    """core.ports.ControlSubscriptions for workers that read none."""

    async def make(self, vm_name: str, boot_nonce: str) -> None:
        pass

    async def remove(self, subscription: str) -> None:
        pass

    async def all(self) -> Sequence[str]:
        return ()
