"""Google's own client library against the local bus: what its system tests and samples rely on.

`zen clients verify` runs those tests themselves, where a checkout of the library is given.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google.cloud.pubsub_v1 as pubsub_v1
import pytest
from google.api_core import exceptions
from google.iam.v1 import policy_pb2  # type: ignore[import-untyped]

from tests.localbus.backends import LocalBusProcess, localbus

pytestmark = pytest.mark.slow

TOPIC = "projects/zen-local/topics/first-topic"
SUBSCRIPTION = "projects/zen-local/subscriptions/first-subscription"


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBusProcess]:
    with localbus(tmp_path_factory.mktemp("bus")) as running:
        yield running


@pytest.fixture
def clients(bus: LocalBusProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """A publisher and a subscriber; afterwards their topic and subscription are gone."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", bus.address)
    publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
    yield publisher, subscriber
    subscriber.delete_subscription(subscription=SUBSCRIPTION)
    publisher.delete_topic(topic=TOPIC)
    subscriber.close()


def test_pull_of_nothing_is_answered_before_the_callers_deadline(clients: tuple[Any, Any]) -> None:
    """An empty answer, not DEADLINE_EXCEEDED: the caller did nothing wrong."""
    _, subscriber = clients
    answer = subscriber.pull(subscription=SUBSCRIPTION, max_messages=2, timeout=2)
    assert list(answer.received_messages) == []


@pytest.mark.parametrize("name", ["123", "ab", "goog-1", "a/b"])
def test_malformed_name_is_an_invalid_argument(clients: tuple[Any, Any], name: str) -> None:
    """Not NOT_FOUND: who creates what is missing would try that in vain."""
    publisher, subscriber = clients
    path = f"projects/zen-local/subscriptions/{name}"
    with pytest.raises(exceptions.InvalidArgument, match="subscription: got"):
        subscriber.get_subscription(subscription=path)
    stream = subscriber.subscribe(path, callback=lambda message: message.ack())
    with pytest.raises(exceptions.InvalidArgument):
        stream.result(timeout=20)
    with pytest.raises(exceptions.InvalidArgument, match="topic: got"):
        publisher.get_topic(topic=f"projects/zen-local/topics/{name}")


def test_good_name_that_is_not_there_is_not_found(clients: tuple[Any, Any]) -> None:
    """The other half of the rule."""
    _, subscriber = clients
    with pytest.raises(exceptions.NotFound):
        subscriber.get_subscription(subscription="projects/zen-local/subscriptions/another")


@pytest.mark.parametrize("kind", ["topic", "subscription"])
def test_policy_is_kept_and_guarded_by_its_etag(clients: tuple[Any, Any], kind: str) -> None:
    """Bindings come back; a policy that was read before another change is refused."""
    publisher, subscriber = clients
    client, name = (publisher, TOPIC) if kind == "topic" else (subscriber, SUBSCRIPTION)
    policy = client.get_iam_policy(request={"resource": name})
    assert list(policy.bindings) == []
    policy.bindings.append(
        policy_pb2.Binding(role="roles/pubsub.viewer", members=["domain:google.com"])
    )
    client.set_iam_policy(request={"resource": name, "policy": policy})
    kept = client.get_iam_policy(request={"resource": name})
    assert [(b.role, list(b.members)) for b in kept.bindings] == [
        ("roles/pubsub.viewer", ["domain:google.com"])
    ]
    with pytest.raises(exceptions.Aborted, match="etag"):
        client.set_iam_policy(request={"resource": name, "policy": policy})
    wanted = ["pubsub.topics.publish", "pubsub.topics.update"]
    asked = {"resource": name, "permissions": wanted}
    assert list(client.test_iam_permissions(request=asked).permissions) == wanted


def test_update_keeps_the_policy(clients: tuple[Any, Any]) -> None:
    """New labels are new labels, nothing else."""
    publisher, _ = clients
    policy = policy_pb2.Policy(bindings=[policy_pb2.Binding(role="r", members=["m"])])
    publisher.set_iam_policy(request={"resource": TOPIC, "policy": policy})
    publisher.update_topic(
        request={
            "topic": {"name": TOPIC, "labels": {"a": "b"}},
            "update_mask": {"paths": ["labels"]},
        }
    )
    assert publisher.get_iam_policy(request={"resource": TOPIC}).bindings[0].role == "r"


def test_detached_subscription_says_so_and_gets_nothing(clients: tuple[Any, Any]) -> None:
    """What it held is dropped; an open stream ends; a restart changes nothing of that."""
    publisher, subscriber = clients
    publisher.publish(TOPIC, b"before").result(timeout=10)
    stream = subscriber.subscribe(SUBSCRIPTION, callback=lambda message: message.nack())
    publisher.detach_subscription(request={"subscription": SUBSCRIPTION})
    with pytest.raises(exceptions.FailedPrecondition, match="is detached"):
        stream.result(timeout=20)
    assert subscriber.get_subscription(subscription=SUBSCRIPTION).detached
    publisher.publish(TOPIC, b"after").result(timeout=10)
    with pytest.raises(exceptions.FailedPrecondition, match="is detached"):
        subscriber.pull(subscription=SUBSCRIPTION, max_messages=1, timeout=5)


def test_policy_and_detachment_survive_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are on disk before they are confirmed."""
    with localbus(tmp_path) as first:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", first.address)
        publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
        publisher.create_topic(name=TOPIC)
        subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        policy = policy_pb2.Policy(bindings=[policy_pb2.Binding(role="r", members=["m"])])
        subscriber.set_iam_policy(request={"resource": SUBSCRIPTION, "policy": policy})
        publisher.detach_subscription(request={"subscription": SUBSCRIPTION})
        subscriber.close()
    with localbus(tmp_path) as second:
        monkeypatch.setitem(os.environ, "PUBSUB_EMULATOR_HOST", second.address)
        publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
        assert subscriber.get_subscription(subscription=SUBSCRIPTION).detached
        kept = subscriber.get_iam_policy(request={"resource": SUBSCRIPTION})
        assert kept.bindings[0].role == "r"
        publisher.publish(TOPIC, b"x").result(timeout=10)
        subscriber.close()
