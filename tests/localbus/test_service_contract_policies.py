"""The contract of every Pub/Sub server: order, retries, dead letters, filters, seek."""

from __future__ import annotations

import time

import pytest
from google.api_core import exceptions
from google.protobuf import timestamp_pb2

from tests.localbus.contract import PROJECT, Hub, NewLine, seconds, texts

pytestmark = pytest.mark.slow


# -- ordering, retry, dead letters, filters, seek
def test_ordered_messages_after_a_nack(hub: Hub, line: NewLine) -> None:
    """A nack of an ordered message: what comes next, and in which order."""
    bus = line(enable_message_ordering=True)
    bus.publish("0", "1", "2", key="k")
    (first,) = bus.pull()
    assert texts([first]) == ["0"]
    bus.nack(first)
    order: list[str] = []
    while len(order) < 3:
        for received in bus.pull():
            order += texts([received])
            bus.ack(received)
    expected = {"from the nacked one": ["0", "1", "2"], "nacked one last": ["1", "2", "0"]}
    assert order == expected[hub.expected("ordered messages after a nack of the first")]


def test_keys_without_ordering_are_plain(line: NewLine) -> None:
    """On a subscription without ordering, messages of one key are pulled together."""
    bus = line()
    bus.publish("0", "1", key="k")
    received = bus.pull(2)
    assert sorted(texts(received)) == ["0", "1"]
    bus.ack(*received)


def test_retry_policy(hub: Hub, line: NewLine) -> None:
    """When a nacked message comes again under a retry policy of 2 s to 10 s."""
    policy = {"minimum_backoff": seconds(2), "maximum_backoff": seconds(10)}
    bus = line(retry_policy=policy)
    bus.publish("again")
    (first,) = bus.pull()
    bus.nack(first)
    nacked = time.monotonic()
    (second,) = bus.pull()
    gap = time.monotonic() - nacked
    if hub.expected("first retry under a retry policy") == "at once":
        assert gap < 1
    else:
        assert 1.8 < gap < 4
    bus.ack(second)


def test_dead_letter(line: NewLine) -> None:
    """After five failed attempts a message moves to the dead letter topic and says where from."""
    grave = line()
    policy = {"dead_letter_topic": grave.topic, "max_delivery_attempts": 5}
    bus = line(dead_letter_policy=policy)
    bus.publish("poison", colour="green")
    attempts = []
    for _ in range(5):
        (received,) = bus.pull()
        attempts.append(received.delivery_attempt)
        bus.nack(received)
    assert attempts == [1, 2, 3, 4, 5]
    assert bus.pull_now() == []
    (dead,) = grave.pull()
    attributes = dict(dead.message.attributes)
    assert dead.message.data == b"poison"
    assert attributes["colour"] == "green"
    assert attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert attributes["CloudPubSubDeadLetterSourceSubscription"] == bus.subscription.split("/")[3]
    assert attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] == PROJECT
    assert attributes["CloudPubSubDeadLetterSourceTopicPublishTime"]
    grave.ack(dead)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('attributes.colour = "red"', {"red"}),
        ('attributes.colour != "red"', {"blue", "rose", "none"}),
        ("attributes:colour", {"red", "blue", "rose"}),
        ("NOT attributes:colour", {"none"}),
        ('hasPrefix(attributes.colour, "r")', {"red", "rose"}),
        (
            '(attributes.colour = "red" OR attributes.colour = "blue") AND attributes:colour',
            {"red", "blue"},
        ),
    ],
)
def test_filter(hub: Hub, line: NewLine, text: str, wanted: set[str]) -> None:
    """A filter lets matching messages through; the others count as acknowledged."""
    bus = line(filter=text)
    for colour in ("red", "blue", "rose"):
        bus.publish(colour, colour=colour)
    bus.publish("none")
    if hub.expected("filter is evaluated") == "no":
        wanted = {"red", "blue", "rose", "none"}
    received = bus.pull(len(wanted))
    assert set(texts(received)) == wanted
    bus.ack(*received)
    assert bus.pull_now() == []


@pytest.mark.parametrize("text", ["nonsense", 'attributes.a = "1" AND b', "attributes.a = 1"])
def test_bad_filter(hub: Hub, line: NewLine, text: str) -> None:
    """A filter that does not parse."""
    bus = line()
    hub.subscriber.delete_subscription(subscription=bus.subscription)
    if hub.expected("bad filter") == "refused":
        with pytest.raises(exceptions.InvalidArgument):
            bus.create(filter=text)
        bus.create()
    else:
        assert bus.create(filter=text).filter == text


def test_seek_back_replays_acked_messages(hub: Hub, line: NewLine) -> None:
    """With retain_acked_messages, a seek into the past delivers again; into the future, purges."""
    bus = line(retain_acked_messages=True)
    bus.publish("kept")
    bus.ack(*bus.pull())
    past = timestamp_pb2.Timestamp(seconds=int(time.time()) - 60)
    hub.subscriber.seek(request={"subscription": bus.subscription, "time": past})
    assert texts(bus.pull()) == ["kept"]
    future = timestamp_pb2.Timestamp(seconds=int(time.time()) + 60)
    hub.subscriber.seek(request={"subscription": bus.subscription, "time": future})
    assert bus.pull_now() == []
