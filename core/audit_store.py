"""The port behind which the audit log is kept. Rows come with commits: see core/changes.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.access import EVERY_TENANT, Tenants
from core.audit_log import AuditLink, AuditRow

PAGE_MAX = 1000


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """None: no restriction."""

    principal: str | None = None
    action: str | None = None
    target: str | None = None
    tenants: Tenants = EVERY_TENANT


class AuditLog(Protocol):
    """Append-only. Every call may raise StoreDown."""

    async def rows(self, where: AuditFilter, size: int, before: int | None) -> Sequence[AuditRow]:
        """The newest rows first, older than the row `before`."""
        ...

    async def chain(self, after: int, size: int) -> Sequence[AuditRow]:
        """Linked rows by number, behind the number `after`."""
        ...

    async def unlinked(self, size: int) -> Sequence[AuditRow]:
        """Rows that have no link yet, the oldest first."""
        ...

    async def head(self) -> AuditLink | None:
        """The last link; None: there is none yet."""
        ...

    async def link(self, size: int) -> int:
        """Links at most `size` rows that have none. How many; two callers never link one twice."""
        ...
