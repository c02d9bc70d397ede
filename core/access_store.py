"""The port behind which keys and grants are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from core.access import Grant
from core.api_keys import ApiKey
from core.audit_log import AuditEntry

KEYS_MAX = 10_000
GRANTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key with the grants of its principal."""

    key: ApiKey
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class NewSecret:
    """Of a key that is rotated: as the hash of the secret, and how long it opens."""

    key_id: str
    hash: bytes
    expires_at: datetime | None = None


class AccessStore(Protocol):
    """Every call may raise StoreDown. What changes something writes its row of the audit log in
    the same transaction."""

    async def key(self, key_id: str) -> KnownKey | None:
        """The key, also one that was revoked; None: there is none."""
        ...

    async def keys(self, size: int, after: str | None) -> Sequence[KnownKey]:
        """A page of all keys by id, behind the id `after`."""
        ...

    async def add_key(
        self, key: ApiKey, grants: Sequence[Grant], audited: AuditEntry | None = None
    ) -> None:
        """Both or none. Conflict: the id exists. A repeat of the same key changes nothing."""
        ...

    async def rotate_key(self, new: NewSecret, audited: AuditEntry | None = None) -> ApiKey:
        """The old secret opens nothing any more. NotFound; Conflict: it was revoked."""
        ...

    async def revoke_key(
        self, key_id: str, at: datetime, audited: AuditEntry | None = None
    ) -> ApiKey:
        """Idempotent: the first revocation counts. NotFound."""
        ...

    async def used(self, key_ids: Sequence[str], at: datetime) -> None:
        """Remember the last use of these keys."""
        ...

    async def grants(self, principal: str | None = None) -> Sequence[Grant]:
        """Of one principal, or of everybody, in order."""
        ...

    async def grants_of(self, principals: Sequence[str]) -> Sequence[Grant]:
        """Of these principals, in order."""
        ...

    async def add_grant(self, grant: Grant, audited: AuditEntry | None = None) -> bool:
        """False: it was there already."""
        ...

    async def remove_grant(self, grant: Grant, audited: AuditEntry | None = None) -> bool:
        """False: there was none."""
        ...
