"""core.audit_store.AuditLog over the in-memory tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.audit_log import AuditLink, AuditRow, links_for
from core.audit_store import PAGE_MAX, AuditFilter
from sim.memory.store import MemoryStore


class MemoryAuditLog:
    """Through a door of the store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def rows(self, where: AuditFilter, size: int, before: int | None) -> Sequence[AuditRow]:
        found = [
            row
            for row in reversed(await self._all())
            if (before is None or row.seq < before)
            and where.principal in (None, row.entry.actor.principal)
            and where.action in (None, row.entry.action)
            and where.target in (None, row.entry.target)
            and row.entry.tenant_id in where.tenants
        ]
        return found[: _bounded(size)]

    async def chain(self, after: int, size: int) -> Sequence[AuditRow]:
        linked = {row.link.number: row for row in await self._all() if row.link is not None}
        numbers = sorted(number for number in linked if number > after)
        return [linked[number] for number in numbers[: _bounded(size)]]

    async def unlinked(self, size: int) -> Sequence[AuditRow]:
        return [row for row in await self._all() if row.link is None][: _bounded(size)]

    async def head(self) -> AuditLink | None:
        links = [row.link for row in await self._all() if row.link is not None]
        return max(links, key=lambda link: link.number, default=None)

    async def link(self, size: int) -> int:
        made = links_for(await self.unlinked(size), await self.head())
        log = self._store.tables.audit_log
        for seq, link in made:
            log[seq - 1] = replace(log[seq - 1], link=link)
        return len(made)

    async def _all(self) -> list[AuditRow]:
        await self._store.reach()
        return self._store.tables.audit_log


def _bounded(size: int) -> int:
    return max(1, min(size, PAGE_MAX))
