"""How many Compute calls we allow ourselves: Google's quota is per project and minute, and
whoever exceeds it is refused everything, also the deletes that save money."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from core.errors import CloudBusy
from core.ports import Clock


class CallBudget:
    """A token bucket that hands out places in the order they were asked for.

    It keeps one number, the time at which the bucket would be full again; each call moves it
    on by one interval. So there is no queue to overflow and nobody can overtake.
    """

    def __init__(
        self,
        calls_per_minute: int,
        clock: Clock,
        *,
        burst: int | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        assert calls_per_minute > 0, "a budget of no calls would wait for ever"
        self._interval_s = 60.0 / calls_per_minute
        # A tenth of the minute's calls at once: a loop that wakes up may look at every group.
        calls = max(1, calls_per_minute // 10) if burst is None else burst
        self._burst_s = calls * self._interval_s
        self._clock = clock
        self._sleep = sleep
        self._full_at = clock.monotonic()

    async def take(self, wait_max_s: float) -> None:
        """Wait for a place; CloudBusy at once if it would take longer than `wait_max_s`."""
        now = self._clock.monotonic()
        full_at = max(self._full_at, now) + self._interval_s
        wait_s = full_at - self._burst_s - now
        if wait_s > wait_max_s:
            raise CloudBusy(
                f"the budget of Compute calls is spent: the next place is free in {wait_s:.1f} s"
            )
        self._full_at = full_at
        if wait_s > 0:
            await self._sleep(wait_s)
