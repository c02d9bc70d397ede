"""API keys: `zen_<id>_<secret>`. Only the hash of the secret is stored."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime

from core.access import Scope
from core.key_form import KEY

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored: nobody can call with what stands here."""

    key_id: str
    hash: bytes
    """SHA-256 of the secret."""
    name: str
    user_id: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    """None: never."""
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    scopes: frozenset[Scope] = frozenset()

    @property
    def principal(self) -> str:
        """As grants name it."""
        return principal_of(self.key_id)

    def refusal(self, now: datetime) -> str | None:
        """Why the key opens nothing any more; None if it does."""
        if self.revoked_at is not None:
            return "the key was revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return f"the key has expired at {self.expires_at:%Y-%m-%d %H:%M} UTC"
        return None


def principal_of(key_id: str) -> str:
    """The principal that a key is."""
    return f"key:{key_id}"


def key_text(key_id: str, secret: bytes) -> str:
    """What its owner keeps. Shown once."""
    assert len(secret) == SECRET_BYTES
    return f"zen_{key_id}_{secret.hex()}"


def secret_hash(text: str) -> bytes:
    """Of the hexadecimal text of a secret. A random secret of 256 bits needs no slow hash."""
    return hashlib.sha256(text.encode()).digest()


def parse_key(text: str) -> tuple[str, bytes] | None:
    """(id, hash of the secret), or None if this is no key."""
    found = KEY.match(text)
    return (found[1], secret_hash(found[2])) if found else None


def opens(key: ApiKey, presented: bytes) -> bool:
    """Whether the presented hash is the key's, in constant time."""
    return hmac.compare_digest(key.hash, presented)
