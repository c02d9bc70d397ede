"""A broker spoken to in short sentences: no wires, no disk, a clock that is a number."""

from __future__ import annotations

from typing import Any

from localbus.broker import Broker
from localbus.delivery import AckDeadline, Consumer
from localbus.model import DeadLetterPolicy, IncomingMessage, SubscriptionSpec, TopicSpec
from localbus.subscription import Subscription

TOPIC = "projects/proj/topics/topic"
GRAVE = "projects/proj/topics/grave"
NAME = "projects/proj/subscriptions/sub"


class TextCodec:
    """Bodies are the text itself."""

    def seal(self, raw: object, message_id: int, published: float) -> bytes:
        return str(raw).encode()

    def reseal(
        self, body: bytes, extra: dict[str, str], message_id: int, published: float
    ) -> bytes:
        return body


class Desk:
    """A broker with one topic and one subscription, spoken to in short sentences."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1_000_000.0
        limit = settings.pop("stored_bytes_max", 1 << 20)
        self.broker = Broker(TextCodec(), stored_bytes_max=limit)
        for name in (TOPIC, GRAVE):
            self.broker.create_topic(TopicSpec(name))
        self.sub = self.subscribe(NAME, **settings)

    def subscribe(self, name: str, topic: str = TOPIC, **settings: Any) -> Subscription:
        spec = SubscriptionSpec(name, topic, **settings)
        return self.broker.create_subscription(spec, self.now)

    def publish(self, *texts: str, key: str = "", topic: str = TOPIC, **attributes: str) -> None:
        incoming_messages = [IncomingMessage(attributes, key, len(text), text) for text in texts]
        staged = self.broker.stage(topic, incoming_messages, sum(map(len, texts)), self.now)
        if staged.change is not None:
            self.broker.ledger.changes.append(staged.change)
        self.broker.apply(staged, self.now)

    def take(
        self, at_most: int = 100, consumer: Consumer | None = None, sub: Subscription | None = None
    ) -> list[AckDeadline]:
        chosen = sub or self.sub
        leases = chosen.take(self.now, messages_max=at_most, bytes_max=1 << 20, consumer=consumer)
        self.broker.settle(chosen, self.now)
        return leases

    def texts(self, at_most: int = 100, sub: Subscription | None = None) -> list[str]:
        return [text_of(lease) for lease in self.take(at_most, sub=sub)]

    def ack(self, *leases: AckDeadline) -> list[str]:
        refused = self.sub.ack([lease.ack_id for lease in leases], self.now)
        self.broker.settle(self.sub, self.now)
        return refused

    def modify(self, seconds: int, *leases: AckDeadline) -> list[str]:
        deadlines = [(lease.ack_id, seconds) for lease in leases]
        refused = self.sub.modify(deadlines, self.now)
        self.broker.settle(self.sub, self.now)
        return refused

    def nack(self, *leases: AckDeadline) -> list[str]:
        return self.modify(0, *leases)

    def join(self, **limits: int) -> Consumer:
        consumer = Consumer(10, **limits)
        self.sub.join(consumer, self.now)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        self.sub.leave(consumer, self.now)
        self.broker.settle(self.sub, self.now)

    def pass_time(self, seconds: float) -> None:
        """Lets time pass as the driver does: by the broker's own timers."""
        end = self.now + seconds
        while (due := self.broker.next_due()) <= end:
            self.now = max(self.now, due)
            self.broker.tick(self.now)
        self.now = end


def text_of(lease: AckDeadline) -> str:
    return lease.delivery.message.body.decode()


def dead_letter_desk() -> tuple[Desk, Subscription]:
    desk = Desk(dead_letter=DeadLetterPolicy(GRAVE, 5))
    return desk, desk.subscribe("projects/proj/subscriptions/grave-sub", GRAVE)
