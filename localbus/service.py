"""The calls of Google's Publisher and Subscriber services, one method each, for both doors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from google.protobuf import empty_pb2

from localbus import protos, wire
from localbus.bus import AckResult, BrokerLoop
from localbus.errors import Aborted, InvalidArgument
from localbus.model import check_project

# A pull that finds nothing is answered empty after this time, or a little before the caller's own
# deadline, as Google does: to stop waiting is not an error of the caller.
PULL_WAIT_S = 90.0
PULL_MARGIN_S = 1.0
_FIXED_SUBSCRIPTION_FIELDS = (
    "name", "topic", "filter", "enable_message_ordering", "detached", "state", "tags",
)  # fmt: skip
_FIXED_TOPIC_FIELDS = ("name", "state", "satisfies_pzs", "tags")


class AcksRefused(InvalidArgument):
    """Exactly-once: some ack ids were not good any more. `partly`: others were."""

    def __init__(self, settled: AckResult) -> None:
        self.refused = settled.refused
        # Clients repeat ABORTED for the ids that carry no verdict of their own, and those are
        # good: an ack that was done is done again without harm.
        self.partly = bool(settled.done)
        super().__init__(f"{len(settled.refused)} ack ids have expired or are unknown")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of Google's services: its name in gRPC and, where gcloud makes it, in REST."""

    service: str
    rpc: str
    verb: str = ""
    paths: tuple[str, ...] = ()
    name_field: str = ""
    """Where the resource's name goes in the request."""

    @property
    def request(self) -> Any:
        return protos.request_of(self.rpc)

    @property
    def method(self) -> str:
        """The method of Service that answers it."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.rpc).lower()


PUBLISHER, SUBSCRIBER = "google.pubsub.v1.Publisher", "google.pubsub.v1.Subscriber"
POLICIES = "google.iam.v1.IAMPolicy"
_PROJECT = "/v1/projects/{project}"
# Ids hold no slash and no colon, so `ID:verb` splits in one way.
_TOPIC, _SUB = (f"{_PROJECT}/{kind}/{{id:[^/:]+}}" for kind in ("topics", "subscriptions"))
_EITHER = (_TOPIC, _SUB)
CALLS = (
    Call(PUBLISHER, "CreateTopic", "PUT", (_TOPIC,), "name"),
    Call(PUBLISHER, "GetTopic", "GET", (_TOPIC,), "topic"),
    Call(PUBLISHER, "UpdateTopic", "PATCH", (_TOPIC,), "topic.name"),
    Call(PUBLISHER, "DeleteTopic", "DELETE", (_TOPIC,), "topic"),
    Call(PUBLISHER, "ListTopics", "GET", (f"{_PROJECT}/topics",), "project"),
    Call(PUBLISHER, "ListTopicSubscriptions", "GET", (f"{_TOPIC}/subscriptions",), "topic"),
    Call(PUBLISHER, "Publish", "POST", (f"{_TOPIC}:publish",), "topic"),
    Call(PUBLISHER, "DetachSubscription", "POST", (f"{_SUB}:detach",), "subscription"),
    Call(SUBSCRIBER, "CreateSubscription", "PUT", (_SUB,), "name"),
    Call(SUBSCRIBER, "GetSubscription", "GET", (_SUB,), "subscription"),
    Call(SUBSCRIBER, "UpdateSubscription", "PATCH", (_SUB,), "subscription.name"),
    Call(SUBSCRIBER, "DeleteSubscription", "DELETE", (_SUB,), "subscription"),
    Call(SUBSCRIBER, "ListSubscriptions", "GET", (f"{_PROJECT}/subscriptions",), "project"),
    Call(SUBSCRIBER, "Pull", "POST", (f"{_SUB}:pull",), "subscription"),
    Call(SUBSCRIBER, "Acknowledge", "POST", (f"{_SUB}:acknowledge",), "subscription"),
    Call(SUBSCRIBER, "ModifyAckDeadline", "POST", (f"{_SUB}:modifyAckDeadline",), "subscription"),
    Call(SUBSCRIBER, "Seek", "POST", (f"{_SUB}:seek",), "subscription"),
    Call(POLICIES, "GetIamPolicy", "GET", tuple(f"{p}:getIamPolicy" for p in _EITHER), "resource"),
    Call(POLICIES, "SetIamPolicy", "POST", tuple(f"{p}:setIamPolicy" for p in _EITHER), "resource"),
    Call(
        POLICIES,
        "TestIamPermissions",
        "POST",
        tuple(f"{p}:testIamPermissions" for p in _EITHER),
        "resource",
    ),
)
"""All but StreamingPull, which is no call but a stream."""


class Service:
    """Requests in, answers out; refusals are BusErrors."""

    def __init__(self, bus: BrokerLoop, *, pull_wait_s: float = PULL_WAIT_S) -> None:
        self.bus = bus
        self._broker = bus.broker
        self._pull_wait_s = pull_wait_s

    # -- Publisher

    async def create_topic(self, request: Any) -> Any:
        spec = wire.topic_spec(request)
        return wire.topic_pb(await self.bus.change(lambda broker, _: broker.create_topic(spec)))

    async def get_topic(self, request: Any) -> Any:
        return wire.topic_pb(self._broker.topic(request.topic).spec)

    async def update_topic(self, request: Any) -> Any:
        current = wire.topic_pb(self._broker.topic(request.topic.name).spec)
        changed = wire.merged(current, request.topic, request.update_mask, _FIXED_TOPIC_FIELDS)
        spec = wire.topic_spec(changed)
        return wire.topic_pb(await self.bus.change(lambda broker, _: broker.update_topic(spec)))

    async def delete_topic(self, request: Any) -> Any:
        await self.bus.change(lambda broker, _: broker.delete_topic(request.topic))
        return empty_pb2.Empty()

    async def list_topics(self, request: Any) -> Any:
        check_project(request.project)
        specs = self._broker.topics(request.project)
        found, token = wire.page(specs, request, lambda spec: spec.name)
        topics = [wire.topic_pb(spec) for spec in found]
        return protos.ListTopicsResponse(topics=topics, next_page_token=token)

    async def list_topic_subscriptions(self, request: Any) -> Any:
        attached = self._broker.topic(request.topic).subscriptions.values()
        names = sorted(subscription.spec.name for subscription in attached)
        found, token = wire.page(names, request, str)
        return protos.ListTopicSubscriptionsResponse(subscriptions=found, next_page_token=token)

    async def publish(self, request: Any) -> Any:
        size = request.ByteSize()
        ids = await self.bus.publish(request.topic, wire.incoming_messages(request.messages), size)
        return protos.PublishResponse(message_ids=ids)

    # -- Subscriber

    async def create_subscription(self, request: Any) -> Any:
        spec = wire.subscription_spec(request)
        made = await self.bus.change(lambda broker, now: broker.create_subscription(spec, now))
        return wire.subscription_pb(made.spec)

    async def get_subscription(self, request: Any) -> Any:
        return wire.subscription_pb(self._broker.subscription(request.subscription).spec)

    async def update_subscription(self, request: Any) -> Any:
        current = wire.subscription_pb(self._broker.subscription(request.subscription.name).spec)
        changed = wire.merged(
            current, request.subscription, request.update_mask, _FIXED_SUBSCRIPTION_FIELDS
        )
        spec = wire.subscription_spec(changed)
        updated = await self.bus.change(lambda broker, now: broker.update_subscription(spec, now))
        return wire.subscription_pb(updated.spec)

    async def delete_subscription(self, request: Any) -> Any:
        name = request.subscription
        await self.bus.change(lambda broker, _: broker.delete_subscription(name))
        return empty_pb2.Empty()

    async def list_subscriptions(self, request: Any) -> Any:
        check_project(request.project)
        specs = self._broker.subscriptions(request.project)
        found, token = wire.page(specs, request, lambda spec: spec.name)
        subscriptions = [wire.subscription_pb(spec) for spec in found]
        return protos.ListSubscriptionsResponse(subscriptions=subscriptions, next_page_token=token)

    async def detach_subscription(self, request: Any) -> Any:
        name = request.subscription
        await self.bus.change(lambda broker, now: broker.detach_subscription(name, now))
        return protos.DetachSubscriptionResponse()

    async def pull(self, request: Any, left_s: float | None = None) -> bytes:
        """A serialised PullResponse: it is put together from stored bytes. `left_s` is what the
        caller is willing to wait, if known."""
        wait_s = 0.0 if request.return_immediately else self._pull_wait_s
        if left_s is not None:
            wait_s = max(0.0, min(wait_s, left_s - max(PULL_MARGIN_S, left_s / 10)))
        name = request.subscription
        leases = await self.bus.pull(name, request.max_messages, wait_s)
        counted = bool(leases) and self._broker.subscription(name).spec.dead_letter is not None
        return wire.received(leases, attempts=counted)

    async def acknowledge(self, request: Any) -> Any:
        settled = await self.bus.ack(request.subscription, request.ack_ids)
        return _verdict(settled)

    async def modify_ack_deadline(self, request: Any) -> Any:
        seconds = request.ack_deadline_seconds
        deadlines = [(ack_id, seconds) for ack_id in request.ack_ids]
        return _verdict(self.bus.modify(request.subscription, deadlines))

    async def seek(self, request: Any) -> Any:
        if not request.HasField("time"):
            raise InvalidArgument("target: got a snapshot or nothing, expected a time")
        moment = request.time.seconds + request.time.nanos / 1e9
        name = request.subscription
        await self.bus.change(lambda broker, now: broker.seek(name, moment, now))
        return protos.SeekResponse()

    # -- IAM: policies are kept and not enforced, since callers have no identity here

    async def get_iam_policy(self, request: Any) -> Any:
        return wire.policy_pb(self._broker.policy(request.resource))

    async def set_iam_policy(self, request: Any) -> Any:
        now = wire.policy_pb(self._broker.policy(request.resource))
        if request.policy.etag and request.policy.etag != now.etag:
            raise Aborted(f"policy of {request.resource}: its etag is not the current one")
        name, policy = request.resource, wire.stored_policy(request.policy)
        await self.bus.change(lambda broker, _: broker.set_policy(name, policy))
        return wire.policy_pb(self._broker.policy(request.resource))

    async def test_iam_permissions(self, request: Any) -> Any:
        self._broker.policy(request.resource)
        return protos.TestIamPermissionsResponse(permissions=request.permissions)


def _verdict(settled: AckResult) -> Any:
    """At-least-once never complains: a late ack means that the message comes again."""
    if settled.refused and settled.exactly_once:
        raise AcksRefused(settled)
    return empty_pb2.Empty()
