"""Writes the head of the audit log's chain where the service cannot change it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from core.audit_anchors import ANCHOR_BYTES_MAX, FILE, AuditAnchor, anchor_of, anchor_text
from core.audit_store import AuditLog
from core.errors import Conflict, ZenError
from core.ports import Clock
from stores.base import ObjectStore

log = structlog.get_logger("audit")
ROOT = "audit-anchors"
DAYS_MAX = 400
"""Anchors of so many days are compared, the last one of each: a link holds all before it."""


class AuditAnchors:
    """Objects that are written once, in a bucket that keeps them (a retention policy)."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def write(self, anchor: AuditAnchor) -> bool:
        """False: it is there already. Conflict: another head with its number is; never over it."""
        key = f"{ROOT}/{anchor.key}"
        text = await self._store.get(key, 0, ANCHOR_BYTES_MAX)
        if text is None:
            await self._store.put(key, anchor_text(anchor))
            return True
        known = anchor_of(text)
        if known is None or known.head != anchor.head:
            raise Conflict(
                f"the audit log was written anew: {key} holds another hash of link "
                f"{anchor.head.number}; run zen audit verify --anchors"
            )
        return False

    async def read(self) -> Sequence[AuditAnchor]:
        """The last anchor of each day, the oldest first. Conflict: one cannot be read."""
        found = []
        for day in (await self._store.numbers(ROOT))[-DAYS_MAX:]:
            anchor = await self._last_of(day)
            if anchor is not None:
                found.append(anchor)
        return found

    async def _last_of(self, day: int) -> AuditAnchor | None:
        for number in reversed(await self._store.numbers(f"{ROOT}/{day}")):
            key = f"{ROOT}/{day}/{number}/{FILE}"
            text = await self._store.get(key, 0, ANCHOR_BYTES_MAX)
            if text is None:
                continue  # it is being written
            anchor = anchor_of(text)
            if anchor is None:
                raise Conflict(f"the anchor {key} cannot be read: look at it")
            return anchor
        return None


async def anchor_for_ever(
    audit_log: AuditLog, anchors: AuditAnchors, clock: Clock, every_s: float
) -> None:
    """The leader's task. A store that is away is tried again; nothing waits for it."""
    while True:
        try:
            head = await audit_log.head()
            if head is not None:
                await anchors.write(AuditAnchor(head, clock.now()))
        except ZenError as error:
            log.error("audit log not anchored, trying again", why=str(error))
        await asyncio.sleep(every_s)
