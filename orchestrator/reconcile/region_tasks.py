"""What goes on in each region of a cluster: one thing at a time, and nobody waits long for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import structlog

from core.errors import ZenError

log = structlog.get_logger("orchestrator")
WAIT_MAX_S = 1.0
"""What a round waits for its regions. A region that takes longer goes on by itself, is left alone
until it ends, and what it says is used by the round after that."""


class Lanes:
    """The tasks of one cluster's regions."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._running: dict[str, asyncio.Task[None]] = {}
        self._begun: list[asyncio.Task[None]] = []

    def busy(self) -> frozenset[str]:
        """Regions with something under way."""
        return frozenset(region for region, task in self._running.items() if not task.done())

    def start(self, region: str, work: Coroutine[None, None, None]) -> None:
        """Begin; settle() waits for it. The region must not be busy: its calls keep their order."""
        assert region not in self.busy(), f"{region} is busy"
        task = asyncio.create_task(work, name=f"{self._cluster}-{region}")
        self._running[region] = task
        self._begun.append(task)

    async def settle(self) -> None:
        """Wait for what was begun, but no longer than our wait limit; raises what went wrong."""
        begun, self._begun = self._begun, []
        if not begun:
            return
        done, late = await asyncio.wait(begun, timeout=WAIT_MAX_S)
        for task in late:
            task.add_done_callback(self._ended_late)
        errors = [error for task in done if (error := task.exception()) is not None]
        if errors:
            raise errors[0]

    async def close(self) -> None:
        """Stop everything; what was written down is repeated by the next leader."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended_late(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, ZenError):
            log.info("a slow region's task was cancelled", task=task.get_name(), why=str(error))
        elif error is not None:
            log.error("a slow region's task crashed", task=task.get_name(), exc_info=error)
