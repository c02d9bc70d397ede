"""The port behind which tenants' secrets are kept, sealed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from core.audit_log import AuditEntry

SECRETS_OF_TENANT_MAX = 1000


@dataclass(frozen=True, slots=True)
class SecretRow:
    """What everybody with the right may know of a secret."""

    tenant_id: str
    name: str
    version: int
    """Counts how often it was set."""
    key_id: str
    """Of the key that it is sealed with."""
    updated_at: datetime
    updated_by: str


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A secret as it is stored."""

    row: SecretRow
    sealed: bytes = field(repr=False)


class SecretStore(Protocol):
    """Every call may raise StoreDown. What changes something writes its row of the audit log in
    the same transaction."""

    async def secrets(self, tenant_id: str) -> Sequence[SecretRow]:
        """All of one tenant, by name."""
        ...

    async def secret(self, tenant_id: str, name: str) -> SealedSecret | None:
        """None: the tenant has no such secret."""
        ...

    async def put_secret(self, secret: SealedSecret, audited: AuditEntry | None = None) -> int:
        """The new version, whatever `secret` says. Conflict: the tenant has too many."""
        ...

    async def delete_secret(
        self, tenant_id: str, name: str, audited: AuditEntry | None = None
    ) -> bool:
        """False: there was none."""
        ...

    async def sealed_otherwise(self, key_id: str, size: int) -> Sequence[SealedSecret]:
        """At most so many secrets of all tenants that are sealed with another key."""
        ...

    async def reseal(self, secret: SealedSecret, audited: AuditEntry | None = None) -> bool:
        """The same value under another key. False: it was set anew or deleted meanwhile."""
        ...
