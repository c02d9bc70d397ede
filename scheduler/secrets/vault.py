"""Seals secrets for the database: who reads the tables, or a backup of them, learns no value.

Each secret has a key of its own, derived from one of the vault's keys and 32 random bytes that
stand before the sealed value; it seals once, so that its nonce may be fixed. Tenant and name are
bound to it: a value that is copied to another tenant's row does not open there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from core.errors import Conflict
from scheduler.secrets.key_file import KEY_BYTES

_NONCE = bytes(12)
_CONTEXT = b"zen secret 1\0"


class KeyMissing(Conflict):
    """Sealed with a key that is not in the key file: put it back, or set the secret again."""


class SealBroken(Conflict):
    """The row was changed by somebody without the key: set the secret again."""


class SecretVault:
    """The first key seals, all of them open."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        assert keys, "a vault has a key"
        self._keys = {_id(key): key for key in reversed(keys)}
        self.key_id = _id(keys[0])

    def seal(self, tenant_id: str, name: str, value: bytes, seed: bytes) -> bytes:
        """`seed`: 32 bytes that were never used before."""
        key = _derived(self._keys[self.key_id], seed)
        return seed + ChaCha20Poly1305(key).encrypt(_NONCE, value, _bound(tenant_id, name))

    def unseal(self, tenant_id: str, name: str, key_id: str, sealed: bytes) -> bytes:
        """The value; KeyMissing, SealBroken."""
        secret = f"secret {name} of tenant {tenant_id}"
        if key_id not in self._keys:
            raise KeyMissing(f"{secret} is sealed with key {key_id}, which the key file has not")
        seed, rest = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
        try:
            key = _derived(self._keys[key_id], seed)
            return ChaCha20Poly1305(key).decrypt(_NONCE, rest, _bound(tenant_id, name))
        except (InvalidTag, ValueError):
            raise SealBroken(f"{secret} was changed in the database: set it again") from None


def _id(key: bytes) -> str:
    return hashlib.sha256(_CONTEXT + key).hexdigest()[:12]


def _derived(key: bytes, seed: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=seed, info=_CONTEXT).derive(key)


def _bound(tenant_id: str, name: str) -> bytes:
    """Lengths stand before values, so that no two pairs are alike."""
    parts = (tenant_id.encode(), name.encode())
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
