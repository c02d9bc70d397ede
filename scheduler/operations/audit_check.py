"""Checks the whole audit log: the chain, and what was anchored of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.audit_anchors import AuditAnchor, anchor_faults
from core.audit_log import AuditFault, AuditLink, faults_in, unlinked_fault
from core.audit_store import AuditLog

BATCH = 1000


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What was found."""

    rows: int
    head: AuditLink | None
    faults: tuple[AuditFault, ...]
    unlinked: AuditFault | None
    """Rows that are not protected yet."""
    anchors: int = 0
    """How many were compared."""


async def verify_audit_log(log: AuditLog, anchors: Sequence[AuditAnchor] = ()) -> AuditVerdict:
    """Every fault that there is."""
    wanted = {anchor.head.number for anchor in anchors}
    found: dict[int, bytes] = {}
    faults: list[AuditFault] = []
    last: AuditLink | None = None
    count = 0
    while rows := await log.chain(last.number if last else 0, BATCH):
        faults += faults_in(rows, last)
        links = [row.link for row in rows if row.link is not None]
        found |= {link.number: link.hash for link in links if link.number in wanted}
        last, count = links[-1], count + len(rows)
    faults += anchor_faults(anchors, found, last.number if last else 0)
    waiting = unlinked_fault(await log.unlinked(BATCH))
    return AuditVerdict(count, last, tuple(faults), waiting, len(anchors))
