"""The server as a real process: durability, its manners, and gcloud's own command line."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.pubsub_v1 import PublisherClient, SubscriberClient, types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from localbus.server import LocalBus
from tests.localbus import backends

pytestmark = pytest.mark.slow

TOPIC = "projects/proj/topics/topic"
GRAVE = "projects/proj/topics/grave"
SUB = "projects/proj/subscriptions/sub"


class Clients:
    """One call at a time, over a channel of its own."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.publisher = PublisherClient(transport=PublisherGrpcTransport(channel=self.channel))
        self.subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=self.channel))

    def publish(self, *texts: str, **attributes: str) -> list[str]:
        messages = [types.PubsubMessage(data=t.encode(), attributes=attributes) for t in texts]
        return list(self.publisher.publish(topic=TOPIC, messages=messages).message_ids)

    def pull(self, at_most: int = 100) -> list[Any]:
        answer = self.subscriber.pull(subscription=SUB, max_messages=at_most, timeout=10)
        return list(answer.received_messages)

    def settle(self, received: list[Any], *, nack: bool = False) -> None:
        ids = [message.ack_id for message in received]
        if nack:
            self.subscriber.modify_ack_deadline(
                subscription=SUB, ack_ids=ids, ack_deadline_seconds=0
            )
        else:
            self.subscriber.acknowledge(subscription=SUB, ack_ids=ids)


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[backends.LocalBusProcess]:
    with backends.localbus(tmp_path / "data", "--rest-port", "0") as started:
        yield started


def test_confirmed_messages_survive_kill_9(bus: backends.LocalBusProcess) -> None:
    """After kill -9: topics, settings, unacked messages, delivery counts are there; acks too,
    once a later write is confirmed."""
    clients = Clients(bus.address)
    clients.publisher.create_topic(name=TOPIC)
    clients.publisher.create_topic(name=GRAVE)
    policy = {"dead_letter_topic": GRAVE, "max_delivery_attempts": 5}
    request = {"name": SUB, "topic": TOPIC, "dead_letter_policy": policy, "filter": "attributes:a"}
    created = clients.subscriber.create_subscription(request=request)
    ids = clients.publish("one", "two", "three", a="1")
    clients.publish("filtered out", b="1")
    received = clients.pull()
    clients.settle(received[:1])
    clients.settle(received[1:], nack=True)
    clients.publish("four", a="1")
    bus.kill()
    bus.start()

    clients = Clients(bus.address)
    assert clients.subscriber.get_subscription(subscription=SUB) == created
    assert [t.name for t in clients.publisher.list_topics(project="projects/proj")] == [
        GRAVE,
        TOPIC,
    ]
    again = clients.pull()
    found = {m.message.data.decode(): m.delivery_attempt for m in again}
    assert found == {"two": 2, "three": 2, "four": 1}
    assert [m.message.message_id for m in again][:2] == ids[1:]
    assert int(clients.publish("five", a="1")[0]) > int(ids[-1])


def test_every_confirmed_publish_survives_kill_9_under_load(bus: backends.LocalBusProcess) -> None:
    """Whatever was confirmed before the kill is delivered after it."""
    clients = Clients(bus.address)
    clients.publisher.create_topic(name=TOPIC)
    clients.subscriber.create_subscription(name=SUB, topic=TOPIC)
    publish = clients.channel.unary_unary(
        "/google.pubsub.v1.Publisher/Publish",
        request_serializer=types.PublishRequest.serialize,
        response_deserializer=types.PublishResponse.deserialize,
    )
    message = types.PubsubMessage(data=b"x")
    calls = [
        publish.future(types.PublishRequest(topic=TOPIC, messages=[message])) for _ in range(500)
    ]
    calls[100].result(timeout=10)
    bus.kill()
    confirmed = set()
    for call in calls:
        try:
            confirmed.add(call.result(timeout=10).message_ids[0])
        except grpc.RpcError:
            continue
    bus.start()
    clients = Clients(bus.address)
    delivered: set[str] = set()
    while confirmed - delivered:
        delivered |= {m.message.message_id for m in clients.pull(1000)}
    assert len(confirmed) >= 1


def test_clean_stop_is_quick_and_frees_the_directory(bus: backends.LocalBusProcess) -> None:
    """SIGTERM ends it at once with code 0, also with a stream open: it waits for nobody."""
    clients = Clients(bus.address)
    clients.publisher.create_topic(name=TOPIC)
    clients.subscriber.create_subscription(name=SUB, topic=TOPIC)
    first = types.StreamingPullRequest(subscription=SUB, stream_ack_deadline_seconds=10)
    requests: queue.Queue[Any] = queue.Queue()
    requests.put(first)
    stream = clients.subscriber.streaming_pull(requests=iter(requests.get, None))
    clients.publish("one")
    assert next(iter(stream)).received_messages[0].message.data == b"one"
    start = time.monotonic()
    assert bus.stop() == 0
    assert time.monotonic() - start < 5
    requests.put(None)
    bus.start()
    assert Clients(bus.address).pull()[0].message.data == b"one"


def test_second_bus_on_the_same_data_says_why(
    bus: backends.LocalBusProcess, tmp_path: Path
) -> None:
    """One line on stderr, exit code 1, no traceback."""
    command = [*bus.process.args[:3], "--port", "0", "--data-dir", str(tmp_path / "data")]  # type: ignore[index]
    ended = subprocess.run(
        command, cwd=backends.ROOT, capture_output=True, text=True, timeout=20, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("localbus: ")
    assert "in use" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_taken_port_says_why(bus: backends.LocalBusProcess, tmp_path: Path) -> None:
    """A port in use is one clear line, exit code 1."""
    port = bus.address.split(":")[1]
    command = [*bus.process.args[:3], "--port", port, "--data-dir", str(tmp_path / "b")]  # type: ignore[index]
    ended = subprocess.run(
        command, cwd=backends.ROOT, capture_output=True, text=True, timeout=20, check=False
    )
    assert ended.returncode == 1
    assert f"127.0.0.1:{port}" in ended.stderr.splitlines()[-1]


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """When the other end of --parent-fd is closed, it stops."""
    read_end, write_end = os.pipe()
    bus = backends.LocalBusProcess(tmp_path, "--parent-fd", str(read_end))
    bus.start(pass_fds=(read_end,))
    os.close(read_end)
    assert bus.process.poll() is None
    os.close(write_end)
    backends.wait_until(lambda: bus.process.poll() is not None, "exit after the parent")
    assert bus.process.returncode == 0
    assert bus.process.stdout is not None
    bus.process.stdout.close()


async def test_it_runs_inside_a_program_too(tmp_path: Path) -> None:
    """LocalBus starts, serves and stops on a loop of the caller's, twice on the same data."""
    for expected in ([], [TOPIC]):
        bus = LocalBus(tmp_path, fsync=False)
        await bus.start()
        async with grpc.aio.insecure_channel(bus.grpc_address) as channel:
            listing = channel.unary_unary(
                "/google.pubsub.v1.Publisher/ListTopics",
                request_serializer=types.ListTopicsRequest.serialize,
                response_deserializer=types.ListTopicsResponse.deserialize,
            )
            answer = await listing(types.ListTopicsRequest(project="projects/proj"))
            assert [topic.name for topic in answer.topics] == expected
            if not expected:
                create = channel.unary_unary(
                    "/google.pubsub.v1.Publisher/CreateTopic",
                    request_serializer=types.Topic.serialize,
                    response_deserializer=types.Topic.deserialize,
                )
                await create(types.Topic(name=TOPIC))
        await bus.stop()


def test_refused_settings_are_named(bus: backends.LocalBusProcess) -> None:
    """What the bus does not do is refused, not ignored."""
    clients = Clients(bus.address)
    clients.publisher.create_topic(name=TOPIC)
    push = {"push_config": {"push_endpoint": "http://x"}}
    with pytest.raises(exceptions.InvalidArgument, match="push_endpoint"):
        clients.subscriber.create_subscription(request={"name": SUB, "topic": TOPIC, **push})


# -- REST


def rest(bus: backends.LocalBusProcess, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://{bus.rest_address}{path}", data, method=verb)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_rest_errors_have_googles_shape(bus: backends.LocalBusProcess) -> None:
    """Every refusal is Google's error object with code, status and a message that says why."""
    base = "/v1/projects/proj"
    status, body = rest(bus, "GET", f"{base}/topics/missing")
    assert (status, body["error"]["status"]) == (404, "NOT_FOUND")
    assert body["error"]["code"] == 404
    assert rest(bus, "PUT", f"{base}/topics/topic", {})[0] == 200
    status, body = rest(bus, "PUT", f"{base}/topics/topic", {})
    assert (status, body["error"]["status"]) == (409, "ALREADY_EXISTS")
    status, body = rest(bus, "PUT", f"{base}/topics/other", {"colour": "red"})
    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert "colour" in body["error"]["message"]
    status, body = rest(bus, "POST", f"{base}/topics/topic:publish", ["x"])
    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    status, body = rest(bus, "GET", f"{base}/topics?pageToken=foreign")
    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert rest(bus, "GET", "/v1/nothing")[0] == 404


GCLOUD_MISSING = backends.why_no_gcloud()


@pytest.mark.skipif(GCLOUD_MISSING is not None, reason=f"needs gcloud: {GCLOUD_MISSING}")
def test_gcloud_command_line(bus: backends.LocalBusProcess, tmp_path: Path) -> None:
    """The real `gcloud pubsub` creates, publishes, pulls with auto-ack, and deletes."""
    environment = backends.gcloud_environment(tmp_path / "gcloud")
    endpoint = f"http://{bus.rest_address}/"
    environment["CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB"] = endpoint

    def gcloud(*words: str) -> Any:
        ended = subprocess.run(
            ["gcloud", "pubsub", *words, "--format=json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout or "null")

    gcloud("topics", "create", "hello")
    gcloud(
        "subscriptions", "create", "reader", "--topic=hello", '--message-filter=attributes.k = "v"'
    )
    gcloud("topics", "publish", "hello", "--message=no", "--attribute=k=w")
    gcloud("topics", "publish", "hello", "--message=yes", "--attribute=k=v")
    (received,) = gcloud("subscriptions", "pull", "reader", "--auto-ack", "--limit=5")
    assert received["ackStatus"] == "SUCCESS"
    assert received["message"]["attributes"] == {"k": "v"}
    assert received["message"]["data"] == "eWVz"
    described = gcloud("subscriptions", "describe", "reader")
    assert described["filter"] == 'attributes.k = "v"'
    gcloud("subscriptions", "delete", "reader")
    assert [topic["name"] for topic in gcloud("topics", "list")] == [
        "projects/contract/topics/hello"
    ]


@pytest.mark.skipif(GCLOUD_MISSING is not None, reason=f"needs gcloud: {GCLOUD_MISSING}")
def test_gcloud_ack_and_deadline(bus: backends.LocalBusProcess, tmp_path: Path) -> None:
    """`modify-message-ack-deadline` hands a message back, `ack` settles it."""
    environment = backends.gcloud_environment(tmp_path / "gcloud")
    environment["CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB"] = f"http://{bus.rest_address}/"
    base = "/v1/projects/contract"
    rest(bus, "PUT", f"{base}/topics/hello", {})
    rest(
        bus,
        "PUT",
        f"{base}/subscriptions/reader",
        {"topic": "projects/contract/topics/hello", "ackDeadlineSeconds": 600},
    )
    rest(bus, "POST", f"{base}/topics/hello:publish", {"messages": [{"data": "eWVz"}]})

    def pulled() -> list[Any]:
        pull = {"maxMessages": 10, "returnImmediately": True}
        found = rest(bus, "POST", f"{base}/subscriptions/reader:pull", pull)[1]
        return list(found.get("receivedMessages", []))

    def gcloud(*words: str) -> None:
        command = ["gcloud", "pubsub", "subscriptions", *words]
        subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)

    (first,) = pulled()
    gcloud(
        "modify-message-ack-deadline", "reader", f"--ack-ids={first['ackId']}", "--ack-deadline=0"
    )
    (second,) = pulled()
    gcloud("ack", "reader", f"--ack-ids={second['ackId']}")
    assert pulled() == []
