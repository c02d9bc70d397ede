"""One suite for every Pub/Sub server, through Google's own unmodified client: publish and pull.

Where servers differ, KNOWN_DIFFERENCES of tests/localbus/contract.py says how.
"""

from __future__ import annotations

import time

import pytest
from google.api_core import exceptions

from tests.localbus.contract import PROJECT, WAIT_S, Hub, NewLine, serial, texts

pytestmark = pytest.mark.slow


# -- publish, pull, ack
def test_message_arrives_as_it_was_sent(line: NewLine) -> None:
    """Data, attributes, id and publish time come through; delivery_attempt is 0."""
    bus = line()
    before = time.time()
    (message_id,) = bus.publish("hello", colour="red", empty="")
    (received,) = bus.pull()
    assert received.message.data == b"hello"
    assert dict(received.message.attributes) == {"colour": "red", "empty": ""}
    assert received.message.message_id == message_id
    assert abs(received.message.publish_time.timestamp() - before) < 5
    assert received.delivery_attempt == 0
    bus.ack(received)


def test_acked_message_does_not_come_again(line: NewLine) -> None:
    """After an ack the subscription is empty."""
    bus = line()
    bus.publish("one")
    bus.ack(*bus.pull())
    assert bus.pull_now() == []


def test_leased_message_is_not_given_to_another(line: NewLine) -> None:
    """While its lease lasts, a message is not pulled twice."""
    bus = line()
    bus.publish("one")
    (received,) = bus.pull()
    assert bus.pull_now() == []
    bus.ack(received)


def test_nacked_message_comes_again_at_once(line: NewLine) -> None:
    """Without a retry policy a nack redelivers, with a new ack id."""
    bus = line()
    bus.publish("one")
    (first,) = bus.pull()
    bus.nack(first)
    (second,) = bus.pull(seconds=5)
    assert second.message.message_id == first.message.message_id
    bus.ack(second)


def test_every_subscription_gets_its_copy(hub: Hub, line: NewLine) -> None:
    """Two subscriptions on one topic each get every message."""
    bus = line()
    other = line()
    hub.subscriber.delete_subscription(subscription=other.subscription)
    other.topic, kept = bus.topic, other.topic
    other.create()
    bus.publish("one")
    assert texts(bus.pull()) == texts(other.pull()) == ["one"]
    other.topic = kept


def test_subscription_sees_only_what_came_after_it(hub: Hub) -> None:
    """A message published before the subscription existed is not delivered."""
    number = next(serial)
    topic = f"projects/{PROJECT}/topics/early-{number}"
    name = f"projects/{PROJECT}/subscriptions/late-{number}"
    hub.publisher.create_topic(name=topic)
    hub.publisher.publish(topic, b"early").result(WAIT_S)
    hub.subscriber.create_subscription(name=name, topic=topic)
    hub.publisher.publish(topic, b"late").result(WAIT_S)
    answer = hub.subscriber.pull(subscription=name, max_messages=10, timeout=WAIT_S)
    assert texts(list(answer.received_messages)) == ["late"]
    hub.subscriber.delete_subscription(subscription=name)
    hub.publisher.delete_topic(topic=topic)


def test_thousand_messages_in_one_publish(line: NewLine) -> None:
    """A publish takes 1000 messages, and 1001 are refused."""
    bus = line()
    ids = bus.publish(*[f"m{number}" for number in range(1000)])
    assert len(set(ids)) == 1000
    with pytest.raises(exceptions.InvalidArgument):
        bus.publish(*["m"] * 1001)


def test_expired_lease(hub: Hub, line: NewLine) -> None:
    """A message that is not acked in time comes again, and its first ack id is worthless then.

    Between expiry and redelivery servers differ. The second subscription is the clock: its lease
    is younger, so when its message comes again the first one's lease has expired.
    """
    bus = line(ack_deadline_seconds=10, enable_exactly_once_delivery=True)
    clock = line(ack_deadline_seconds=10, enable_exactly_once_delivery=True)
    bus.publish("late")
    clock.publish("tick")
    (late,) = bus.pull()
    (first,) = clock.pull()
    leased = time.monotonic()
    (second,) = clock.pull(seconds=20)
    assert 8 < time.monotonic() - leased < 20
    assert second.message.message_id == first.message.message_id
    with pytest.raises(exceptions.InvalidArgument, match="EXACTLY_ONCE_ACKID_FAILURE"):
        clock.ack(first)
    clock.ack(second)
    if hub.expected("ack between expiry and redelivery (exactly once)") == "accepted":
        bus.ack(late)
        assert bus.pull_now() == []
    else:
        with pytest.raises(exceptions.InvalidArgument, match="EXACTLY_ONCE_ACKID_FAILURE"):
            bus.ack(late)
        assert texts(bus.pull()) == ["late"]
