"""Streams of a running localbus, spoken to request by request."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.pubsub_v1 import PublisherClient, SubscriberClient, types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from tests.localbus import backends

pytestmark = pytest.mark.slow

_serial = itertools.count(1)


class Desk:
    """A fresh topic and subscription on the running bus."""

    def __init__(self, channel: grpc.Channel, **settings: Any) -> None:
        self.publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        self.subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        number = next(_serial)
        self.topic = f"projects/proj/topics/topic-{number}"
        self.name = f"projects/proj/subscriptions/sub-{number}"
        self.publisher.create_topic(name=self.topic)
        request = {"name": self.name, "topic": self.topic, **settings}
        self.subscriber.create_subscription(request=request)

    def publish(self, *texts: str) -> None:
        messages = [types.PubsubMessage(data=text.encode()) for text in texts]
        self.publisher.publish(topic=self.topic, messages=messages)

    def stream(self, **settings: Any) -> Stream:
        return Stream(self, **settings)


class Stream:
    """One StreamingPull call."""

    def __init__(self, desk: Desk, **settings: Any) -> None:
        self._requests: queue.Queue[Any] = queue.Queue()
        request = {"subscription": desk.name, "stream_ack_deadline_seconds": 10, **settings}
        self._requests.put(types.StreamingPullRequest(request))
        calls = iter(self._requests.get, None)
        self.call: Any = desk.subscriber.streaming_pull(requests=calls, timeout=20)
        self._answers = iter(self.call)

    def send(self, **fields: Any) -> None:
        self._requests.put(types.StreamingPullRequest(fields))

    def answer(self) -> Any:
        return next(self._answers)

    def close(self) -> None:
        self._requests.put(None)
        self.call.cancel()


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpc.Channel]:
    data = tmp_path_factory.mktemp("bus")
    with (
        backends.localbus(data, "--no-fsync") as bus,
        grpc.insecure_channel(bus.address) as opened,
    ):
        yield opened


def test_exactly_once_stream_says_which_acks_were_good(channel: grpc.Channel) -> None:
    """Acks sent on the stream are confirmed on it; an unknown or late ack id is invalid there."""
    desk = Desk(channel, enable_exactly_once_delivery=True)
    stream = desk.stream()
    desk.publish("one")
    first = stream.answer()
    assert first.subscription_properties.exactly_once_delivery_enabled
    good = first.received_messages[0].ack_id
    stream.send(ack_ids=[good, "0-late"])
    verdict = stream.answer().acknowledge_confirmation
    assert (list(verdict.ack_ids), list(verdict.invalid_ack_ids)) == ([good], ["0-late"])
    stream.send(modify_deadline_ack_ids=["0-late"], modify_deadline_seconds=[20])
    assert list(stream.answer().modify_ack_deadline_confirmation.invalid_ack_ids) == ["0-late"]
    stream.close()


def test_partly_good_acks_can_be_repeated(channel: grpc.Channel) -> None:
    """Of a mixed batch the good ids are acked, the call is ABORTED, and repeating them succeeds."""
    desk = Desk(channel, enable_exactly_once_delivery=True)
    desk.publish("one")
    pulled = desk.subscriber.pull(subscription=desk.name, max_messages=1)
    good = pulled.received_messages[0].ack_id
    with pytest.raises(exceptions.Aborted, match="PERMANENT_FAILURE_INVALID_ACK_ID"):
        desk.subscriber.acknowledge(subscription=desk.name, ack_ids=[good, "0-late"])
    desk.subscriber.acknowledge(subscription=desk.name, ack_ids=[good])


def test_stream_of_a_deleted_subscription_ends(channel: grpc.Channel) -> None:
    """Deleting a subscription ends its open streams with NOT_FOUND."""
    desk = Desk(channel)
    stream = desk.stream()
    desk.publish("one")
    stream.answer()
    desk.subscriber.delete_subscription(subscription=desk.name)
    with pytest.raises(exceptions.NotFound):
        stream.answer()


def test_lost_stream_hands_its_messages_over(channel: grpc.Channel) -> None:
    """What a stream held when it went is delivered to another one that was already waiting."""
    desk = Desk(channel)
    holder = desk.stream()
    desk.publish("one")
    held = holder.answer().received_messages[0].message.message_id
    waiter = desk.stream()
    holder.close()
    assert waiter.answer().received_messages[0].message.message_id == held
    waiter.close()


def test_streams_share_a_backlog(channel: grpc.Channel) -> None:
    """Two streams that wait both get a part of what comes."""
    desk = Desk(channel)
    streams = [desk.stream(max_outstanding_messages=1000) for _ in range(2)]
    for stream in streams:
        stream.call.initial_metadata()  # comes when the bus has opened the stream
    desk.publish(*[str(number) for number in range(100)])
    counts = [len(stream.answer().received_messages) for stream in streams]
    assert all(count > 0 for count in counts)
    for stream in streams:
        stream.close()


@pytest.mark.parametrize(
    "settings", [{"stream_ack_deadline_seconds": 5}, {"stream_ack_deadline_seconds": 601}], ids=str
)
def test_bad_stream_settings_are_refused(channel: grpc.Channel, settings: dict[str, Any]) -> None:
    """A stream's ack deadline is 10 to 600 s."""
    stream = Desk(channel).stream(**settings)
    with pytest.raises(exceptions.InvalidArgument, match="stream_ack_deadline_seconds"):
        stream.answer()


def test_uneven_deadline_lists_are_refused(channel: grpc.Channel) -> None:
    """One deadline per ack id."""
    stream = Desk(channel).stream()
    stream.send(modify_deadline_ack_ids=["a", "b"], modify_deadline_seconds=[10])
    with pytest.raises(exceptions.InvalidArgument, match="modify_deadline_seconds"):
        stream.answer()
