"""How often the leader prunes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from core.ports import Store
from core.retention import RetentionRules
from scheduler.operations.retention import AGAIN_S, BATCH, EVERY_S, prune_for_ever
from tests.builders import live

RULES = RetentionRules(outbox_days=2)


class Pruned:
    """Answers with what it is given, then ends the task."""

    def __init__(self, *counts: Mapping[str, int]) -> None:
        self.counts = list(counts)

    async def prune(self, rules: RetentionRules, batch: int) -> Mapping[str, int]:
        assert (rules, batch) == (RULES, BATCH)
        if not self.counts:
            raise asyncio.CancelledError
        return self.counts.pop(0)


async def test_full_bites_are_followed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bite a minute; right after a bite that was full comes the next, until one is not."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("scheduler.operations.retention.asyncio.sleep", sleep)
    store = Pruned({"outbox": 0}, {"outbox": BATCH, "vms": 1}, {"outbox": 7})
    with pytest.raises(asyncio.CancelledError):
        await prune_for_ever(cast("Store", store), live(retention=RULES))
    assert pauses == [EVERY_S, EVERY_S, AGAIN_S, EVERY_S]
