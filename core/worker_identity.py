"""Which instance a worker runs on, and the public keys that it made at boot.

A worker makes two key pairs at each boot: one to sign, one to seal for. Its identity token, issued
by the cloud for that instance alone, names the hash of both public keys as its audience. So the
token ties the keys to the instance, and is of no use to anybody who does not hold the private ones.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Protocol

from core.errors import ZenError

KEY_BYTES = 32
_AUDIENCE = b"zen worker keys 1\0"
AUDIENCE_PREFIX = "zen:"
"""Begins every audience: a token that was asked for another purpose never fits."""


@dataclass(frozen=True, slots=True)
class WorkerPublicKeys:
    """The public halves of the two pairs of one boot: Ed25519 to sign, X25519 to seal for."""

    signing: bytes
    sealing: bytes

    @property
    def audience(self) -> str:
        """For whom the identity token is issued: the hash of both keys."""
        digest = hashlib.sha256(_AUDIENCE + self.signing + self.sealing).digest()
        return AUDIENCE_PREFIX + base64.urlsafe_b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class ProvenKeys:
    """The keys of a worker whose identity token was checked, as they are stored with its VM."""

    public: WorkerPublicKeys
    issued_at: int
    """Of that token: keys of an earlier one never replace these."""

    @property
    def text(self) -> str:
        return f"{self.public.signing.hex()}:{self.public.sealing.hex()}:{self.issued_at}"

    @classmethod
    def parse(cls, text: str) -> ProvenKeys:
        signing, sealing, issued_at = text.split(":")
        public = WorkerPublicKeys(bytes.fromhex(signing), bytes.fromhex(sealing))
        return cls(public, int(issued_at))


@dataclass(frozen=True, slots=True)
class VmIdentity:
    """What a token proves: the instance that asked for it, in the cloud's words."""

    project: str
    zone: str
    """As in `us-central1-a`, without the path before it."""
    instance_id: str
    """The cloud's number of the instance, as text."""
    instance_name: str
    issued_at: int
    """When the issuer made the token, in seconds since 1970 on the issuer's clock (`iat`). Keys are
    replaced by keys of a later token alone, so that the READY of an earlier boot, sent again,
    changes nothing."""


@dataclass(frozen=True, slots=True)
class IdentityRefused:
    """The token proves nothing."""

    reason: str
    """For the log and for people; without the token itself."""


class IdentityUnsure(ZenError):
    """Whether the token is good cannot be told now (the issuer's keys cannot be had): ask again."""

    code = "identity_unsure"


class IdentityTokens(Protocol):
    """The check of the identity tokens of workers."""

    async def verify(self, token: str, audience: str) -> VmIdentity | IdentityRefused:
        """Checks issuer, signature, expiry and that the token was issued for `audience`. What it
        says is the caller's to compare with the VM's row. IdentityUnsure if it cannot be told;
        no other error, whatever the token is. May be asked often: it keeps the issuer's keys."""
        ...
