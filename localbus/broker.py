"""Topics and subscriptions as one state machine. Pure: no wires, no disk, time is an argument.

Every operation leaves its writes and the subscriptions to wake in `ledger`; the driver (bus.py)
takes them from there. Publishing is in two steps, `stage` and `apply`, because a message may be
seen only after it is on disk.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Protocol

from localbus.changes import (
    JournalContent,
    MessagesAdded,
    SubscriptionDropped,
    SubscriptionSaved,
    TopicDropped,
    TopicSaved,
)
from localbus.delivery import Delivery, Ledger
from localbus.errors import Exists, FailedPrecondition, Full, Missing, invalid
from localbus.model import (
    DELETED_TOPIC,
    IncomingMessage,
    Message,
    SubscriptionSpec,
    TopicSpec,
    check_incoming,
    check_name,
    check_subscription,
    check_topic,
)
from localbus.subscription import USED_SAVED_EVERY_S, Subscription
from localbus.topic import Topic

# Message ids grow over restarts without a write per message: the start's number leads.
_IDS_PER_BOOT = 10**12
_IMMUTABLE = ("name", "topic", "filter", "ordered")


class Codec(Protocol):
    """The door's own form of a message, sealed into bytes with its id and time."""

    def seal(self, raw: object, message_id: int, published: float) -> bytes:
        """The bytes that go to disk and into answers."""
        ...

    def reseal(
        self, body: bytes, extra: dict[str, str], message_id: int, published: float
    ) -> bytes:
        """The same message again under another id, with more attributes."""
        ...


@dataclass(frozen=True, slots=True)
class Staged:
    """A publish that is decided and not yet visible; write `change`, then `apply`."""

    topic: Topic
    messages: tuple[Message, ...]
    audiences: tuple[list[Subscription], ...]
    change: MessagesAdded | None


class Broker:
    """All topics and subscriptions."""

    def __init__(self, codec: Codec, *, stored_bytes_max: int = 2 << 30) -> None:
        self.ledger = Ledger()
        self._codec = codec
        self._stored_bytes_max = stored_bytes_max
        self._topics: dict[str, Topic] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._message_ids: Iterator[int] = count(1)
        self._subscription_ids = count(1)
        self._ack_ids: Iterator[str] = (f"0-{serial:x}" for serial in count(1))
        self._timers: list[tuple[float, int, Subscription]] = []
        self._timer_serial = count()

    def restore(self, stored: JournalContent, now: float) -> None:
        """What the journal kept. Leases are not kept: everything unacked is ready again."""
        boot = stored.boot
        self._message_ids = count(boot * _IDS_PER_BOOT + 1)
        self._ack_ids = (f"{boot:x}-{serial:x}" for serial in count(1))
        for topic_spec in stored.topics:
            self._topics[topic_spec.name] = Topic(topic_spec)
        for saved in stored.subscriptions:
            self._add_subscription(saved.id, saved.spec, saved.used)
        by_id = {s.id: s for s in self._subscriptions.values()}
        self._subscription_ids = count(max(by_id, default=0) + 1)
        messages = {message.id: message for message in stored.messages}
        for row in stored.deliveries:
            if row.subscription in by_id and row.message in messages:
                by_id[row.subscription].offer(messages[row.message], row.attempts, row.acked)
        for message in stored.messages:
            self.ledger.stored_bytes += len(message.body)
            self._retain(self._topics.get(message.topic), message)
        unwanted = [message for message in stored.messages if message.refs == 0]
        for message in unwanted:
            message.refs = 1
        self.ledger.forget(unwanted)
        for subscription in list(self._subscriptions.values()):
            self._look_at(subscription, now)

    # -- topics

    def create_topic(self, spec: TopicSpec) -> TopicSpec:
        """A new topic."""
        check_topic(spec)
        if spec.name in self._topics:
            raise Exists(f"topic {spec.name} exists already")
        self._topics[spec.name] = Topic(spec)
        self.ledger.changes.append(TopicSaved(spec))
        return spec

    def topic(self, name: str) -> Topic:
        """The topic of that name."""
        found = self._topics.get(name)
        if found is None:
            check_name("topic", name, "topics")
            raise Missing(f"topic {name} does not exist")
        return found

    def topics(self, project: str) -> list[TopicSpec]:
        """All topics of `projects/P`, by name."""
        prefix = project + "/"
        return [self._topics[name].spec for name in sorted(self._topics) if name.startswith(prefix)]

    def update_topic(self, spec: TopicSpec) -> TopicSpec:
        """New labels or retention."""
        topic = self.topic(spec.name)
        check_topic(spec)
        spec = replace(spec, policy=topic.spec.policy)
        topic.spec = spec
        self.ledger.changes.append(TopicSaved(spec))
        if spec.retention_s is None:
            self.ledger.forget(topic.retained)
            topic.retained.clear()
        return spec

    def delete_topic(self, name: str) -> None:
        """Its subscriptions stay, with what they hold, and get nothing new."""
        topic = self.topic(name)
        del self._topics[name]
        self.ledger.changes.append(TopicDropped(name))
        self.ledger.forget(topic.retained)
        for subscription in topic.subscriptions.values():
            subscription.spec = replace(subscription.spec, topic=DELETED_TOPIC)
            self._save(subscription)

    # -- subscriptions

    def create_subscription(self, spec: SubscriptionSpec, now: float) -> Subscription:
        """A new subscription; it gets what is published from now on."""
        check_subscription(spec)
        if spec.name in self._subscriptions:
            raise Exists(f"subscription {spec.name} exists already")
        self.topic(spec.topic)
        self._check_dead_letter(spec)
        subscription = self._add_subscription(next(self._subscription_ids), spec, now)
        self._save(subscription)
        self._look_at(subscription, now)
        return subscription

    def _check_dead_letter(self, spec: SubscriptionSpec) -> None:
        if spec.dead_letter is not None:
            self.topic(spec.dead_letter.topic)

    def _add_subscription(self, id_: int, spec: SubscriptionSpec, used: float) -> Subscription:
        subscription = Subscription(id_, spec, used, self.ledger, self._ack_ids)
        self._subscriptions[spec.name] = subscription
        if spec.topic in self._topics and not spec.detached:
            self._topics[spec.topic].attach(subscription)
        return subscription

    def _save(self, subscription: Subscription) -> None:
        change = SubscriptionSaved(subscription.id, subscription.spec, subscription.used)
        self.ledger.changes.append(change)
        subscription.saved = subscription.used

    def subscription(self, name: str) -> Subscription:
        """The subscription of that name."""
        found = self._subscriptions.get(name)
        if found is None:
            check_name("subscription", name, "subscriptions")
            raise Missing(f"subscription {name} does not exist")
        return found

    def subscriptions(self, project: str) -> list[SubscriptionSpec]:
        """All subscriptions of `projects/P`, by name."""
        prefix = project + "/"
        names = sorted(name for name in self._subscriptions if name.startswith(prefix))
        return [self._subscriptions[name].spec for name in names]

    def update_subscription(self, spec: SubscriptionSpec, now: float) -> Subscription:
        """New settings, where Google lets them change."""
        subscription = self.subscription(spec.name)
        for name in _IMMUTABLE:
            old, new = getattr(subscription.spec, name), getattr(spec, name)
            if old != new:
                raise invalid(name, new, f"{old!r}: it cannot be changed after creation")
        check_subscription(spec)
        self._check_dead_letter(spec)
        old = subscription.spec
        subscription.respec(replace(spec, policy=old.policy, detached=old.detached), now)
        self._save(subscription)
        self._look_at(subscription, now)
        return subscription

    def delete_subscription(self, name: str) -> None:
        """Gone, with what it held."""
        subscription = self.subscription(name)
        del self._subscriptions[name]
        if subscription.spec.topic in self._topics and not subscription.spec.detached:
            self._topics[subscription.spec.topic].detach(subscription)
        self.ledger.changes.append(SubscriptionDropped(subscription.id))
        subscription.close()

    def detach_subscription(self, name: str, now: float) -> None:
        """It loses what it holds and gets nothing any more; doing it again changes nothing."""
        subscription = self.subscription(name)
        topic = self._topics.get(subscription.spec.topic)
        if topic is not None and not subscription.spec.detached:
            topic.detach(subscription)
        subscription.seek(now, (), now)
        subscription.spec = replace(subscription.spec, detached=True)
        self._save(subscription)
        self.ledger.woken.add(subscription)
        self._look_at(subscription, now)

    def readable(self, name: str) -> Subscription:
        """The subscription of that name, for somebody who wants its messages."""
        subscription = self.subscription(name)
        if subscription.spec.detached:
            raise FailedPrecondition(f"subscription {name} is detached: it gets no messages")
        return subscription

    # -- policies

    def policy(self, name: str) -> str:
        """The IAM policy of a topic or subscription."""
        found = self.topic(name) if "/topics/" in name else self.subscription(name)
        return found.spec.policy

    def set_policy(self, name: str, policy: str) -> None:
        """Another policy for a topic or subscription."""
        if "/topics/" in name:
            topic = self.topic(name)
            topic.spec = replace(topic.spec, policy=policy)
            self.ledger.changes.append(TopicSaved(topic.spec))
        else:
            subscription = self.subscription(name)
            subscription.spec = replace(subscription.spec, policy=policy)
            self._save(subscription)

    def seek(self, name: str, moment: float, now: float) -> None:
        """Moves a subscription in time, over what it and its topic still hold."""
        subscription = self.subscription(name)
        topic = self._topics.get(subscription.spec.topic)
        held = topic.retained if topic is not None else ()
        replayed = [m for m in held if m.published >= moment and subscription.wants(m)]
        subscription.seek(moment, replayed, now)
        self._look_at(subscription, now)

    # -- publishing

    def stage(
        self,
        topic_name: str,
        incoming_messages: Sequence[IncomingMessage],
        total_bytes: int,
        now: float,
    ) -> Staged:
        """Ids, bytes and audience of a publish. Nothing is visible yet."""
        topic = self.topic(topic_name)
        check_incoming(incoming_messages, total_bytes)
        if self.ledger.stored_bytes + total_bytes > self._stored_bytes_max:
            raise Full(
                f"the bus holds {self.ledger.stored_bytes} bytes of unacknowledged messages,"
                f" expected at most {self._stored_bytes_max}: acknowledge or delete some first"
            )
        messages = tuple(self._sealed(topic, incoming, now) for incoming in incoming_messages)
        return self._staged(topic, messages)

    def _sealed(self, topic: Topic, incoming: IncomingMessage, now: float) -> Message:
        id_ = next(self._message_ids)
        body = self._codec.seal(incoming.raw, id_, now)
        return Message(id_, topic.spec.name, now, incoming.attributes, incoming.ordering_key, body)

    def _staged(self, topic: Topic, messages: tuple[Message, ...]) -> Staged:
        audiences = tuple(topic.audience(message) for message in messages)
        pairs = list(zip(messages, audiences, strict=True))
        retains = topic.spec.retention_s is not None
        kept = tuple(message for message, audience in pairs if audience or retains)
        deliveries = tuple((s.id, message.id) for message, audience in pairs for s in audience)
        change = MessagesAdded(kept, deliveries) if kept else None
        return Staged(topic, messages, audiences, change)

    def apply(self, staged: Staged, now: float) -> None:
        """Makes a publish visible, after it is on disk."""
        touched: set[Subscription] = set()
        written = staged.change.messages if staged.change is not None else ()
        for message in written:
            self.ledger.stored_bytes += len(message.body)
            message.refs += 1  # held here until all have their own hold
        for message, audience in zip(staged.messages, staged.audiences, strict=True):
            for subscription in audience:
                if not subscription.gone:
                    subscription.offer(message)
                    touched.add(subscription)
            if message.refs:
                self._retain(staged.topic, message)
        self.ledger.forget(written)
        for subscription in touched:
            self._look_at(subscription, now)

    def _retain(self, topic: Topic | None, message: Message) -> None:
        if topic is None or topic.spec.retention_s is None:
            return
        message.refs += 1
        topic.retained.append(message)
        self._retire(topic, message.published)

    def _retire(self, topic: Topic, now: float) -> None:
        # Swept by the next publish and by `tick`; until then it costs disk, never correctness.
        horizon = now - (topic.spec.retention_s or 0.0)
        old: list[Message] = []
        while topic.retained and topic.retained[0].published <= horizon:
            old.append(topic.retained.popleft())
        self.ledger.forget(old)

    # -- time

    def settle(self, subscription: Subscription, now: float) -> None:
        """After any use of a subscription: its dead letters, and its next moment."""
        if self.ledger.dead:
            self._bury_dead(now)
        self._look_at(subscription, now)

    def next_due(self) -> float:
        """When `tick` is wanted; infinity when nothing waits."""
        return self._timers[0][0] if self._timers else math.inf

    def tick(self, now: float) -> None:
        """Ends leases, back-offs, retention and unused subscriptions that are due."""
        due_now: list[Subscription] = []
        while self._timers and self._timers[0][0] <= now:
            due, _, subscription = heapq.heappop(self._timers)
            if not subscription.gone and due == subscription.scheduled:
                subscription.scheduled = math.inf
                due_now.append(subscription)
        for subscription in due_now:
            self._tick_one(subscription, now)
        for topic in self._topics.values():
            if topic.retained:
                self._retire(topic, now)

    def _tick_one(self, subscription: Subscription, now: float) -> None:
        subscription.tick(now)
        if subscription.unused(now):
            self.delete_subscription(subscription.spec.name)
            return
        if (
            subscription.used > subscription.saved
            and subscription.saved + USED_SAVED_EVERY_S <= now
        ):
            self._save(subscription)
        self.settle(subscription, now)

    def _look_at(self, subscription: Subscription, now: float) -> None:
        due = max(subscription.next_due(), now)
        if not subscription.gone and due < subscription.scheduled:
            subscription.scheduled = due
            heapq.heappush(self._timers, (due, next(self._timer_serial), subscription))

    # -- dead letters

    def _bury_dead(self, now: float) -> None:
        dead, self.ledger.dead = self.ledger.dead, []
        for subscription, delivery in dead:
            policy = subscription.spec.dead_letter
            topic = self._topics.get(policy.topic) if policy is not None else None
            if topic is None:
                subscription.retry(delivery, now)
            else:
                self._forward(subscription, delivery, topic, now)

    def _forward(
        self, subscription: Subscription, delivery: Delivery, topic: Topic, now: float
    ) -> None:
        """Copy in, original out, in one write. A crash before it sends the copy again."""
        name = subscription.spec.name.split("/")
        extra = {
            "CloudPubSubDeadLetterSourceDeliveryCount": str(delivery.attempts),
            "CloudPubSubDeadLetterSourceSubscription": name[3],
            "CloudPubSubDeadLetterSourceSubscriptionProject": name[1],
            "CloudPubSubDeadLetterSourceTopicPublishTime": _rfc3339(delivery.message.published),
        }
        id_ = next(self._message_ids)
        old = delivery.message
        body = self._codec.reseal(old.body, extra, id_, now)
        copy = Message(
            id_, topic.spec.name, now, {**old.attributes, **extra}, old.ordering_key, body
        )
        staged = self._staged(topic, (copy,))
        if staged.change is not None:
            self.ledger.changes.append(staged.change)
        subscription.bury(delivery)
        self.apply(staged, now)


def _rfc3339(moment: float) -> str:
    text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
