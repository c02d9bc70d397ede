"""Bytes for one worker's eyes: X25519 with a key of the moment, HKDF, ChaCha20-Poly1305."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from core.worker_identity import KEY_BYTES

_CONTEXT = b"zen sealed 1\0"
# Each key seals once, so that its one nonce may be fixed.
_NONCE = b"\0" * 12


class NotForUs(ValueError):
    """Sealed for another key, or changed on its way."""


def derive(shared: bytes, info: bytes) -> bytes:
    """A key of 32 bytes from what two X25519 keys agree on."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared)


def seal(plain: bytes, recipient: bytes, seed: bytes, bound: bytes) -> bytes:
    """`plain` for the holder of that X25519 key. `seed`: 32 bytes that were never used before.
    `bound`: what the receiver must know as well, or it cannot be opened."""
    moment = X25519PrivateKey.from_private_bytes(seed)
    ours = moment.public_key().public_bytes_raw()
    shared = moment.exchange(X25519PublicKey.from_public_bytes(recipient))
    key = derive(shared, _CONTEXT + ours + recipient)
    return ours + ChaCha20Poly1305(key).encrypt(_NONCE, plain, bound)


def unseal(sealed: bytes, recipient: X25519PrivateKey, bound: bytes) -> bytes:
    """What was sealed for us, or NotForUs."""
    theirs, rest = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
    try:
        shared = recipient.exchange(X25519PublicKey.from_public_bytes(theirs))
        key = derive(shared, _CONTEXT + theirs + recipient.public_key().public_bytes_raw())
        return ChaCha20Poly1305(key).decrypt(_NONCE, rest, bound)
    except (InvalidTag, ValueError) as error:
        raise NotForUs("sealed for another worker, or changed on its way") from error
