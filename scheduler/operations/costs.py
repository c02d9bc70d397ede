"""The leader's bookkeeping: settles the bills of VMs and watches the budgets of tenants, in a task
of its own, so that no cycle of the loop reads sums."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from config.live import LiveSettings
from core.cost import SettledBills, Spent
from core.ports import Clock
from core.tenants import TenantRow, budgets_of
from scheduler.operations.metrics import Metrics
from scheduler.queue.budgets import BudgetStatus, judge, unread

BUDGETS_S = 15.0
"""How far a budget may be overdrawn before new work is held: what is started in this time."""
SETTLE_S = 60.0
AGAIN_S = 1.0
BATCH = 200


class Books(Protocol):
    """What is asked of the store."""

    async def settle_costs(self, batch: int) -> SettledBills: ...
    async def spent(self) -> Mapping[str, Spent]: ...
    async def tenants(self) -> Sequence[TenantRow]: ...


class Bookkeeper:
    """Reads at its own pace; the loop asks it for the last standing."""

    def __init__(
        self,
        store: Books,
        settings: LiveSettings,
        metrics: Metrics,
        clock: Clock,
        on_change: Callable[[], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._on_change = on_change
        self._standing: BudgetStatus | None = None

    def standing(self) -> BudgetStatus:
        """As last read."""
        return self._standing or unread(self._settings.current.tenants)

    async def settle(self) -> None:
        """For ever, while we lead: a bite a minute, the next one soon if it was full."""
        while True:
            done = await self._store.settle_costs(BATCH)
            for (kind, cluster), usd in done.usd.items():
                self._metrics.cost(kind, cluster, usd)
            await asyncio.sleep(AGAIN_S if done.vms == BATCH else SETTLE_S)

    async def watch(self) -> None:
        """For ever, while we lead: how tenants stand. Without budgets nothing is asked."""
        while True:
            await self.read()
            await asyncio.sleep(BUDGETS_S)

    async def read(self) -> None:
        rows = await self._store.tenants()
        budgets = budgets_of(self._settings.current.tenants, (row.tenant for row in rows))
        spent = await self._store.spent() if budgets else {}
        before = self.standing()
        self._standing = judge(budgets, spent, self._clock.now(), before)
        if self._standing != before:
            self._on_change()
