"""Proofs on what the scheduler sends: signed for one VM, one boot and one number; starts are sealed
besides, so that nothing is learned from the topic.

The number is the message's place in the outbox. A worker takes each number once.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cryptography.exceptions import InvalidSignature

from core.messages import InMessage, OutboxRow, OutMessage
from core.worker_identity import KEY_BYTES
from messaging.errors import ContentRefused
from messaging.proofs.heartbeats import PROOF, BadProof, ProofFault
from messaging.proofs.keys import SchedulerKey, SchedulerPublicKey, WorkerKeys
from messaging.proofs.sealing import NotForUs, derive, seal, unseal
from messaging.proofs.texts import BadKey, from_text, to_text

SEAL_TO = "seal_to"
"""In the outbox alone: the X25519 key that a start is sealed for when it is sent."""
SEALED = "sealed"
SEALED_KINDS = frozenset({"start", "tokens"})
"""Kinds of messages that nobody but their VM may read."""
_SEALED_1 = "x1"
NUMBER = "number"
NUMBER_CHARS_MAX = 19
NUMBERS_KEPT = 1000
_SIGNED = "c1"
_CONTROL_CONTEXT = b"zen control 1"
_USERS_CONTEXT = b"zen users of jobs 1"
_CANARY_CONTEXT = b"zen canary 1\0"
_BOUND = ("vm_name", "kind", "boot_nonce", NUMBER, SEALED)


def _bound(attributes: Mapping[str, str], names: Sequence[str] = _BOUND) -> bytes:
    """Attributes in one spelling: lengths stand before values, so that no two lists are alike."""
    parts = [_CONTROL_CONTEXT]
    for name in names:
        value = attributes.get(name, "").encode()
        parts.append(len(value).to_bytes(4, "big") + value)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class SchedulerSigner:
    """The deployment's keys at work. While keys are rotated a message is signed with each, and a
    worker looks for the one that it knows."""

    keys: tuple[SchedulerKey, ...]
    user_secret: bytes = field(init=False, repr=False)
    """Draws the users of jobs (core/job_users.py)."""
    _named: tuple[tuple[str, SchedulerKey], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        named = tuple((key.public.key_id, key) for key in self.keys)
        object.__setattr__(self, "_named", named)
        # The oldest key, which stays while others come: jobs keep their users for longer.
        seed = self.keys[0].sealing.private_bytes_raw()
        object.__setattr__(self, "user_secret", derive(seed, _USERS_CONTEXT))

    def control(self, row: OutboxRow, seed: bytes) -> OutMessage:
        """A control message as it is published. ContentRefused: a start that nobody could open."""
        message = row.message
        attributes = {**message.attributes, NUMBER: str(row.outbox_id)}
        recipient = attributes.pop(SEAL_TO, "")
        body = message.body
        if attributes.get("kind") in SEALED_KINDS:
            attributes[SEALED] = _SEALED_1
            try:
                body = seal(body, from_text(recipient, KEY_BYTES), seed, _bound(attributes))
            except ValueError as error:
                raise ContentRefused(
                    f"{row.message.topic}: the VM has no key to seal for"
                ) from error
        attributes[PROOF] = self._sign(_bound(attributes) + body)
        return replace(message, body=body, attributes=attributes)

    def canary(self, message: OutMessage) -> OutMessage:
        proof = self._sign(_CANARY_CONTEXT + message.body)
        return replace(message, attributes={**message.attributes, PROOF: proof})

    def check_canary(self, message: InMessage) -> None:
        """Whether one of us sent it, or BadProof."""
        publics = {key_id: key.public for key_id, key in self._named}
        _check(publics, message.attributes.get(PROOF, ""), _CANARY_CONTEXT + message.body)

    def _sign(self, data: bytes) -> str:
        return " ".join(
            f"{_SIGNED}.{key_id}.{to_text(key.signing.sign(data))}" for key_id, key in self._named
        )


def _check(keys: Mapping[str, SchedulerPublicKey], proof: str, data: bytes) -> None:
    for word in proof.split(" "):
        kind, _, rest = word.partition(".")
        key_id, _, text = rest.partition(".")
        key = keys.get(key_id)
        if kind != _SIGNED or key is None:
            continue
        try:
            key.verifier.verify(from_text(text), data)
        except (BadKey, InvalidSignature):
            raise BadProof(ProofFault.WRONG_SIGNATURE) from None
        return
    raise BadProof(ProofFault.UNKNOWN_KEY if proof else ProofFault.MISSING)


def open_start(body: bytes, attributes: Mapping[str, str], keys: WorkerKeys) -> bytes:
    """What was sealed for the holder of these keys, or NotForUs."""
    return unseal(body, keys.sealing, _bound(attributes))


@dataclass(slots=True)
class Numbers:
    """The newest numbers that were taken. One that stands among them, or below all of a full list,
    was taken before."""

    kept: int = NUMBERS_KEPT
    _taken: list[int] = field(default_factory=list)
    _known: set[int] = field(default_factory=set)

    def take(self, number: int) -> bool:
        """Whether it is taken for the first time."""
        if number in self._known:
            return False
        if len(self._taken) >= self.kept:
            if number < self._taken[0]:
                return False
            self._known.discard(self._taken.pop(0))
        insort(self._taken, number)
        self._known.add(number)
        return True


@dataclass(slots=True)
class ControlVerifier:
    """The worker's side, for one boot."""

    keys: WorkerKeys
    scheduler: tuple[SchedulerPublicKey, ...]
    vm_name: str
    boot_nonce: str
    numbers: Numbers = field(default_factory=Numbers)

    def check(self, message: InMessage) -> InMessage | None:
        """The message as it was before it was sealed; None: it was taken before. BadProof: it
        changes nothing. NotForUs: it is another worker's, who shall have it."""
        attributes = message.attributes
        if attributes.get("vm_name") != self.vm_name:
            raise NotForUs("for another VM")
        publics = {key.key_id: key for key in self.scheduler}
        _check(publics, attributes.get(PROOF, ""), _bound(attributes) + message.body)
        if attributes.get("boot_nonce", "") not in ("", self.boot_nonce):
            raise BadProof(ProofFault.OTHER_BOOT)
        number = attributes.get(NUMBER, "")
        if not (number.isascii() and number.isdigit() and len(number) <= NUMBER_CHARS_MAX):
            raise BadProof(ProofFault.NO_NUMBER)
        body = message.body
        if attributes.get("kind") in SEALED_KINDS or attributes.get(SEALED):
            try:
                body = open_start(message.body, attributes, self.keys)
            except NotForUs as error:
                raise BadProof(ProofFault.NOT_OPENED) from error
        if not self.numbers.take(int(number)):
            return None
        return replace(message, body=body)
