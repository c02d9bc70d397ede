"""Waits for NOTIFY on a connection of its own: a hint to look, never a guarantee.

Losing it costs speed, not truth: a task that waits also looks at its own interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import psycopg
import structlog

from core.wakes import AT_ONCE, Wake, WakeBox
from db.writes import WAKE_CHANNEL

log = structlog.get_logger(__name__)

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 10.0


class Listener:
    """One dedicated autocommit connection outside the pool, for one reader."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._news = WakeBox()
        self._connected = False

    async def wakeups(self) -> AsyncGenerator[Wake, None]:
        """One item for any number of notifications since the last. Never raises for a database
        that is away; a fresh connection counts as a wake-up, because some may have been missed."""
        task = asyncio.create_task(self._run(), name="listener")
        try:
            while True:
                yield await self._news.take()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        pause_s = BACKOFF_FIRST_S
        while True:
            self._connected = False
            try:
                await self._listen()
            except (psycopg.Error, OSError) as fault:
                pause_s = BACKOFF_FIRST_S if self._connected else pause_s
                log.warning("listener_lost", fault=str(fault).strip(), retry_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, BACKOFF_MAX_S)

    async def _listen(self) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            connect_timeout=2,
            application_name="zen-listener",
            # A peer that vanished without a word is noticed within half a minute.
            keepalives_idle=15,
            keepalives_interval=5,
            keepalives_count=3,
        ) as connection:
            await connection.execute(f"LISTEN {WAKE_CHANNEL}")
            self._connected = True
            self._news.put(AT_ONCE)
            async for notification in connection.notifies():
                self._news.put(Wake.of_text(notification.payload))
