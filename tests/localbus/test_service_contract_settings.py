"""The contract of every Pub/Sub server: topics and subscriptions, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.api_core import exceptions
from google.protobuf import field_mask_pb2
from google.pubsub_v1 import types

from tests.localbus.contract import PROJECT, WAIT_S, Hub, NewLine, publish_once, seconds, texts

pytestmark = pytest.mark.slow


# -- administration
def test_settings_are_echoed(hub: Hub, line: NewLine) -> None:
    """GetSubscription shows what was asked for and Google's defaults."""
    bus = line(ack_deadline_seconds=33, filter="attributes:a", labels={"team": "x"})
    found = hub.subscriber.get_subscription(subscription=bus.subscription)
    assert found.ack_deadline_seconds == 33
    assert found.filter == "attributes:a"
    assert dict(found.labels) == {"team": "x"}
    assert found.topic == bus.topic
    assert found.message_retention_duration.total_seconds() == 7 * 86_400


def test_ack_deadline_can_change_and_filter_cannot(hub: Hub, line: NewLine) -> None:
    """UpdateSubscription changes the ack deadline and refuses the filter."""
    bus = line(filter="attributes:a")

    def update(path: str, **fields: Any) -> Any:
        changed = types.Subscription(name=bus.subscription, topic=bus.topic, **fields)
        mask = field_mask_pb2.FieldMask(paths=[path])
        return hub.subscriber.update_subscription(
            request={"subscription": changed, "update_mask": mask}
        )

    assert update("ack_deadline_seconds", ack_deadline_seconds=44).ack_deadline_seconds == 44
    with pytest.raises(exceptions.InvalidArgument):
        update("filter", filter="attributes:b")
    if hub.expected("labels of a subscription") == "can change":
        assert dict(update("labels", labels={"a": "b"}).labels) == {"a": "b"}
    else:
        with pytest.raises(exceptions.InvalidArgument):
            update("labels", labels={"a": "b"})


def test_names_are_taken_once(hub: Hub, line: NewLine) -> None:
    """A second topic or subscription of the same name is ALREADY_EXISTS."""
    bus = line()
    with pytest.raises(exceptions.AlreadyExists):
        hub.publisher.create_topic(name=bus.topic)
    with pytest.raises(exceptions.AlreadyExists):
        bus.create()


def test_missing_things_are_not_found(hub: Hub, line: NewLine) -> None:
    """Every call on a topic or subscription that is not there is NOT_FOUND."""
    bus = line()
    topic = f"projects/{PROJECT}/topics/never-made"
    name = f"projects/{PROJECT}/subscriptions/never-made"
    subscriber, publisher = hub.subscriber, hub.publisher
    calls: list[Callable[[], Any]] = [
        lambda: publisher.get_topic(topic=topic),
        lambda: publisher.delete_topic(topic=topic),
        lambda: publish_once(hub, topic, [types.PubsubMessage(data=b"x")]),
        lambda: subscriber.get_subscription(subscription=name),
        lambda: subscriber.delete_subscription(subscription=name),
        lambda: subscriber.pull(subscription=name, max_messages=1),
        lambda: subscriber.acknowledge(subscription=name, ack_ids=["x"]),
        lambda: subscriber.create_subscription(name=name, topic=topic),
    ]
    for call in calls:
        with pytest.raises(exceptions.NotFound):
            call()
    future = subscriber.subscribe(name, lambda message: message.ack())
    with pytest.raises(exceptions.NotFound):
        future.result(WAIT_S)
    assert bus.pull_now() == []


@pytest.mark.parametrize(
    "settings",
    [
        {"ack_deadline_seconds": 601},
        {"message_retention_duration": seconds(60)},
        {"retry_policy": {"minimum_backoff": seconds(601)}},
        {"name": f"projects/{PROJECT}/subscriptions/ab"},
        {"name": f"projects/{PROJECT}/subscriptions/goog-like"},
        {"name": f"projects/{PROJECT}/subscriptions/1digit"},
    ],
    ids=str,
)
def test_bad_subscription_is_refused(hub: Hub, line: NewLine, settings: dict[str, Any]) -> None:
    """Settings outside Google's limits are INVALID_ARGUMENT."""
    bus = line()
    request = {"name": bus.subscription + "-bad", "topic": bus.topic, **settings}
    with pytest.raises(exceptions.InvalidArgument):
        hub.subscriber.create_subscription(request=request)


def test_ack_deadline_below_the_limit(hub: Hub, line: NewLine) -> None:
    """An ack deadline of 5 s is below Google's limit of 10 s."""
    if hub.expected("ack deadline below 10 s") == "accepted":
        line(ack_deadline_seconds=5)
        return
    bus = line()
    hub.subscriber.delete_subscription(subscription=bus.subscription)
    with pytest.raises(exceptions.InvalidArgument, match="ack_deadline_seconds"):
        bus.create(ack_deadline_seconds=5)
    bus.create()


def test_dead_letter_attempts_are_bounded(hub: Hub, line: NewLine) -> None:
    """Fewer than 5 or more than 100 delivery attempts are refused."""
    bus = line()
    expected = hub.expected("bad number of delivery attempts")
    for attempts in (4, 101):
        policy = {"dead_letter_topic": bus.topic, "max_delivery_attempts": attempts}
        request = {"name": bus.subscription + "-bad", "topic": bus.topic}
        with pytest.raises(exceptions.BadRequest) as refused:
            hub.subscriber.create_subscription(request={**request, "dead_letter_policy": policy})
        status = refused.value.grpc_status_code
        assert status is not None
        assert status.name == expected


def test_bad_topic_name_is_refused(hub: Hub) -> None:
    """Topic ids have at least three characters."""
    with pytest.raises(exceptions.InvalidArgument):
        hub.publisher.create_topic(name=f"projects/{PROJECT}/topics/t")


def test_empty_message_is_refused(line: NewLine) -> None:
    """A message needs data or attributes."""
    bus = line()
    with pytest.raises(exceptions.InvalidArgument):
        bus.publish("")


def test_lists_come_in_pages(hub: Hub, line: NewLine) -> None:
    """Topics, subscriptions and a topic's subscriptions are listed, page by page."""
    made = [line() for _ in range(3)]
    project = f"projects/{PROJECT}"
    pages = hub.publisher.list_topics(request={"project": project, "page_size": 2})
    assert {bus.topic for bus in made} <= {topic.name for topic in pages}
    subscriptions = hub.subscriber.list_subscriptions(request={"project": project, "page_size": 2})
    assert {bus.subscription for bus in made} <= {found.name for found in subscriptions}
    assert list(hub.publisher.list_topic_subscriptions(topic=made[0].topic)) == [
        made[0].subscription
    ]


def test_subscription_outlives_its_topic(hub: Hub, line: NewLine) -> None:
    """After the topic is deleted its subscription says so, and keeps what it had."""
    bus = line()
    bus.publish("left")
    hub.publisher.delete_topic(topic=bus.topic)
    found = hub.subscriber.get_subscription(subscription=bus.subscription)
    assert found.topic == "_deleted-topic_"
    assert texts(bus.pull()) == ["left"]
    hub.publisher.create_topic(name=bus.topic)
