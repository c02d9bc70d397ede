"""The worker's proofs: heartbeats leave with one, control messages are taken only with one.

What changes a state is signed until the bus has confirmed it, and once more every few minutes; what
only repeats it carries a MAC, which costs the scheduler a fiftieth.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agent.heartbeat_queue import FINAL_WORDS
from core.messages import Control, Heartbeat, InMessage, Introduction, OutMessage
from core.names import Names
from core.worker_identity import WorkerPublicKeys
from messaging.codec import decode_control, encode_heartbeat
from messaging.proofs.control import ControlVerifier
from messaging.proofs.heartbeats import HeartbeatProver
from messaging.proofs.keys import SchedulerPublicKey, WorkerKeys

SIGN_AGAIN_S = 300.0
"""A state whose one signed heartbeat had no effect is known again after this long."""
SIGNED_MAX = 2048


@dataclass(slots=True)
class WorkerProofs:
    """One boot's keys at work."""

    names: Names
    keys: WorkerKeys
    scheduler: tuple[SchedulerPublicKey, ...]
    """The first one is used for MACs."""
    vm_name: str
    boot_nonce: str
    token: str = ""
    """The newest identity token for these keys."""
    accepted: bool = False
    """The scheduler knows our keys: it has sent us something. Until then each word of the VM itself
    introduces us."""
    _control: ControlVerifier = field(init=False)
    _public: WorkerPublicKeys = field(init=False)
    _prover: HeartbeatProver = field(init=False)
    _signed: OrderedDict[tuple[str, str], float] = field(default_factory=OrderedDict)
    """(lease, status) → when the bus confirmed it with a signature."""
    _in_flight: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._public = self.keys.public
        self._prover = HeartbeatProver(self.keys, self.scheduler[0], self.boot_nonce)
        self._control = ControlVerifier(self.keys, self.scheduler, self.vm_name, self.boot_nonce)

    @property
    def audience(self) -> str:
        return self._public.audience

    def messages(self, heartbeats: Sequence[Heartbeat], now: float) -> list[OutMessage]:
        """The heartbeats with their proofs, in one batch. `now`: monotonic."""
        self._in_flight = [
            _key(heartbeat)
            for heartbeat in heartbeats
            if self._needs_signature(heartbeat, now) and not self._introduces(heartbeat)
        ]
        return [self._message(heartbeat, now) for heartbeat in heartbeats]

    def confirmed(self, now: float) -> None:
        """The bus has that batch: what it says need not be signed again soon."""
        for key in self._in_flight:
            self._signed[key] = now
            self._signed.move_to_end(key)
        while len(self._signed) > SIGNED_MAX:
            self._signed.popitem(last=False)

    def take(self, message: InMessage) -> Control | None:
        """What the scheduler says, opened; None: it was taken before. BadProof, NotForUs,
        BadMessage: it changes nothing."""
        opened = self._control.check(message)
        if opened is None:
            return None
        self.accepted = True
        return decode_control(opened)

    def _message(self, heartbeat: Heartbeat, now: float) -> OutMessage:
        if self._introduces(heartbeat):
            introduction = Introduction(self._public, self.token)
            heartbeat = replace(heartbeat, introduction=introduction)
        message = encode_heartbeat(heartbeat, self.names)
        if self._needs_signature(heartbeat, now):
            return self._prover.signed(message)
        return self._prover.authenticated(message)

    def _introduces(self, heartbeat: Heartbeat) -> bool:
        return not self.accepted and heartbeat.lease_id is None

    def _needs_signature(self, heartbeat: Heartbeat, now: float) -> bool:
        if heartbeat.lease_id is not None and heartbeat.status in FINAL_WORDS:
            return True
        faulty = any(gpu.fault or gpu.ecc_errors for gpu in heartbeat.readings.gpus)
        if faulty or self._introduces(heartbeat):
            return True
        signed_at = self._signed.get(_key(heartbeat))
        return signed_at is None or now - signed_at >= SIGN_AGAIN_S


def _key(heartbeat: Heartbeat) -> tuple[str, str]:
    return heartbeat.lease_id or "", str(heartbeat.status)
