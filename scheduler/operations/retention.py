"""Keeps the tables small: while we lead, what is over for long enough is taken away."""

from __future__ import annotations

import asyncio

import structlog

from config.live import LiveSettings
from core.ports import Store

log = structlog.get_logger("retention")

EVERY_S = 60.0
AGAIN_S = 1.0
BATCH = 1000


async def prune_for_ever(store: Store, settings: LiveSettings) -> None:
    """One bite of each table a minute; a table that filled its bite gets the next one soon, so
    that what comes in a day also goes in a day."""
    pause_s = EVERY_S
    while True:
        await asyncio.sleep(pause_s)
        counts = await store.prune(settings.current.retention, BATCH)
        pause_s = AGAIN_S if max(counts.values(), default=0) >= BATCH else EVERY_S
        if any(counts.values()):
            log.info("pruned", **{table: count for table, count in counts.items() if count})
