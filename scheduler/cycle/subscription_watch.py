"""The leader looks after the subscriptions that the service reads: one that is gone makes it deaf
without any error of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from core.alerts import SUBSCRIPTION_LOST
from core.changes import Change
from core.errors import BusDown, ZenError
from core.messages import SubscriptionFault
from core.ports import Clock, Store
from scheduler.cycle.leadership import Leadership

log = structlog.get_logger("subscriptions")
EVERY_S = 3.0
STANDS_S = 600.0
"""The alert of a subscription that was made again stands for so long: what was published in between
is lost, and somebody deleted it."""
Mend = Callable[[], Awaitable[Sequence[SubscriptionFault]]]


class SubscriptionWatch:
    """Raises the alert when a subscription is lost and clears it when it has been well for long."""

    def __init__(
        self, mend: Mend, names: Sequence[str], store: Store, leadership: Leadership, clock: Clock
    ) -> None:
        self._mend = mend
        self._store = store
        self._leadership = leadership
        self._clock = clock
        # A former leader may have raised alerts that only we can clear.
        self._raised: dict[str, tuple[str, float]] = dict.fromkeys(names, ("", clock.monotonic()))
        """Subscription → what was said of it, and when it was last at fault."""
        self._untold: list[SubscriptionFault] = []
        """Made again already, so that no further look will find them."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(EVERY_S)

    async def look(self) -> None:
        """Once. A bus that is away is told elsewhere: it says nothing about its subscriptions."""
        now = self._clock.monotonic()
        await self._tell_untold(now)
        try:
            faults = await self._mend()
        except BusDown:
            return
        except ZenError as error:
            faults = [SubscriptionFault("all", str(error), made_again=False)]
        self._untold = [fault for fault in faults if fault.made_again]
        for fault in faults:
            if not fault.made_again:
                await self._tell(fault, now)
        await self._tell_untold(now)
        lost = {fault.name for fault in faults}
        for name, (_, since) in list(self._raised.items()):
            if name not in lost and now - since >= STANDS_S:
                await self._commit(SUBSCRIPTION_LOST.cleared(name, self._clock.now()))
                del self._raised[name]

    async def _tell_untold(self, now: float) -> None:
        """A database that is away in between does not swallow an alert."""
        while self._untold:
            await self._tell(self._untold[0], now)
            del self._untold[0]

    async def _tell(self, fault: SubscriptionFault, now: float) -> None:
        words = SUBSCRIPTION_LOST.message(
            subscription=fault.name,
            problem=fault.problem,
            now="it was made again" if fault.made_again else "it is not read",
        )
        if fault.made_again or self._raised.get(fault.name, ("", 0.0))[0] != words:
            log.error("a subscription was lost", subscription=fault.name, why=words)
            await self._commit(SUBSCRIPTION_LOST.saying(words, fault.name, self._clock.now()))
        self._raised[fault.name] = (words, now)

    async def _commit(self, change: Change) -> None:
        await self._store.commit([(change,)], self._leadership.term())
