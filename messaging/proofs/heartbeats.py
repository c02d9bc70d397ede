"""Proofs on heartbeats: a signature, or a MAC under a key that worker and scheduler agree on.

The body is what is proven: it holds the VM's name, its boot nonce and the sequence number. The key
of the MAC belongs to one worker key, one boot and one scheduler key, and every replica can derive
it from what is stored of the VM.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from core.messages import OutMessage
from core.worker_identity import WorkerPublicKeys
from messaging.proofs.keys import SchedulerKey, SchedulerPublicKey, WorkerKeys
from messaging.proofs.sealing import derive
from messaging.proofs.texts import BadKey, from_text, to_text

PROOF = "proof"
"""The attribute that holds it."""
PROOF_CHARS_MAX = 512
_SIGNED, _MAC = "s1", "m1"
_MAC_PREFIX = f"{_MAC}."
_SIGNATURE_CONTEXT = b"zen heartbeat signature 1\0"
_MAC_CONTEXT = b"zen heartbeat mac 1\0"


class ProofKind(StrEnum):
    """How strongly a heartbeat is proven."""

    SIGNED = "signed"
    MAC = "mac"


class ProofFault(StrEnum):
    """What is wrong with a proof."""

    MISSING = "no_proof"
    UNKNOWN_KIND = "unknown_proof"
    UNKNOWN_KEY = "unknown_key"
    WRONG_MAC = "wrong_mac"
    WRONG_SIGNATURE = "wrong_signature"
    OTHER_BOOT = "other_boot"
    NO_NUMBER = "no_number"
    NOT_OPENED = "not_opened"


class BadProof(ValueError):
    """It proves nothing, and changes nothing."""

    def __init__(self, fault: ProofFault) -> None:
        self.fault = fault
        super().__init__(str(fault))


def shows_life_alone(proof: str) -> bool:
    """Whether a heartbeat with this proof can change no state: it carries a MAC, right or wrong."""
    return proof.startswith(_MAC_PREFIX)


def _mac_key(shared: bytes, worker: bytes, scheduler: bytes, boot_nonce: str) -> bytes:
    return derive(shared, _MAC_CONTEXT + worker + scheduler + boot_nonce.encode())


@dataclass(slots=True)
class HeartbeatProver:
    """The worker's side, for one boot."""

    keys: WorkerKeys
    scheduler: SchedulerPublicKey
    boot_nonce: str
    _mac: bytes = field(init=False, repr=False)
    _prefix: str = field(init=False)

    def __post_init__(self) -> None:
        shared = self.keys.sealing.exchange(self.scheduler.exchange)
        ours = self.keys.public.sealing
        self._mac = _mac_key(shared, ours, self.scheduler.sealing, self.boot_nonce)
        self._prefix = f"{_MAC_PREFIX}{self.scheduler.key_id}."

    def signed(self, message: OutMessage) -> OutMessage:
        signature = self.keys.signing.sign(_SIGNATURE_CONTEXT + message.body)
        return _with(message, f"{_SIGNED}.{to_text(signature)}")

    def authenticated(self, message: OutMessage) -> OutMessage:
        digest = hmac.digest(self._mac, message.body, "sha256")
        return _with(message, self._prefix + to_text(digest))


def _with(message: OutMessage, proof: str) -> OutMessage:
    return replace(message, attributes={**message.attributes, PROOF: proof})


@dataclass(frozen=True, slots=True)
class HeartbeatVerifier:
    """The scheduler's side for one boot of one worker: built once, asked for each heartbeat. There
    are as many as VMs: what only a signature needs is made when one comes."""

    signing: bytes
    macs: dict[str, bytes] = field(repr=False)
    """Scheduler key id → the key agreed under it."""

    @classmethod
    def of(
        cls, public: WorkerPublicKeys, boot_nonce: str, keys: tuple[SchedulerKey, ...]
    ) -> HeartbeatVerifier:
        """BadKey if what the worker calls its keys are none."""
        macs = {}
        try:
            Ed25519PublicKey.from_public_bytes(public.signing)
            theirs = X25519PublicKey.from_public_bytes(public.sealing)
            for key in keys:
                ours = key.public
                shared = key.sealing.exchange(theirs)
                macs[ours.key_id] = _mac_key(shared, public.sealing, ours.sealing, boot_nonce)
        except ValueError as error:
            raise BadKey("the worker's keys are none") from error
        return cls(public.signing, macs)

    def check(self, body: bytes, proof: str) -> ProofKind:
        """What the proof proves about the body, or BadProof."""
        kind, _, rest = proof.partition(".")
        if kind == _MAC:
            return self._check_mac(body, rest)
        if kind == _SIGNED:
            signing = Ed25519PublicKey.from_public_bytes(self.signing)
            check_signature(signing, body, rest)
            return ProofKind.SIGNED
        raise BadProof(ProofFault.UNKNOWN_KIND if proof else ProofFault.MISSING)

    def _check_mac(self, body: bytes, rest: str) -> ProofKind:
        key_id, _, text = rest.partition(".")
        key = self.macs.get(key_id)
        if key is None:
            raise BadProof(ProofFault.UNKNOWN_KEY)
        digest = hmac.digest(key, body, "sha256")
        if not hmac.compare_digest(to_text(digest).encode(), text.encode()):
            raise BadProof(ProofFault.WRONG_MAC)
        return ProofKind.MAC


def check_signature(signing: Ed25519PublicKey, body: bytes, text: str) -> None:
    """Whether the holder of that key signed the heartbeat, or BadProof."""
    try:
        signing.verify(from_text(text), _SIGNATURE_CONTEXT + body)
    except (BadKey, InvalidSignature):
        raise BadProof(ProofFault.WRONG_SIGNATURE) from None


def check_introduction(public: WorkerPublicKeys, body: bytes, proof: str) -> None:
    """Whether the heartbeat is signed with the keys that it brings, or BadProof. BadKey if they are
    none."""
    kind, _, text = proof.partition(".")
    if kind != _SIGNED:
        raise BadProof(ProofFault.UNKNOWN_KIND if proof else ProofFault.MISSING)
    try:
        signing = Ed25519PublicKey.from_public_bytes(public.signing)
    except ValueError as error:
        raise BadKey("the worker's keys are none") from error
    check_signature(signing, body, text)
