"""Waits for NOTIFY on a connection of its own: a hint to look, never a promise.

Losing it costs speed, not truth: whoever waits also looks at their own interval.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import psycopg
import structlog

from db.writes import WAKE_CHANNEL

log = structlog.get_logger(__name__)

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 10.0


class Listener:
    """One dedicated autocommit connection outside the pool."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.connected = asyncio.Event()
        """Set while notifications can arrive."""

    async def open(self) -> None:
        """Starts listening in the background; returns at once, also when the database is away."""
        assert self._task is None, "already open"
        self._task = asyncio.create_task(self._run(), name="listener")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def wakeups(self) -> AsyncIterator[None]:
        """One item for any number of notifications since the last. Never raises for a database
        that is away; a fresh connection counts as a wake-up, because some may have been missed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            yield

    async def _run(self) -> None:
        pause_s = BACKOFF_FIRST_S
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError) as fault:
                if self.connected.is_set():
                    pause_s = BACKOFF_FIRST_S
                log.warning("listener_lost", fault=str(fault).strip(), retry_in_s=pause_s)
            self.connected.clear()
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
            self.connected.set()
            self._wake.set()
            async for _ in connection.notifies():
                self._wake.set()
