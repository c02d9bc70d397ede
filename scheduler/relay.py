"""Carries the outbox to the bus: at least once, in the order of the commits."""

from __future__ import annotations

import asyncio

import structlog

from core.errors import BusDown, StoreDown, ZenError
from core.ports import Bus, Store
from scheduler.leadership import Leadership

log = structlog.get_logger("relay")
BATCH = 500
PUBLISH_TIMEOUT_S = 10.0
RETRY_S = 1.0


class Relay:
    """Woken after each commit; sleeps while the outbox is empty."""

    def __init__(self, store: Store, bus: Bus, leadership: Leadership, idle_s: float) -> None:
        self._store = store
        self._bus = bus
        self._leadership = leadership
        self._idle_s = idle_s
        self._wake = asyncio.Event()

    def poke(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def run(self) -> None:
        """For ever, while we lead."""
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    await self._wake.wait()
            except TimeoutError:
                pass  # look anyway: a wake-up may have been lost with a former leader
            self._wake.clear()
            if self._leadership.leading:
                await self._drain()

    async def _drain(self) -> None:
        try:
            while await self.send_batch() == BATCH:
                pass
        except (BusDown, StoreDown) as error:
            log.warning("outbox kept, trying again", why=str(error))
            await asyncio.sleep(RETRY_S)
            self._wake.set()
        except ZenError as error:
            log.error("outbox cannot be sent", why=str(error))
            await asyncio.sleep(RETRY_S)

    async def send_batch(self) -> int:
        """Publish one batch; a crash between the two calls sends it twice, which is allowed."""
        rows = await self._store.outbox(BATCH)
        if rows:
            await self._bus.publish([row.message for row in rows], PUBLISH_TIMEOUT_S)
            await self._store.published([row.outbox_id for row in rows])
        return len(rows)
