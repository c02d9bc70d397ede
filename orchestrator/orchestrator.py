"""ClusterOrchestrator: all clusters. One that fails never stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from core.changes import View
from core.errors import StoreDown, TermPassed, ZenError
from core.ports import Clock
from core.timers import Timers
from orchestrator.manager import ClusterManager, busy_clusters

log = structlog.get_logger("orchestrator")
# Heartbeats wake the loop many times a second; the cloud does not change that fast.
ROUND_MIN_S = 0.2


class ClusterOrchestrator:
    """Runs each manager in a task of its own, at most once at a time."""

    def __init__(
        self, managers: Mapping[str, ClusterManager], timers: Timers, clock: Clock
    ) -> None:
        self._managers = managers
        self._timers = timers
        self._clock = clock
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ran_at: dict[str, float] = {}
        self._closed = False

    def poke(self, view: View) -> None:
        """Start a round for every cluster that is due. Returns at once: cloud calls take
        seconds, and a job on a warm VM must not wait for them."""
        busy = busy_clusters(view)
        for name in self._managers:
            pace_s = ROUND_MIN_S if name in busy else self._timers.observe_idle_s
            if self._is_due(name, pace_s):
                self._start(name)

    async def close(self) -> None:
        """Stop all rounds; what was written down is repeated by the next leader."""
        self._closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_due(self, name: str, pace_s: float) -> bool:
        last = self._ran_at.get(name)
        return last is None or self._clock.monotonic() - last >= pace_s

    def _start(self, name: str) -> None:
        if self._closed or name in self._running:
            return
        self._running[name] = asyncio.create_task(self._round(name), name=f"cluster-{name}")

    async def _round(self, name: str) -> None:
        try:
            await self._managers[name].reconcile()
        except (TermPassed, StoreDown) as error:
            log.info("round given up", cluster=name, why=str(error))
        except ZenError as error:
            log.warning("round failed", cluster=name, why=str(error))
        except Exception:
            # A fault in one cluster's round must not take the others down; it is logged whole.
            log.exception("round crashed", cluster=name)
        finally:
            self._ran_at[name] = self._clock.monotonic()
            self._running.pop(name, None)
