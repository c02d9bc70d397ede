"""A Pub/Sub server under contract, and a topic with its subscription on it."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import google.cloud.pubsub_v1 as pubsub_v1
import pytest
from google.api_core import exceptions
from google.protobuf import duration_pb2
from google.pubsub_v1 import PublisherClient as OnePublish
from google.pubsub_v1 import types

PROJECT = "contract"
WAIT_S = 15.0


# What a server does where servers are known to differ. "localbus" is what Google's documentation
# says of the real service; "google-emulator" was observed on version 0.8.20.
KNOWN_DIFFERENCES: dict[str, dict[str, str]] = {
    "filter is evaluated": {"localbus": "yes", "google-emulator": "no"},
    "bad filter": {"localbus": "refused", "google-emulator": "accepted"},
    "first retry under a retry policy": {
        "localbus": "after the minimum back-off",
        "google-emulator": "at once",
    },
    "ack between expiry and redelivery (exactly once)": {
        "localbus": "refused",
        "google-emulator": "accepted",
    },
    "ordered messages after a nack of the first": {
        "localbus": "from the nacked one",
        "google-emulator": "nacked one last",
    },
    "a subscriber that comes after another left": {
        "localbus": "gets messages at once",
        "google-emulator": "may wait a minute for the zombie of the first",
    },
    "labels of a subscription": {"localbus": "can change", "google-emulator": "fixed"},
    "max_outstanding_messages of a stream": {"localbus": "obeyed", "google-emulator": "ignored"},
    "ack deadline below 10 s": {"localbus": "refused", "google-emulator": "accepted"},
    "bad number of delivery attempts": {
        "localbus": "INVALID_ARGUMENT",
        "google-emulator": "OUT_OF_RANGE",
    },
}


@dataclass(frozen=True)
class Hub:
    """One server and Google's clients for it."""

    name: str
    publisher: Any
    subscriber: Any

    def expected(self, difference: str) -> str:
        return KNOWN_DIFFERENCES[difference][self.name]


def connect(name: str, address: str) -> Iterator[Hub]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUBSUB_EMULATOR_HOST", address)
        publisher = pubsub_v1.PublisherClient(
            publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
        )
        subscriber = pubsub_v1.SubscriberClient()
    yield Hub(name, publisher, subscriber)
    publisher.stop()
    publisher.transport.close()
    subscriber.close()


serial = itertools.count(1)


def publish_once(hub: Hub, topic: str, messages: list[Any]) -> Any:
    """One Publish call with exactly these messages, past the client's batching."""
    return OnePublish.publish(hub.publisher, topic=topic, messages=messages)


class Line:
    """A fresh topic with a fresh subscription."""

    def __init__(self, hub: Hub, **settings: Any) -> None:
        self.hub = hub
        number = next(serial)
        self.topic = f"projects/{PROJECT}/topics/topic-{number}"
        self.subscription = f"projects/{PROJECT}/subscriptions/sub-{number}"
        hub.publisher.create_topic(name=self.topic)
        self.create(**settings)

    def create(self, **settings: Any) -> Any:
        request = {"name": self.subscription, "topic": self.topic, **settings}
        return self.hub.subscriber.create_subscription(request=request)

    def publish(self, *texts: str, key: str = "", **attributes: str) -> list[str]:
        messages = [
            types.PubsubMessage(data=text.encode(), ordering_key=key, attributes=attributes)
            for text in texts
        ]
        answer = publish_once(self.hub, self.topic, messages)
        return list(answer.message_ids)

    def pull(self, wanted: int = 1, seconds: float = WAIT_S, **request: Any) -> list[Any]:
        """Waits until so many came, in as many answers as the server likes."""
        got: list[Any] = []
        deadline = time.monotonic() + seconds
        while len(got) < wanted:
            left = deadline - time.monotonic()
            assert left > 0, f"{len(got)} of {wanted} messages within {seconds} s"
            try:
                answer = self.hub.subscriber.pull(
                    subscription=self.subscription,
                    max_messages=wanted - len(got),
                    timeout=left,
                    retry=None,
                )
            except exceptions.DeadlineExceeded:
                continue
            got += answer.received_messages
        return got

    def pull_now(self) -> list[Any]:
        request = {"subscription": self.subscription, "max_messages": 10}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            answer = self.hub.subscriber.pull(request={**request, "return_immediately": True})
        return list(answer.received_messages)

    def ack(self, *received: Any) -> None:
        ids = [message.ack_id for message in received]
        self.hub.subscriber.acknowledge(subscription=self.subscription, ack_ids=ids)

    def modify(self, seconds: int, *received: Any) -> None:
        self.hub.subscriber.modify_ack_deadline(
            subscription=self.subscription,
            ack_ids=[message.ack_id for message in received],
            ack_deadline_seconds=seconds,
        )

    def nack(self, *received: Any) -> None:
        self.modify(0, *received)


NewLine = Callable[..., Line]


def texts(received: list[Any]) -> list[str]:
    return [message.message.data.decode() for message in received]


def seconds(number: int) -> duration_pb2.Duration:
    return duration_pb2.Duration(seconds=number)
