"""Group commit: while one batch is being written, the next one gathers.

All publishes that wait share one transaction and one fsync, without a timer. Acknowledgements are
*lazy*: they wait for the next batch, at most LAZY_S; a crash in that time delivers them again,
which at-least-once allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import structlog

from localbus.changes import Change
from localbus.errors import Full, Unavailable

LAZY_S = 0.05
RETRY_S = 1.0
PENDING_MAX = 200_000

log = structlog.get_logger(__name__)


class ChangeStore(Protocol):
    """Where changes go."""

    def write(self, changes: Sequence[Change]) -> None:
        """All or nothing, on disk when it returns."""
        ...


@dataclass(slots=True, eq=False)
class _Entry:
    changes: Sequence[Change]
    # Runs once, in order, when the changes are on disk, even if nobody waits for them any more.
    then: Callable[[], None] | None
    waiter: asyncio.Future[None] | None


class JournalCommit:
    """Writes changes in the order they were handed in."""

    def __init__(self, store: ChangeStore) -> None:
        self._store = store
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="localbus-journal")
        self._pending: list[_Entry] = []
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False

    def lazily(self, changes: Sequence[Change]) -> None:
        """Written soon."""
        if not changes:
            return
        self._pending.append(_Entry(changes, None, None))
        if self._writing is None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LAZY_S, self._start)

    def submit(
        self, changes: Sequence[Change], then: Callable[[], None] | None = None
    ) -> asyncio.Future[None]:
        """Written now. The future fails with Unavailable when the disk refuses; the changes are
        kept and tried again all the same, so the outcome is then unknown to the caller."""
        if len(self._pending) > PENDING_MAX:
            raise Full(f"{len(self._pending)} writes wait for the disk, expected ≤ {PENDING_MAX}")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(_Entry(changes, then, waiter))
        if self._writing is None and not self._failing:
            self._start()
        elif self._failing:
            waiter.set_exception(Unavailable("the disk refuses writes; see the log"))
        return waiter

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is None and self._pending:
            self._writing = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                changes = [change for entry in batch for change in entry.changes]
                try:
                    await loop.run_in_executor(self._executor, self._store.write, changes)
                except Exception as error:  # whatever it is, those who wait must hear of it
                    self._refused(batch, error)
                    return
                self._failing = False
                for entry in batch:
                    _confirm(entry)
        finally:
            self._writing = None

    def _refused(self, batch: list[_Entry], error: Exception) -> None:
        log.error("journal_write_failed", error=str(error), entries=len(batch))
        self._failing = True
        for entry in batch + self._pending:
            if entry.waiter is not None and not entry.waiter.done():
                entry.waiter.set_exception(Unavailable(f"the disk refused the write: {error}"))
        self._pending = batch + self._pending
        self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._start)

    async def close(self) -> None:
        """Writes what waits, then ends the thread."""
        self._start()
        while self._writing is not None:
            await self._writing
            if self._failing:
                break
            self._start()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._executor.shutdown(wait=True)


def _confirm(entry: _Entry) -> None:
    if entry.then is not None:
        entry.then()
    if entry.waiter is not None and not entry.waiter.done():
        entry.waiter.set_result(None)
