"""One subscription: who may have which message, until when. Pure: time is an argument."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from localbus import filters
from localbus.changes import DeliveriesDropped, DeliveriesMarked
from localbus.delivery import AckDeadline, Consumer, Delivery, Ledger, State
from localbus.model import Message, SubscriptionSpec

# An open stream is use too, and it must be known after a crash; expiry counts in days.
USED_SAVED_EVERY_S = 3_600.0
# Heaps keep entries of settled leases until their time comes; past this surplus they are rebuilt.
_HEAP_SLACK = 1_000


class Subscription:
    """Deliveries of one subscription as a state machine."""

    def __init__(
        self, id_: int, spec: SubscriptionSpec, used: float, ledger: Ledger, ack_ids: Iterator[str]
    ) -> None:
        self.id = id_
        self.spec = spec
        self.expression = filters.parse(spec.filter) if spec.filter else None
        self.used = used
        self.saved = used
        self.gone = False
        self.scheduled = math.inf
        self.consumers: list[Consumer] = []
        self.ready_count = 0
        self.deliveries: dict[int, Delivery] = {}
        self._ledger = ledger
        self._ack_ids = ack_ids
        self._ready: deque[Delivery] = deque()
        self._keys: dict[str, deque[Delivery]] = {}
        self._leases: dict[str, AckDeadline] = {}
        # Exactly-once clients repeat an ack whose answer was lost: it must succeed again.
        self._acked_lately: dict[str, float] = {}
        self._expiries: list[tuple[float, int, AckDeadline]] = []
        self._waits: list[tuple[float, int, Delivery]] = []
        self._serial = count()

    # -- in

    def wants(self, message: Message) -> bool:
        """Whether the filter lets it through; what it does not is acknowledged by itself."""
        return self.expression is None or filters.matches(self.expression, message.attributes)

    def offer(self, message: Message, attempts: int = 0, acked: bool = False) -> None:
        """A new (or restored) message."""
        message.refs += 1
        delivery = Delivery(message, attempts, state=State.ACKED if acked else State.BLOCKED)
        self.deliveries[message.id] = delivery
        if not acked:
            self._line_up(delivery)

    def _line_up(self, delivery: Delivery) -> None:
        key = delivery.message.ordering_key
        if self.spec.ordered and key:
            line = self._keys.setdefault(key, deque())
            line.append(delivery)
            if len(line) > 1:
                delivery.state = State.BLOCKED
                return
        self._make_ready(delivery)

    def _make_ready(self, delivery: Delivery, *, first: bool = False) -> None:
        delivery.state = State.READY
        self.ready_count += 1
        # What failed goes to the back, so that a poison message does not starve the others.
        if first:
            self._ready.appendleft(delivery)
        else:
            self._ready.append(delivery)
        self._ledger.woken.add(self)

    # -- out

    def take(
        self, now: float, *, messages_max: int, bytes_max: int, consumer: Consumer | None = None
    ) -> list[AckDeadline]:
        """Leases up to so many messages; what a consumer may hold limits it too."""
        self.used = now
        if consumer is not None:
            messages_max = min(messages_max, consumer.open_messages, self._fair_share())
        taken: list[AckDeadline] = []
        size = 0
        while self._ready and len(taken) < messages_max and size < bytes_max:
            delivery = self._ready.popleft()
            if delivery.state is not State.READY:
                continue
            taken.append(self._lease(delivery, now, consumer))
            size += len(delivery.message.body)
            if consumer is not None and not consumer.open_messages:
                break
        if taken and self.spec.dead_letter is not None:
            self._mark([lease.delivery for lease in taken])
        return taken

    def _fair_share(self) -> int:
        takers = sum(1 for consumer in self.consumers if consumer.open_messages)
        return math.ceil(self.ready_count / takers) if takers else 0

    def _lease(self, delivery: Delivery, now: float, consumer: Consumer | None) -> AckDeadline:
        seconds = consumer.ack_deadline_s if consumer else self.spec.ack_deadline_s
        lease = AckDeadline(next(self._ack_ids), delivery, now + seconds, consumer)
        delivery.state = State.LEASED
        delivery.attempts += 1
        delivery.lease = lease
        self.ready_count -= 1
        self._leases[lease.ack_id] = lease
        heapq.heappush(self._expiries, (lease.deadline, next(self._serial), lease))
        if consumer is not None:
            consumer.messages += 1
            consumer.bytes += len(delivery.message.body)
        return lease

    def _mark(self, deliveries: Sequence[Delivery]) -> None:
        rows = tuple((d.message.id, d.attempts, d.state is State.ACKED) for d in deliveries)
        self._ledger.changes.append(DeliveriesMarked(self.id, rows))

    # -- settling

    def ack(self, ack_ids: Iterable[str], now: float) -> list[str]:
        """Acknowledges; answers the ids that were not (any more) good for it."""
        self.tick(now)
        self.used = now
        refused: list[str] = []
        settled: list[Delivery] = []
        for ack_id in ack_ids:
            lease = self._leases.get(ack_id)
            if lease is None:
                if ack_id not in self._acked_lately:
                    refused.append(ack_id)
                continue
            self._end(lease)
            if self.spec.exactly_once:
                self._acked_lately[ack_id] = lease.deadline
            if lease.delivery.state not in (State.ACKED, State.GONE):
                settled.append(lease.delivery)
                self._leave_line(
                    lease.delivery, State.ACKED if self.spec.retain_acked else State.GONE
                )
        self._record_acked(settled)
        self._prune()
        return refused

    def _record_acked(self, settled: Sequence[Delivery]) -> None:
        if settled and self.spec.retain_acked:
            self._mark(settled)
        elif settled:
            self._drop(settled)

    def _drop(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self.deliveries.pop(delivery.message.id, None)
        ids = tuple(delivery.message.id for delivery in deliveries)
        self._ledger.changes.append(DeliveriesDropped(self.id, ids))
        self._ledger.forget(delivery.message for delivery in deliveries)

    def modify(self, deadlines: Iterable[tuple[str, int]], now: float) -> list[str]:
        """Moves deadlines; zero seconds is a nack. Answers the ids that were not good for it."""
        self.tick(now)
        self.used = now
        refused: list[str] = []
        for ack_id, seconds in deadlines:
            lease = self._leases.get(ack_id)
            if lease is None:
                if ack_id not in self._acked_lately:
                    refused.append(ack_id)
            elif seconds == 0:
                self._end(lease)
                self._failed(lease, now)
            else:
                self._move(lease, now + seconds)
        return refused

    def _move(self, lease: AckDeadline, deadline: float) -> None:
        # A later deadline needs no entry of its own: the earlier one, when due, is put off.
        if deadline < lease.deadline:
            heapq.heappush(self._expiries, (deadline, next(self._serial), lease))
        lease.deadline = deadline

    def _end(self, lease: AckDeadline) -> None:
        del self._leases[lease.ack_id]
        self._free(lease)
        if self.ready_count:
            self._ledger.woken.add(self)

    def _free(self, lease: AckDeadline) -> None:
        consumer = lease.consumer
        if consumer is not None:
            consumer.messages -= 1
            consumer.bytes -= len(lease.delivery.message.body)
            lease.consumer = None

    def _failed(self, lease: AckDeadline, now: float) -> None:
        """Nacked or expired. A lease that was handed back has nothing left to release."""
        delivery = lease.delivery
        if delivery.lease is not lease or delivery.state is not State.LEASED:
            return
        delivery.lease = None
        delivery.failures += 1
        dead = self.spec.dead_letter
        if dead is not None and delivery.attempts >= dead.max_attempts:
            self._ledger.dead.append((self, delivery))
        else:
            self.retry(delivery, now)

    def retry(self, delivery: Delivery, now: float) -> None:
        """Back in the queue, after its back-off."""
        backoff = self.spec.backoff
        if backoff is None or backoff.max_s == 0:
            self._make_ready(delivery)
            return
        delivery.state = State.WAITING
        due = now + backoff.delay(max(1, delivery.failures))
        heapq.heappush(self._waits, (due, next(self._serial), delivery))

    def bury(self, delivery: Delivery) -> None:
        """It lives on in the dead letter topic."""
        self._leave_line(delivery, State.GONE)
        self._drop([delivery])

    def _leave_line(self, delivery: Delivery, state: State) -> None:
        """Out of the queue for good; the next message of its key moves up."""
        if delivery.state is State.READY:
            self.ready_count -= 1
        delivery.state = state
        delivery.lease = None
        key = delivery.message.ordering_key
        line = self._keys.get(key) if self.spec.ordered and key else None
        if line is None or line[0] is not delivery:
            return
        while line and line[0].state in (State.ACKED, State.GONE):
            line.popleft()
        if not line:
            del self._keys[key]
        elif line[0].state is State.BLOCKED:
            self._make_ready(line[0])

    # -- consumers

    def join(self, consumer: Consumer, now: float) -> None:
        """A stream opened."""
        self.used = now
        self.consumers.append(consumer)

    def leave(self, consumer: Consumer, now: float) -> None:
        """A stream closed: others get its messages at once.

        Its ack ids stay good until their deadline, because clients close the stream first and
        send the acks of running callbacks after. Exactly-once keeps the leases instead: handing
        a message out twice within its deadline is what it guarantees not to do.
        """
        self.used = now
        self.consumers.remove(consumer)
        held = [lease for lease in self._leases.values() if lease.consumer is consumer]
        for lease in reversed(held):
            lease.consumer = None
            if self.spec.exactly_once:
                continue
            lease.delivery.lease = None
            if lease.delivery.state is State.LEASED:
                self._hand_back(lease.delivery)

    def _hand_back(self, delivery: Delivery) -> None:
        # A crash of the consumer is a failed attempt: a message that kills it must die some day.
        dead = self.spec.dead_letter
        if dead is not None and delivery.attempts >= dead.max_attempts:
            self._ledger.dead.append((self, delivery))
        else:
            self._make_ready(delivery, first=True)

    # -- time

    def tick(self, now: float) -> None:
        """Ends what is due: leases, back-offs, retention."""
        if self.consumers:
            self.used = now
        while self._expiries and self._expiries[0][0] <= now:
            _, _, lease = heapq.heappop(self._expiries)
            if self._leases.get(lease.ack_id) is not lease:
                continue
            if lease.deadline > now:
                heapq.heappush(self._expiries, (lease.deadline, next(self._serial), lease))
                continue
            self._end(lease)
            self._failed(lease, now)
        while self._waits and self._waits[0][0] <= now:
            _, _, delivery = heapq.heappop(self._waits)
            if delivery.state is State.WAITING:
                self._make_ready(delivery)
        self._retire(now)

    def _retire(self, now: float) -> None:
        old: list[Delivery] = []
        for delivery in self.deliveries.values():
            if delivery.message.published + self.spec.retention_s > now:
                break
            old.append(delivery)
        for delivery in old:
            self._leave_line(delivery, State.GONE)
        if old:
            self._drop(old)

    def next_due(self) -> float:
        """When `tick` has something to do again."""
        due = math.inf
        if self._expiries:
            due = self._expiries[0][0]
        if self._waits:
            due = min(due, self._waits[0][0])
        oldest = next(iter(self.deliveries.values()), None)
        if oldest is not None:
            due = min(due, oldest.message.published + self.spec.retention_s)
        if self.consumers or self.used > self.saved:
            due = min(due, self.saved + USED_SAVED_EVERY_S)
        if self.spec.ttl_s is not None and not self.consumers:
            due = min(due, self.used + self.spec.ttl_s)
        return due

    def unused(self, now: float) -> bool:
        """Past its expiration policy."""
        ttl_s = self.spec.ttl_s
        return ttl_s is not None and not self.consumers and self.used + ttl_s <= now

    def _prune(self) -> None:
        if len(self._expiries) > 2 * len(self._leases) + _HEAP_SLACK:
            live = self._leases.values()
            self._expiries = [(lease.deadline, next(self._serial), lease) for lease in live]
            heapq.heapify(self._expiries)
        if len(self._acked_lately) > 10 * _HEAP_SLACK:
            for ack_id in list(self._acked_lately)[: 5 * _HEAP_SLACK]:
                del self._acked_lately[ack_id]

    # -- seek

    def seek(self, moment: float, replayed: Iterable[Message], now: float) -> None:
        """Older messages count as acknowledged, newer ones as not; every lease ends."""
        for lease in list(self._leases.values()):
            self._end(lease)
        for message in replayed:
            if message.id not in self.deliveries:
                message.refs += 1
                self.deliveries[message.id] = Delivery(message)
        everything = sorted(self.deliveries.values(), key=lambda d: d.message.id)
        self._ready.clear()
        self._keys.clear()
        self._waits.clear()
        self._expiries.clear()
        self._acked_lately.clear()
        self.ready_count = 0
        self.deliveries = {}
        older = [d for d in everything if d.message.published < moment]
        newer = [d for d in everything if d.message.published >= moment]
        for delivery in everything:
            self.deliveries[delivery.message.id] = delivery
            delivery.lease = None
        for delivery in older:
            delivery.state = State.ACKED if self.spec.retain_acked else State.GONE
        for delivery in newer:
            self._line_up(delivery)
        self._record_acked(older)
        if newer:
            self._mark(newer)
        self.used = now

    def respec(self, spec: SubscriptionSpec, now: float) -> None:
        """New settings; filter, ordering, name and topic never change while messages wait."""
        self.spec = spec
        self.used = now
        if not spec.retain_acked:
            kept = [d for d in self.deliveries.values() if d.state is State.ACKED]
            for delivery in kept:
                delivery.state = State.GONE
            if kept:
                self._drop(kept)

    def close(self) -> None:
        """Deleted: gives all its messages up."""
        self.gone = True
        self._ledger.forget(delivery.message for delivery in self.deliveries.values())
        self.deliveries.clear()
        self._ready.clear()
        self._leases.clear()
        self.ready_count = 0
        self._ledger.woken.add(self)
