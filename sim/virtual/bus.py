"""Pub/Sub in memory, in virtual time, with its bad days: at least once, in any order, sometimes
late, sometimes away. Publish times are on the bus's own clock."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.errors import BusDown
from core.messages import InMessage, OutMessage
from messaging.errors import BusRefused, ContentRefused
from messaging.proofs.control import NUMBER
from sim.virtual.loop import Process, VirtualClock, VirtualLoop
from sim.virtual.trace import Trace

ACK_DEADLINE_S = 60.0
HOLD_MAX_S = 600.0
STREAM_LOST_S = 30.0
"""A reader that has been frozen this long has lost its stream."""
SWEEP_S = 15.0
GRID_S = 3.0
"""Deliveries happen at multiples of this, so that a busy second is not a thousand steps."""
LANE_HISTORY = 50
DELAY_MAX_S = 3600.0
REORDER_MAX_S = 6.0


@dataclass(slots=True)
class BusOdds:
    """How often each misfortune happens; all zero once the world is healed."""

    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    lost_ack: float = 0.0
    lost_confirmation: float = 0.0


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A message that the bus has taken."""

    message_id: str
    published: datetime
    message: OutMessage


@dataclass(slots=True)
class OutstandingDelivery:
    """Delivered, not yet acknowledged."""

    stored: PublishedMessage
    reader: MemoryInbound
    since: float
    extended: float


@dataclass(slots=True)
class PretendSubscription:
    """A topic's messages for one kind of reader."""

    name: str
    filter: Mapping[str, str]
    ordered: bool
    ready: deque[PublishedMessage] = field(default_factory=deque)
    held: dict[str, OutstandingDelivery] = field(default_factory=dict)
    readers: list[MemoryInbound] = field(default_factory=list)
    lane_ends: dict[str, float] = field(default_factory=dict)
    lanes: dict[str, deque[PublishedMessage]] = field(default_factory=dict)
    """The last messages of each ordering key: one that comes again brings its successors."""
    next_reader: int = 0

    def wants(self, message: OutMessage) -> bool:
        return all(message.attributes.get(k) == v for k, v in self.filter.items())


class PretendBroker:
    """The server's side."""

    def __init__(
        self, loop: VirtualLoop, dice: random.Random, clock: VirtualClock, trace: Trace
    ) -> None:
        self.loop = loop
        self.odds = BusOdds()
        self.up_since = 0.0
        self._down = False
        self.refused: set[str] = set()
        """Topics that the bus answers with a refusal."""
        self.refuse_starts = 0
        """So many of the next start messages are too large."""
        self._too_large: set[str] = set()
        self.cut_off: set[str] = set()
        """Processes that the bus does not reach."""
        self._back_at: dict[str, float] = {}
        self.on_taken: Callable[[OutMessage], None] = lambda _: None
        self.on_acked: Callable[[str, PublishedMessage], None] = lambda _subscription, _stored: None
        self._dice, self._clock, self._trace = dice, clock, trace
        self._topics: dict[str, list[PretendSubscription]] = {}
        self._by_name: dict[str, tuple[str, PretendSubscription]] = {}
        self._buckets: dict[float, list[tuple[PretendSubscription, PublishedMessage]]] = {}
        self._messages = 0
        self._deliveries = 0
        loop.later(SWEEP_S, self._sweep)

    @property
    def down(self) -> bool:
        """While True nobody can publish, read or acknowledge."""
        return self._down

    @down.setter
    def down(self, down: bool) -> None:
        if self._down and not down:
            self.up_since = self.loop.time()
        self._down = down

    # --- what operators do -----------------------------------------------------------------

    def add_topic(self, topic: str) -> None:
        self._topics.setdefault(topic, [])

    def add_subscription(
        self, name: str, topic: str, where: Mapping[str, str] | None = None, *, ordered: bool
    ) -> None:
        if name not in self._by_name:
            made = PretendSubscription(name, where or {}, ordered)
            self._topics[topic].append(made)
            self._by_name[name] = (topic, made)

    def drop_subscription(self, name: str) -> None:
        found = self._by_name.pop(name, None)
        if found is not None:
            self._topics[found[0]].remove(found[1])

    def has(self, name: str) -> bool:
        return name in self._by_name

    def subscriptions_of(self, topic: str) -> list[str]:
        return [subscription.name for subscription in self._topics[topic]]

    def subscription(self, name: str) -> PretendSubscription:
        return self._by_name[name][1]

    def reachable(self, process: Process) -> bool:
        return not self.down and process.name not in self.cut_off and not process.dead

    def reconnect(self, name: str) -> None:
        """The bus reaches this process again."""
        if name in self.cut_off:
            self.cut_off.discard(name)
            self._back_at[name] = self.loop.time()

    def was_cut_off(self, name: str, within_s: float) -> bool:
        """Whether the process alone was out of reach within the last seconds."""
        back_at = self._back_at.get(name)
        lately = back_at is not None and self.loop.time() - back_at <= within_s
        return lately or name in self.cut_off

    @property
    def unread(self) -> int:
        """Messages that the service has not dealt with; VMs' own ears do not count."""
        return sum(len(s.ready) for _, s in self._by_name.values() if not s.ordered)

    def heal(self) -> None:
        """No more misfortune; what was delayed comes within a minute."""
        self.odds = BusOdds()
        self.down = False
        self.refuse_starts = 0
        self.refused.clear()
        for name in sorted(self.cut_off):
            self.reconnect(name)
        soon = self._at(60.0)
        for moment in sorted(moment for moment in self._buckets if moment > soon):
            for subscription, stored in self._buckets.pop(moment):
                self._put(soon, subscription, stored)
        for _, subscription in self._by_name.values():
            ends = subscription.lane_ends  # nor do later ones wait for what came late
            subscription.lane_ends = {key: min(end, soon) for key, end in ends.items()}
            self.deliver(subscription)

    # --- publishing ------------------------------------------------------------------------

    def check(self, message: OutMessage) -> None:
        """BusRefused for what will never be taken, however often it is sent."""
        if message.topic in self.refused or message.topic not in self._topics:
            raise BusRefused("this topic does not exist")
        if self.refuse_starts and message.attributes.get("kind") == "start":
            self.refuse_starts -= 1
            self._too_large.add(message.attributes.get(NUMBER, ""))
            self._trace.fault("message_too_large")
        if message.attributes.get(NUMBER) in self._too_large:
            raise ContentRefused("this message is too large")

    def take(self, messages: Sequence[OutMessage]) -> list[str]:
        """Accepted: from here on they are delivered at least once."""
        ids = []
        for message in messages:
            self._messages += 1
            stored = PublishedMessage(f"m{self._messages}", self._clock.now(), message)
            ids.append(stored.message_id)
            self.on_taken(message)
            for subscription in self._topics[message.topic]:
                if subscription.wants(message):
                    self._fan_out(subscription, stored)
        return ids

    def _fan_out(self, subscription: PretendSubscription, stored: PublishedMessage) -> None:
        self._arrive(subscription, stored, self._travel_s())
        if self.odds.duplicate:
            self._trace.messages += 1
        if self._dice.random() < self.odds.duplicate:
            self._trace.count_fault("message_duplicated")
            self._arrive(subscription, stored, self._travel_s())

    def _travel_s(self) -> float:
        span = self._dice.uniform(0.005, 0.05)
        if self._dice.random() < self.odds.reorder:
            self._trace.count_fault("message_reordered")
            span += self._dice.uniform(0.0, REORDER_MAX_S)
        if self._dice.random() < self.odds.delay:
            self._trace.count_fault("message_delayed")
            span += self._dice.uniform(0.0, DELAY_MAX_S) ** 2 / DELAY_MAX_S
        return span

    def _arrive(
        self, subscription: PretendSubscription, stored: PublishedMessage, span_s: float
    ) -> None:
        moment = self._at(span_s)
        key = stored.message.ordering_key
        if subscription.ordered and key:
            moment = max(moment, subscription.lane_ends.get(key, 0.0))
            subscription.lane_ends[key] = moment
        self._put(moment, subscription, stored)

    def _at(self, span_s: float) -> float:
        return (int((self.loop.time() + span_s) / GRID_S) + 1) * GRID_S

    def _put(
        self, moment: float, subscription: PretendSubscription, stored: PublishedMessage
    ) -> None:
        bucket = self._buckets.get(moment)
        if bucket is None:
            bucket = self._buckets[moment] = []
            self.loop.later(moment - self.loop.time(), self._open_bucket, moment)
        bucket.append((subscription, stored))

    def _open_bucket(self, moment: float) -> None:
        touched: dict[str, PretendSubscription] = {}
        for subscription, stored in self._buckets.pop(moment, ()):
            subscription.ready.append(stored)
            touched[subscription.name] = subscription
        for subscription in touched.values():
            self.deliver(subscription)

    # --- delivering ------------------------------------------------------------------------

    def deliver(self, subscription: PretendSubscription) -> None:
        """Hand out what is ready, to the readers in turn."""
        while subscription.ready:
            reader = self._next_reader(subscription)
            if reader is None:
                return
            stored = subscription.ready.popleft()
            self._deliveries += 1
            ack_id = f"a{self._deliveries}"
            moment = self.loop.time()
            subscription.held[ack_id] = OutstandingDelivery(stored, reader, moment, moment)
            self._remember(subscription, stored)
            reader.receive(_in_message(ack_id, stored))

    def _next_reader(self, subscription: PretendSubscription) -> MemoryInbound | None:
        fit = [r for r in subscription.readers if self.reachable(r.process) and r.has_stream]
        if not fit:
            return None
        subscription.next_reader += 1
        return fit[subscription.next_reader % len(fit)]

    def _remember(self, subscription: PretendSubscription, stored: PublishedMessage) -> None:
        key = stored.message.ordering_key
        if not subscription.ordered or not key:
            return
        lane = subscription.lanes.setdefault(key, deque(maxlen=LANE_HISTORY))
        if stored not in lane:
            lane.append(stored)

    def acked(self, subscription: PretendSubscription, ack_id: str) -> None:
        if self._dice.random() < self.odds.lost_ack:
            self._trace.count_fault("ack_lost")
            return
        held = subscription.held.pop(ack_id, None)
        if held is not None:
            self.on_acked(subscription.name, held.stored)

    def again(self, subscription: PretendSubscription, ack_id: str) -> None:
        """Deliver once more; in an ordered lane, with all that came after it."""
        held = subscription.held.pop(ack_id, None)
        if held is None:
            return
        key = held.stored.message.ordering_key
        lane = subscription.lanes.get(key)
        if lane is None or held.stored not in lane:
            self._arrive(subscription, held.stored, 0.5)
            return
        self._trace.count_fault("lane_redelivered")
        for stored in list(lane)[lane.index(held.stored) :]:
            self._arrive(subscription, stored, 0.5)

    def _sweep(self) -> None:
        """Ack deadlines: a reader that lives extends them, the others' messages come again."""
        moment = self.loop.time()
        for _, subscription in list(self._by_name.values()):
            for ack_id, held in list(subscription.held.items()):
                if moment - held.extended < ACK_DEADLINE_S:
                    continue
                if held.reader.holds(held) and self.reachable(held.reader.process):
                    held.extended = moment
                else:
                    self._trace.count_fault("ack_deadline_passed")
                    self.again(subscription, ack_id)
            self.deliver(subscription)
        self.loop.later(SWEEP_S, self._sweep)


class MemoryInbound:
    """`core.ports.Inbound` of one process."""

    def __init__(
        self,
        broker: PretendBroker,
        subscription: PretendSubscription,
        process: Process,
        max_messages: int,
    ) -> None:
        self.process = process
        self._broker, self._subscription = broker, subscription
        self._max = max_messages
        self._box: deque[InMessage] = deque()
        self._news = asyncio.Event()
        self._closed = False

    @property
    def has_stream(self) -> bool:
        frozen = self.process.frozen
        lost = frozen and self._broker.loop.time() - self.process.frozen_at > STREAM_LOST_S
        return not self._closed and not lost and len(self._box) < self._max

    def holds(self, held: OutstandingDelivery) -> bool:
        """Whether this reader still extends the message's deadline."""
        recent = self._broker.loop.time() - held.since < HOLD_MAX_S
        return not (self._closed or self.process.dead or self.process.frozen) and recent

    def receive(self, message: InMessage) -> None:
        self._box.append(message)
        self._news.set()

    def batches(self) -> AsyncIterator[Sequence[InMessage]]:
        self._subscription.readers.append(self)
        self._broker.deliver(self._subscription)
        return self

    def __aiter__(self) -> MemoryInbound:
        return self

    async def __anext__(self) -> Sequence[InMessage]:
        while not self._box:
            if self._closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        batch = list(self._box)
        self._box.clear()
        self._broker.deliver(self._subscription)
        return batch

    async def ack(self, ack_ids: Sequence[str]) -> None:
        await self._reach("ack")
        for ack_id in ack_ids:
            self._broker.acked(self._subscription, ack_id)

    async def nack(self, ack_ids: Sequence[str]) -> None:
        await self._reach("nack")
        for ack_id in ack_ids:
            self._broker.again(self._subscription, ack_id)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._news.set()
        if self in self._subscription.readers:
            self._subscription.readers.remove(self)
        if self._broker.reachable(self.process):
            held = self._subscription.held
            for ack_id in [a for a, h in held.items() if h.reader is self]:
                self._broker.again(self._subscription, ack_id)

    async def _reach(self, what: str) -> None:
        if not self._broker.reachable(self.process):
            await asyncio.sleep(2.0)
            raise BusDown(f"{what}: the bus does not answer")


class MemoryBus:
    """`core.ports.Bus` of one process."""

    def __init__(
        self, broker: PretendBroker, process: Process, dice: random.Random, trace: Trace
    ) -> None:
        self._broker, self._process, self._dice, self._trace = broker, process, dice, trace

    async def publish(self, messages: Sequence[OutMessage], timeout_s: float) -> Sequence[str]:
        await asyncio.sleep(self._dice.uniform(0.002, 0.02))
        if not self._broker.reachable(self._process):
            await asyncio.sleep(timeout_s)
            raise BusDown(f"publish: not confirmed within {timeout_s:g} s")
        for message in messages:
            self._broker.check(message)
        ids = self._broker.take(messages)
        if self._dice.random() < self._broker.odds.lost_confirmation:
            self._trace.count_fault("confirmation_lost")
            await asyncio.sleep(timeout_s)
            raise BusDown(f"publish: not confirmed within {timeout_s:g} s")
        return ids

    def subscribe(self, subscription: str, *, max_messages: int = 1000) -> MemoryInbound:
        found = self._broker.subscription(subscription)
        return MemoryInbound(self._broker, found, self._process, max_messages)


def _in_message(ack_id: str, stored: PublishedMessage) -> InMessage:
    return InMessage(
        ack_id=ack_id,
        message_id=stored.message_id,
        publish_time=stored.published,
        body=stored.message.body,
        attributes=stored.message.attributes,
    )
