"""The contract of every Pub/Sub server: streaming pull."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest
from google.cloud.pubsub_v1.subscriber.exceptions import (
    AcknowledgeStatus,
)
from google.pubsub_v1 import types

from tests.localbus.contract import WAIT_S, Hub, Line, NewLine

pytestmark = pytest.mark.slow


# -- streaming pull
def consume(hub: Hub, bus: Line, callback: Callable[[Any], None], **options: Any) -> Any:
    return hub.subscriber.subscribe(bus.subscription, callback, **options)


def end(future: Any) -> None:
    future.cancel()
    future.result(WAIT_S)


def test_stream_delivers_each_message_once(hub: Hub, line: NewLine) -> None:
    """Every message reaches the callback once and is gone after its ack."""
    bus = line()
    sent = {f"m{number}" for number in range(200)}
    got: queue.Queue[str] = queue.Queue()

    def callback(message: Any) -> None:
        message.ack()
        got.put(message.data.decode())

    future = consume(hub, bus, callback)
    bus.publish(*sent)
    seen = [got.get(timeout=WAIT_S) for _ in sent]
    end(future)
    assert sorted(seen) == sorted(sent)


def test_stream_keeps_order_within_a_key(hub: Hub, line: NewLine) -> None:
    """With ordering on, each key's messages come in the order they were published."""
    bus = line(enable_message_ordering=True)
    got: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    done = threading.Event()

    def callback(message: Any) -> None:
        got[message.ordering_key].append(int(message.data))
        message.ack()
        if sum(map(len, got.values())) >= 30:
            done.set()

    future = consume(hub, bus, callback)
    for number in range(10):
        for key in got:
            bus.publish(str(number), key=key)
    assert done.wait(WAIT_S), got
    end(future)
    assert got == {key: list(range(10)) for key in got}


def test_flow_control_bounds_what_a_stream_holds(hub: Hub, line: NewLine) -> None:
    """A stream that asked for at most 3 outstanding messages is not sent a fourth unacked."""
    bus = line()
    bus.publish(*[f"m{number}" for number in range(9)])
    requests: queue.Queue[Any] = queue.Queue()
    requests.put(
        types.StreamingPullRequest(
            subscription=bus.subscription,
            stream_ack_deadline_seconds=30,
            max_outstanding_messages=3,
        )
    )
    stream = hub.subscriber.streaming_pull(requests=iter(requests.get, None), timeout=WAIT_S)
    most = 3 if hub.expected("max_outstanding_messages of a stream") == "obeyed" else 9
    total, held = 0, 0
    for answer in stream:
        ids = [message.ack_id for message in answer.received_messages]
        total, held = total + len(ids), held + len(ids)
        assert held <= most
        if ids and total < 9:
            held -= len(ids)
            requests.put(types.StreamingPullRequest(ack_ids=ids))
        if total == 9:
            bus.hub.subscriber.acknowledge(subscription=bus.subscription, ack_ids=ids)
            break
    requests.put(None)
    stream.cancel()


def test_exactly_once_ack_is_confirmed(hub: Hub, line: NewLine) -> None:
    """ack_with_response() succeeds within the lease."""
    bus = line(enable_exactly_once_delivery=True)
    verdicts: queue.Queue[Any] = queue.Queue()
    future = consume(hub, bus, lambda message: verdicts.put(message.ack_with_response()))
    bus.publish("a", "b", "c")
    for _ in range(3):
        assert verdicts.get(timeout=WAIT_S).result(WAIT_S) is AcknowledgeStatus.SUCCESS
    end(future)


# Not asked of the emulator: how long its zombies keep a message is too erratic to state as a fact.
@pytest.mark.parametrize("hub", ["localbus"], indirect=True)
def test_next_subscriber_takes_over(hub: Hub, line: NewLine) -> None:
    """When one subscriber leaves, the next one gets the messages without delay."""
    assert hub.expected("a subscriber that comes after another left") == "gets messages at once"
    bus = line(ack_deadline_seconds=60)
    first: queue.Queue[Any] = queue.Queue()
    future = consume(hub, bus, first.put)
    bus.publish("held", "held too")
    first.get(timeout=WAIT_S)
    first.get(timeout=WAIT_S)
    end(future)
    second: queue.Queue[str] = queue.Queue()

    def callback(message: Any) -> None:
        second.put(message.data.decode())
        message.ack()

    future = consume(hub, bus, callback)
    assert {second.get(timeout=WAIT_S), second.get(timeout=WAIT_S)} == {"held", "held too"}
    end(future)
