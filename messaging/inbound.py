"""An open subscription: streaming pull that reconnects, extends leases and gives them back."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC
from functools import partial
from typing import Any

from google.api_core import exceptions as google_errors

from core.errors import BusDown, ZenError
from core.messages import InMessage
from messaging.calls import MessageCalls, first_request, life_sign
from messaging.channel import explain

log = logging.getLogger(__name__)

STREAM_ACK_DEADLINE_S = 15
"""A reader that stands still (a leader that froze) keeps what was handed to it for this long, and
its successor waits for those words. Google allows 10 s at least; a live client extends."""
HEARTBEAT_S = 5.0
"""How often leases are extended and the stream is told that we live: three tries per deadline."""
HOLD_MAX_S = 600.0
"""A message held longer than this is not extended any more: its reader is stuck or gone."""
ACK_IDS_MAX = 1000
ACK_TRIES = 4
ACK_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 2.0
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
HEALTHY_STREAM_S = 5.0
"""A stream that lived this long was fine: the next one is opened without the long wait."""
_BATCHES_AHEAD = 8
"""Responses read ahead of the reader; then gRPC's flow control holds the server back."""


class StreamingInbound:
    """`core.ports.Inbound`. It begins to pull when `batches()` is called."""

    def __init__(self, calls: MessageCalls, path: str, max_messages: int) -> None:
        assert max_messages > 0, "a subscription needs room for at least one message"
        self._calls = calls
        self._path = path
        self._max_messages = max_messages
        self._box: deque[list[InMessage]] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._held: dict[str, float] = {}
        """ack id -> when it came (loop time)."""
        self._pump_task: asyncio.Task[None] | None = None
        self._extension_task: asyncio.Task[None] | None = None
        self._closed = False

    def batches(self) -> AsyncIterator[Sequence[InMessage]]:
        """Bounded batches until closed. What waits behind a slow reader comes as one batch.

        BusRefused (no such subscription) and Forbidden end it: waiting would not help. A read
        that is cancelled, by a time-out say, loses nothing: read on.
        """
        assert self._pump_task is None, "a subscription has one reader"
        if not self._closed:
            self._pump_task = asyncio.create_task(self._pump(), name=f"pull {self._path}")
            self._pump_task.add_done_callback(lambda _: self._news.set())
            self._extension_task = asyncio.create_task(
                self._keep_leases(), name=f"lease {self._path}"
            )
        return _Batches(self._next)

    async def ack(self, ack_ids: Sequence[str]) -> None:
        """Done with these. BusDown after a few tries: they will come again."""
        self._release(ack_ids)
        for part in _parts(ack_ids):
            await self._insist(
                "ack", partial(self._calls.acknowledge, self._path, part, ACK_TIMEOUT_S)
            )

    async def nack(self, ack_ids: Sequence[str]) -> None:
        """Give these back: they are delivered again, here or elsewhere."""
        self._release(ack_ids)
        await self._modify(ack_ids, 0)

    async def close(self) -> None:
        """End `batches()` and give back every message that was not acknowledged."""
        if self._closed:
            return
        self._closed = True
        self._news.set()
        tasks = [task for task in (self._pump_task, self._extension_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        held = list(self._held)
        self._held.clear()
        if not held:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._modify(held, 0)
        except (TimeoutError, ZenError) as error:
            # Not lost: they come again when their deadline passes, only later.
            log.warning("%s: %d leases not given back: %s", self._path, len(held), error)

    async def _next(self) -> Sequence[InMessage]:
        """The next batch, the end when closed, or the reason why there will never be one."""
        while self._closed or not self._box:
            if self._closed:
                raise StopAsyncIteration
            assert self._pump_task is not None
            if self._pump_task.done():
                self._pump_task.result()
            self._news.clear()
            await self._news.wait()
        batch = self._box.popleft()
        while self._box and len(batch) + len(self._box[0]) <= self._max_messages:
            batch += self._box.popleft()
        self._room.set()
        return batch

    # --- the stream ---------------------------------------------------------------------

    async def _pump(self) -> None:
        """Read the stream into the box; open it again whenever it ends."""
        # Every VM has its own factor: after an outage they do not all come back at once.
        spread = 0.75 + (zlib.crc32(self._path.encode()) % 1000) / 2000
        loop = asyncio.get_running_loop()
        wait_s = BACKOFF_FIRST_S
        while True:
            opened_at = loop.time()
            await self._read_stream()
            if loop.time() - opened_at > HEALTHY_STREAM_S:
                wait_s = BACKOFF_FIRST_S
            await asyncio.sleep(min(BACKOFF_MAX_S, wait_s * spread))
            wait_s = min(BACKOFF_MAX_S, wait_s * 2)

    async def _read_stream(self) -> None:
        """One stream until it ends. Raises only what waiting cannot mend."""
        try:
            async with aclosing(self._calls.streaming_pull(self._path, self._requests())) as stream:
                async for response in stream:
                    await self._take(response)
        except google_errors.GoogleAPIError as error:
            reason = explain(error, f"subscription {self._path.rpartition('/')[2]}")
            if not isinstance(reason, BusDown):
                raise reason from error
            log.info("%s: stream ended, opening it again: %s", self._path, reason)

    async def _requests(self) -> AsyncIterator[Any]:
        yield first_request(self._path, STREAM_ACK_DEADLINE_S, self._max_messages)
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            yield life_sign()

    async def _take(self, response: Any) -> None:
        received = response.received_messages
        now = asyncio.get_running_loop().time()
        batch = [
            InMessage(
                ack_id=item.ack_id,
                message_id=item.message.message_id,
                publish_time=item.message.publish_time.ToDatetime(tzinfo=UTC),
                body=item.message.data,
                attributes=dict(item.message.attributes),
                delivery_attempt=item.delivery_attempt,
            )
            for item in received
        ]
        self._held.update((message.ack_id, now) for message in batch)
        for start in range(0, len(batch), self._max_messages):
            while len(self._box) >= _BATCHES_AHEAD:
                self._room.clear()
                await self._room.wait()
            self._box.append(batch[start : start + self._max_messages])
            self._news.set()

    # --- leases -------------------------------------------------------------------------

    async def _keep_leases(self) -> None:
        """Extend what the reader holds, so that slow work is not delivered twice."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            oldest = asyncio.get_running_loop().time() - HOLD_MAX_S
            stuck = [ack_id for ack_id, came in self._held.items() if came < oldest]
            self._release(stuck)
            if stuck:
                log.warning("%s: %d messages held too long, let go", self._path, len(stuck))
            try:
                await self._modify(list(self._held), STREAM_ACK_DEADLINE_S)
            except ZenError as error:
                log.info("%s: leases not extended: %s", self._path, error)

    def _release(self, ack_ids: Sequence[str]) -> None:
        for ack_id in ack_ids:
            self._held.pop(ack_id, None)

    async def _modify(self, ack_ids: Sequence[str], deadline_s: int) -> None:
        for part in _parts(ack_ids):
            await self._insist(
                "extend" if deadline_s else "nack",
                partial(
                    self._calls.modify_ack_deadline, self._path, part, deadline_s, ACK_TIMEOUT_S
                ),
            )

    async def _insist(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        """The call, a bounded number of times."""
        wait_s = BACKOFF_FIRST_S
        for left in reversed(range(ACK_TRIES)):
            try:
                await call()
            except google_errors.GoogleAPIError as error:
                reason = explain(error, f"{what} on {self._path.rpartition('/')[2]}")
                if not left or not isinstance(reason, BusDown):
                    raise reason from error
            else:
                return
            await asyncio.sleep(wait_s)
            wait_s *= 3


def _parts(ack_ids: Sequence[str]) -> list[Sequence[str]]:
    return [ack_ids[at : at + ACK_IDS_MAX] for at in range(0, len(ack_ids), ACK_IDS_MAX)]


class _Batches:
    """An iterator, not a generator: a generator is dead after the first cancelled read."""

    def __init__(self, read: Callable[[], Awaitable[Sequence[InMessage]]]) -> None:
        self._read = read

    def __aiter__(self) -> _Batches:
        return self

    async def __anext__(self) -> Sequence[InMessage]:
        return await self._read()
