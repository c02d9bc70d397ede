"""Control subscriptions of the broker in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from core.errors import BusDown
from core.names import Names
from sim.virtual.bus import PretendBroker
from sim.virtual.loop import Process

CALL_TIMEOUT_S = 10.0


class MemoryControlSubscriptions:
    """core.ports.ControlSubscriptions of one process."""

    def __init__(
        self, broker: PretendBroker, process: Process, names: Names, dice: random.Random
    ) -> None:
        self._broker, self._process, self._names, self._dice = broker, process, names, dice

    async def make(self, vm_name: str, boot_nonce: str) -> None:
        await self._reach()
        name = self._names.control_subscription(vm_name, boot_nonce)
        topic = self._names.control_topic
        self._broker.add_subscription(name, topic, {"vm_name": vm_name}, ordered=True)

    async def remove(self, subscription: str) -> None:
        await self._reach()
        self._broker.drop_subscription(subscription)

    async def all(self) -> Sequence[str]:
        await self._reach()
        return self._broker.subscriptions_of(self._names.control_topic)

    async def _reach(self) -> None:
        await asyncio.sleep(self._dice.uniform(0.01, 0.1))
        if not self._broker.reachable(self._process):
            await asyncio.sleep(CALL_TIMEOUT_S)
            raise BusDown("the bus does not answer")
