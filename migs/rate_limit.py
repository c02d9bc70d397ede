"""How many Compute calls we allow ourselves: Google's quota is per project and minute, and
a client that exceeds it is refused everything, also the deletes that save money."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from core.errors import CloudBusy
from core.ports import Clock

Place = asyncio.Future[None]
Lanes = dict[str, deque[Place]]
"""Who waits, by lane; the lane whose turn it is comes first."""


class CallBudget:
    """A token bucket with a lane for each group. When calls must wait, the lanes take turns, so
    one that asks without end waits for itself alone; urgent calls (deletes) go before all others.
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
        """When the bucket would be full again; each call moves it on by one interval."""
        self._urgent: Lanes = {}
        self._lanes: Lanes = {}
        self._serving: asyncio.Task[None] | None = None

    async def take(self, wait_max_s: float, lane: str = "", *, urgent: bool = False) -> None:
        """Wait for a place; CloudBusy at once if it would take longer than `wait_max_s`."""
        if not self._urgent and not self._lanes and self._next_s() <= 0:
            self._spend()
            return
        lanes = self._urgent if urgent else self._lanes
        wait_s = self._next_s() + self._ahead(lanes, lane) * self._interval_s
        if wait_s > wait_max_s:
            raise CloudBusy(
                f"the budget of Compute calls is spent: the next place is free in {wait_s:.1f} s"
            )
        place: Place = asyncio.get_running_loop().create_future()
        lanes.setdefault(lane, deque()).append(place)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="compute-budget")
        try:
            await place
        finally:
            self._forget(lanes, lane, place)

    def _ahead(self, lanes: Lanes, lane: str) -> int:
        """How many go first if nobody else comes: each lane as often as it is served before
        ours."""
        own = len(lanes.get(lane, ()))
        turns = sum(min(len(waiting), own + 1) for key, waiting in lanes.items() if key != lane)
        before_all = 0 if lanes is self._urgent else sum(map(len, self._urgent.values()))
        return own + turns + before_all

    def _next_s(self) -> float:
        now = self._clock.monotonic()
        return max(self._full_at, now) + self._interval_s - self._burst_s - now

    def _spend(self) -> None:
        self._full_at = max(self._full_at, self._clock.monotonic()) + self._interval_s

    async def _serve(self) -> None:
        while self._urgent or self._lanes:
            wait_s = self._next_s()
            if wait_s > 0:
                await self._sleep(wait_s)
                continue
            place = self._next_place()
            if not place.done():  # else the caller stopped waiting in this very moment
                self._spend()
                place.set_result(None)

    def _next_place(self) -> Place:
        """The first of the lane whose turn it is; the lane goes to the end of the row."""
        lanes = self._urgent or self._lanes
        lane = next(iter(lanes))
        waiting = lanes.pop(lane)
        place = waiting.popleft()
        if waiting:
            lanes[lane] = waiting
        return place

    def _forget(self, lanes: Lanes, lane: str, place: Place) -> None:
        """Also a caller that stopped waiting must leave its lane; one that was served has left
        it."""
        waiting = lanes.get(lane)
        if waiting is not None and place in waiting:
            waiting.remove(place)
            if not waiting:
                del lanes[lane]
