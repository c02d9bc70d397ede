"""The head of the audit log's chain, written once where nobody changes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.audit_anchors import AuditAnchor
from core.audit_log import AuditLink
from core.errors import Conflict
from scheduler.operations.audit_anchors import ROOT, AuditAnchors, anchor_for_ever
from sim.memory.audit_log import MemoryAuditLog
from sim.memory.store import MemoryStore
from stores.local import LocalStore
from tests.builders import HandClock, at
from tests.db.contract.audit import ENTRY

DAY_S = 86_400


def anchor(number: int, byte: int = 1, seconds: float = 0) -> AuditAnchor:
    return AuditAnchor(AuditLink(number, bytes([byte]) * 32), at(seconds))


async def test_an_anchor_is_written_once(tmp_path: Path) -> None:
    """A head that is there already stays; another one with its number is told, not written."""
    anchors = AuditAnchors(LocalStore(tmp_path))
    assert await anchors.write(anchor(1))
    assert not await anchors.write(anchor(1, seconds=5))
    with pytest.raises(Conflict, match="written anew"):
        await anchors.write(anchor(1, byte=2))
    assert await anchors.read() == [anchor(1)]


async def test_the_last_anchor_of_each_day_is_read(tmp_path: Path) -> None:
    """It holds all before it."""
    anchors = AuditAnchors(LocalStore(tmp_path))
    for made in (anchor(2), anchor(10, 2), anchor(11, 3, DAY_S)):
        await anchors.write(made)
    assert await anchors.read() == [anchor(10, 2), anchor(11, 3, DAY_S)]
    (tmp_path / ROOT / "20260102/11/head.json").write_bytes(b"{}")
    with pytest.raises(Conflict, match="cannot be read"):
        await anchors.read()


class Told(AuditAnchors):
    """Says when it has written."""

    def __init__(self, directory: Path) -> None:
        super().__init__(LocalStore(directory))
        self.wrote = asyncio.Event()

    async def write(self, anchor: AuditAnchor) -> bool:
        done = await super().write(anchor)
        self.wrote.set()
        return done


async def test_the_leader_anchors_the_head(tmp_path: Path) -> None:
    """As soon as it leads."""
    clock, anchors = HandClock(), Told(tmp_path)
    store = MemoryStore(clock)
    log = MemoryAuditLog(store)
    await store.commit([(ENTRY,), (ENTRY,)], None)
    await log.link(10)
    task = asyncio.create_task(anchor_for_ever(log, anchors, clock, 3600))
    await asyncio.wait_for(anchors.wrote.wait(), 20)
    task.cancel()
    assert [made.head.number for made in await anchors.read()] == [2]
