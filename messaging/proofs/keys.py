"""Key pairs of workers and of the scheduler, and their texts. Seeds are arguments: 32 bytes of
chance each, or of a simulation's seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from core.worker_identity import KEY_BYTES, WorkerPublicKeys
from messaging.proofs.texts import BadKey, from_text, to_text

KEY_ID_CHARS = 12
SCHEDULER_KEYS_MAX = 4
"""The key in use, and keys that are on their way in or out."""


@dataclass(frozen=True, slots=True)
class _PrivateKeys:
    signing: Ed25519PrivateKey = field(repr=False)
    sealing: X25519PrivateKey = field(repr=False)

    @classmethod
    def from_seeds(cls, signing: bytes, sealing: bytes) -> Self:
        return cls(
            Ed25519PrivateKey.from_private_bytes(signing),
            X25519PrivateKey.from_private_bytes(sealing),
        )

    def _public_bytes(self) -> tuple[bytes, bytes]:
        signing, sealing = self.signing.public_key(), self.sealing.public_key()
        return signing.public_bytes_raw(), sealing.public_bytes_raw()


class WorkerKeys(_PrivateKeys):
    """The private halves of one boot. They never leave the agent's memory."""

    __slots__ = ()

    @property
    def public(self) -> WorkerPublicKeys:
        signing, sealing = self._public_bytes()
        return WorkerPublicKeys(signing, sealing)


@dataclass(frozen=True, slots=True)
class SchedulerPublicKey:
    """What workers know of a scheduler's key: enough to check its signatures, and to agree on a key
    for their heartbeats."""

    signing: bytes
    sealing: bytes

    @property
    def key_id(self) -> str:
        """Short, and of no secret: it tells keys apart while they are rotated."""
        return to_text(hashlib.sha256(self.signing + self.sealing).digest())[:KEY_ID_CHARS]

    @property
    def text(self) -> str:
        return to_text(self.signing + self.sealing)

    @classmethod
    def parse(cls, text: str) -> SchedulerPublicKey:
        both = from_text(text, 2 * KEY_BYTES)
        return cls(both[:KEY_BYTES], both[KEY_BYTES:])

    @property
    def verifier(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.signing)

    @property
    def exchange(self) -> X25519PublicKey:
        return X25519PublicKey.from_public_bytes(self.sealing)


class SchedulerKey(_PrivateKeys):
    """A deployment's private key, the same on every replica."""

    __slots__ = ()

    @property
    def public(self) -> SchedulerPublicKey:
        signing, sealing = self._public_bytes()
        return SchedulerPublicKey(signing, sealing)

    @property
    def text(self) -> str:
        """Private: for the key file alone."""
        return to_text(self.signing.private_bytes_raw() + self.sealing.private_bytes_raw())

    @classmethod
    def parse(cls, text: str) -> SchedulerKey:
        both = from_text(text, 2 * KEY_BYTES)
        return cls.from_seeds(both[:KEY_BYTES], both[KEY_BYTES:])


def parse_public_keys(text: str) -> tuple[SchedulerPublicKey, ...]:
    """The keys that an instance template names, with spaces between them; the first is the one
    that heartbeats are for. BadKey if there is none, or too many."""
    words = text.split()
    if not 0 < len(words) <= SCHEDULER_KEYS_MAX:
        raise BadKey(f"{len(words)} keys, expected 1 to {SCHEDULER_KEYS_MAX}")
    return tuple(SchedulerPublicKey.parse(word) for word in words)
