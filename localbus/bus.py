"""The driver: the broker's decisions, the journal's writes, the clock and the waiting streams."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from localbus.broker import Broker, Staged
from localbus.changes import Change
from localbus.commit import JournalCommit
from localbus.delivery import AckDeadline, Consumer
from localbus.errors import InvalidArgument, Missing, invalid
from localbus.model import ACK_DEADLINE_S, IncomingMessage
from localbus.subscription import Subscription

T = TypeVar("T")
PULL_MESSAGES_MAX = 1_000
# One answer's worth: clients accept 20 MB and more; smaller answers keep the first ack near.
ANSWER_BYTES_MAX = 4 << 20
ACK_IDS_MAX = 10_000


@dataclass(slots=True, eq=False)
class MessageReceiver:
    """Somebody who waits for messages of a subscription: an open stream, or a waiting pull."""

    subscription: Subscription
    consumer: Consumer | None
    news: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class AckResult:
    """How an ack or a deadline change went, by ack id."""

    done: tuple[str, ...]
    refused: tuple[str, ...]
    exactly_once: bool


class BrokerLoop:
    """What the doors call. Lives on one event loop."""

    def __init__(self, broker: Broker, commits: JournalCommit, now: Callable[[], float]) -> None:
        self.broker = broker
        self._commits = commits
        self.now = now
        self._listeners: dict[Subscription, list[MessageReceiver]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf
        self.stopping = False

    async def change(self, act: Callable[[Broker, float], T]) -> T:
        """A change of topics or subscriptions; it is on disk before the answer."""
        done = act(self.broker, self.now())
        await self._durable()
        return done

    # -- messages

    async def publish(
        self, topic: str, incoming_messages: Sequence[IncomingMessage], total_bytes: int
    ) -> list[str]:
        """Message ids, once the messages and their deliveries are on disk."""
        staged = self.broker.stage(topic, incoming_messages, total_bytes, self.now())
        if staged.change is not None:
            await self._commits.submit([staged.change], lambda: self._show(staged))
        return [str(message.id) for message in staged.messages]

    def _show(self, staged: Staged) -> None:
        self.broker.apply(staged, self.now())
        self._settle()

    async def pull(self, name: str, messages_max: int, wait_s: float) -> list[AckDeadline]:
        """Up to so many messages; waits for the first one."""
        subscription = self.broker.readable(name)
        if messages_max <= 0:
            raise invalid("max_messages", messages_max, "at least 1")
        listener = MessageReceiver(subscription, None)
        self._listen(listener)
        try:
            async with asyncio.timeout(wait_s):
                while not (leases := self._take(listener, messages_max)):
                    await listener.news.wait()
        except TimeoutError:
            return []
        finally:
            self._unlisten(listener)
        return leases

    def _take(self, listener: MessageReceiver, messages_max: int) -> list[AckDeadline]:
        listener.news.clear()
        subscription = listener.subscription
        if subscription.gone:
            raise Missing(f"subscription {subscription.spec.name} does not exist")
        self.broker.readable(subscription.spec.name)
        now = self.now()
        leases = subscription.take(
            now,
            messages_max=min(messages_max, PULL_MESSAGES_MAX),
            bytes_max=ANSWER_BYTES_MAX,
            consumer=listener.consumer,
        )
        if leases:
            self.broker.settle(subscription, now)
            self._settle()
        return leases

    async def ack(self, name: str, ack_ids: Sequence[str]) -> AckResult:
        """Acknowledges. For exactly-once subscriptions the answer waits for the disk."""
        _check_ack_ids(ack_ids)
        subscription = self.broker.subscription(name)
        now = self.now()
        refused = subscription.ack(ack_ids, now)
        self.broker.settle(subscription, now)
        if subscription.spec.exactly_once:
            await self._durable()
        else:
            self._settle()
        return _settled(ack_ids, refused, subscription)

    def modify(self, name: str, deadlines: Sequence[tuple[str, int]]) -> AckResult:
        """Moves ack deadlines; zero hands the message back."""
        ack_ids = [ack_id for ack_id, _ in deadlines]
        _check_ack_ids(ack_ids)
        for _, seconds in deadlines:
            if not 0 <= seconds <= ACK_DEADLINE_S[1]:
                raise invalid("ack_deadline_seconds", seconds, f"0 to {ACK_DEADLINE_S[1]}")
        subscription = self.broker.subscription(name)
        now = self.now()
        refused = subscription.modify(deadlines, now)
        self.broker.settle(subscription, now)
        self._settle()
        return _settled(ack_ids, refused, subscription)

    # -- streams

    def open_stream(self, name: str, consumer: Consumer) -> MessageReceiver:
        """A stream that takes messages as they come; close it with `close_stream`."""
        check_stream_deadline(consumer.ack_deadline_s)
        subscription = self.broker.readable(name)
        subscription.join(consumer, self.now())
        listener = MessageReceiver(subscription, consumer)
        self._listen(listener)
        return listener

    def next_batch(self, listener: MessageReceiver) -> list[AckDeadline]:
        """What the stream may have now; empty means: wait for `listener.news`."""
        return self._take(listener, PULL_MESSAGES_MAX)

    def close_stream(self, listener: MessageReceiver) -> None:
        """Hands its messages to others."""
        self._unlisten(listener)
        assert listener.consumer is not None
        if listener.subscription.gone:
            return
        now = self.now()
        listener.subscription.leave(listener.consumer, now)
        self.broker.settle(listener.subscription, now)
        self._settle()

    def _listen(self, listener: MessageReceiver) -> None:
        self._listeners.setdefault(listener.subscription, []).append(listener)

    def _unlisten(self, listener: MessageReceiver) -> None:
        waiting = self._listeners[listener.subscription]
        waiting.remove(listener)
        if not waiting:
            del self._listeners[listener.subscription]

    # -- after every step

    async def _durable(self) -> None:
        """Everything decided so far is on disk."""
        changes = self._taken_changes()
        self._wake()
        await self._commits.submit(changes)

    def _settle(self) -> None:
        self._commits.lazily(self._taken_changes())
        self._wake()

    def _taken_changes(self) -> list[Change]:
        ledger = self.broker.ledger
        changes, ledger.changes = ledger.changes, []
        return changes

    def _wake(self) -> None:
        woken, self.broker.ledger.woken = self.broker.ledger.woken, set()
        for subscription in woken:
            waiting = self._listeners.get(subscription)
            if not waiting:
                continue
            # The first to be woken takes first: turn the order, so that streams share.
            waiting.append(waiting.pop(0))
            for listener in waiting:
                listener.news.set()
        self._set_timer()

    def _set_timer(self) -> None:
        due = self.broker.next_due()
        if due >= self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
        # Timers far away would overflow the loop's clock arithmetic; one look a day is free.
        delay = min(max(0.0, due - self.now()), 86_400.0)
        self._timer_due = due
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_due = math.inf
        self.broker.tick(self.now())
        self._settle()

    def start(self) -> None:
        """Sets the first timer, after the broker has its memory back."""
        self._settle()

    def stop(self) -> None:
        """Wakes every stream so that it can say good-bye."""
        self.stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._listeners.values():
            for listener in waiting:
                listener.news.set()


def check_stream_deadline(seconds: int) -> None:
    """10 to 600, as Google asks."""
    low, high = ACK_DEADLINE_S
    if not low <= seconds <= high:
        raise invalid("stream_ack_deadline_seconds", seconds, f"{low} to {high}")


def _check_ack_ids(ack_ids: Iterable[str]) -> None:
    total = sum(1 for _ in ack_ids)
    if not 0 < total <= ACK_IDS_MAX:
        raise InvalidArgument(f"ack_ids: got {total}, expected 1 to {ACK_IDS_MAX}")


def _settled(ack_ids: Sequence[str], refused: Sequence[str], sub: Subscription) -> AckResult:
    bad = set(refused)
    done = tuple(ack_id for ack_id in ack_ids if ack_id not in bad)
    return AckResult(done, tuple(refused), sub.spec.exactly_once)
