"""Who may look at the database when: snapshots are taken one at a time, and a task that waits for
one is content with any that began after it asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from core.changes import Snapshot
from core.errors import StoreDown


class Looks:
    """One line: nobody else looks through the same eyes meanwhile. Twenty clusters that wait for it
    are served at once."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = asyncio.Lock()
        self._begun = 0
        self._last: tuple[int, Snapshot] | None = None

    async def share(self, look: Callable[[], Awaitable[Snapshot]]) -> Snapshot:
        """A snapshot that was begun after this call."""
        asked = self._begun
        async with self.alone():
            if self._last is None or self._last[0] <= asked:
                self._begun += 1
                self._last = None
                self._last = (self._begun, await look())
            return self._last[1]

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Until left; StoreDown if the one before does not come to an end."""
        try:
            async with asyncio.timeout(self._wait_s):
                await self._lock.acquire()
        except TimeoutError as fault:
            raise StoreDown("the database does not answer: others wait for it already") from fault
        try:
            yield
        finally:
            self._lock.release()
