"""The leader's inbox for heartbeats: filled as they come, opened by the cycle, acknowledged
after the commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import structlog

from core.errors import ZenError
from core.messages import InMessage
from core.ports import Bus, Inbound
from messaging.proofs.heartbeats import PROOF, shows_life_alone

log = structlog.get_logger("inbox")
STREAM_MAX = 10_000
"""Unacknowledged at a time: the next bite of a backlog arrives while one is being worked on."""
BOX_MAX = 20_000
"""Messages kept in memory; the bus keeps the rest."""
BACKLOG = 1_000
"""So many that wait are worth a cycle at once, whatever they say."""


class Inbox:
    """One subscription. `on_mail` wakes the loop at once, `on_routine` in a while: heartbeats that
    only show that a worker lives change no decision."""

    def __init__(
        self,
        bus: Bus,
        subscription: str,
        on_mail: Callable[[], None],
        on_routine: Callable[[], None],
    ) -> None:
        self._bus = bus
        self._subscription = subscription
        self._on_mail, self._on_routine = on_mail, on_routine
        self._urgent = False
        self._box: deque[InMessage] = deque()
        self._room = asyncio.Event()
        self._room.set()
        self._inbound: Inbound | None = None

    async def fill(self) -> None:
        """Read until cancelled; what was not acknowledged goes back to the bus."""
        self._inbound = self._bus.subscribe(self._subscription, max_messages=STREAM_MAX)
        try:
            async for batch in self._inbound.batches():
                await self._room.wait()
                self._box.extend(batch)
                if len(self._box) >= BOX_MAX:
                    self._room.clear()
                self._ring(batch)
        finally:
            self._box.clear()
            self._room.set()
            await self._inbound.close()
            self._inbound = None

    def _ring(self, batch: Sequence[InMessage]) -> None:
        self._urgent = self._urgent or len(self._box) >= BACKLOG or not all(map(_is_routine, batch))
        if self._urgent:
            self._on_mail()
        else:
            self._on_routine()

    def take(self, most: int) -> list[InMessage]:
        """Up to `most` messages, oldest first. They are ours until acked."""
        taken = [self._box.popleft() for _ in range(min(most, len(self._box)))]
        self._urgent = bool(self._box)  # nobody has looked at what is left
        if len(self._box) < BOX_MAX:
            self._room.set()
        return taken

    def put_back(self, messages: Sequence[InMessage]) -> None:
        """Their cycle failed: they come first in the next one. Nobody else would bring them soon,
        because their ack deadlines are extended while we hold them."""
        if self._inbound is not None and messages:
            self._box.extendleft(reversed(messages))
            self._urgent = True

    def bring(self, message: InMessage) -> None:
        """One that was kept aside comes first in the next cycle."""
        self.put_back([message])
        self._on_mail()

    @property
    def urgent(self) -> bool:
        """Whether something waits that is worth a cycle at once."""
        return self._urgent

    async def ack(self, messages: Sequence[InMessage]) -> None:
        """Their effect is committed. A lost ack only means that they come again."""
        if not messages or self._inbound is None:
            return
        try:
            await self._inbound.ack([message.ack_id for message in messages])
        except ZenError as error:
            log.info("ack failed, they will come again", count=len(messages), why=str(error))


def _is_routine(message: InMessage) -> bool:
    return shows_life_alone(message.attributes.get(PROOF, ""))
