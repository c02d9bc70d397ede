"""Group commit: submissions that wait together are written together.

There is no linger: while one write is on its way, the next ones gather. A single submission
pays for one commit; a burst of a thousand pays for a few.
"""

from __future__ import annotations

import asyncio

from core.changes import AtomicBatch
from core.errors import StoreDown
from core.ports import Store
from core.reasons import CommitRefusal

BATCH_MAX = 500
WAITING_MAX = 10_000

_Waiter = tuple[AtomicBatch, "asyncio.Future[CommitRefusal | None]"]


class GroupCommit:
    """Answers each caller after the commit that holds its atomic batch."""

    def __init__(
        self, store: Store, *, batch_max: int = BATCH_MAX, waiting_max: int = WAITING_MAX
    ) -> None:
        self._store = store
        self._batch_max = batch_max
        self._waiting_max = waiting_max
        self._waiting: list[_Waiter] = []
        self._flusher: asyncio.Task[None] | None = None

    async def submit(self, batch: AtomicBatch) -> CommitRefusal | None:
        """None if it was written, else the guard that refused it. StoreDown also when too many
        wait already: the caller should come again later."""
        if len(self._waiting) >= self._waiting_max:
            raise StoreDown(f"{self._waiting_max} submissions wait for the database already")
        future: asyncio.Future[CommitRefusal | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((batch, future))
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush(), name="group-commit")
        return await future

    async def close(self) -> None:
        """Writes what waits, then returns."""
        while self._flusher is not None:
            await asyncio.wait([self._flusher])

    async def _flush(self) -> None:
        try:
            while self._waiting:
                group = self._waiting[: self._batch_max]
                del self._waiting[: self._batch_max]
                await self._write(group)
        finally:
            self._flusher = None
            _fail(self._waiting, StoreDown("the service is shutting down"))
            self._waiting.clear()

    async def _write(self, group: list[_Waiter]) -> None:
        try:
            committed = await self._store.commit([batch for batch, _ in group], None)
        except asyncio.CancelledError:
            _fail(group, StoreDown("the service is shutting down"))
            raise
        except Exception as fault:
            _fail(group, fault)
            return
        for index, (_, future) in enumerate(group):
            if not future.done():
                future.set_result(committed.refusals.get(index))


def _fail(waiters: list[_Waiter], fault: Exception) -> None:
    """Every waiter hears of it: none may hang because another one failed."""
    for _, future in waiters:
        if not future.done():
            future.set_exception(fault)
