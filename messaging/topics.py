"""Topics and subscriptions of a deployment: what they must be, and making them so.

Applying twice changes nothing. What Google cannot change on an existing subscription (topic,
filter, ordering) is never repaired by deleting it: messages would be lost. It is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from google.api_core import exceptions as google_errors
from google.protobuf import duration_pb2, field_mask_pb2
from google.pubsub_v1 import types

from core.cluster import ClusterSpec
from core.names import Names
from core.submit_topics import TopicBinding, subscription_of
from messaging.channel import explain
from messaging.pubsub import ACK_DEADLINE_S, CALL_TIMEOUT_S, PubSubBus

RETENTION = timedelta(days=4)
DEAD_RETENTION = timedelta(days=7)
"""Google's longest default: dead letters wait for a human, over a weekend too."""
# 30 tries at 1 s, 2 s, … 60 s are some 25 minutes: a database that is away for less than
# that sends no good submission to the dead letters.
SUBMIT_TRIES = 30
SUBMIT_BACKOFF = (timedelta(seconds=1), timedelta(seconds=60))


class SetupOutcome(StrEnum):
    """What applying did to one item."""

    CREATED = "created"
    UNCHANGED = "unchanged"
    UPDATED = "updated"
    DIFFERS = "differs"
    """It cannot be changed in place; `detail` says what to do."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One topic or subscription after applying."""

    kind: str
    """topic | subscription"""
    name: str
    outcome: SetupOutcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionPlan:
    """A subscription as it must be. It never expires by itself: Google's default is 31 idle
    days, after which a quiet cluster would have lost its ear."""

    name: str
    topic: str
    filter: str = ""
    retention: timedelta = RETENTION
    dead_letter_topic: str = ""


def wanted_topics(names: Names, bound: Sequence[TopicBinding] = ()) -> tuple[str, ...]:
    """Every topic of a deployment; `bound`: topics of submissions of one tenant."""
    return (
        names.start_topic,
        names.stop_topic,
        names.heartbeat_topic,
        names.control_topic,
        names.submit_topic,
        names.submit_dead_topic,
        *_besides(names, bound),
    )


def _besides(names: Names, bound: Sequence[TopicBinding]) -> list[str]:
    return [binding.topic for binding in bound if binding.topic != names.submit_topic]


def wanted_subscriptions(
    names: Names, clusters: Sequence[ClusterSpec], bound: Sequence[TopicBinding] = ()
) -> tuple[SubscriptionPlan, ...]:
    """Every lasting subscription. v2 VMs make their own on the control topic."""
    starts = tuple(
        SubscriptionPlan(
            name=names.start_subscription(cluster.name),
            topic=names.start_topic,
            filter=f'attributes.cluster = "{cluster.name}"',
        )
        for cluster in clusters
        if cluster.worker == "v1"
    )
    return (
        *starts,
        SubscriptionPlan(names.stop_subscription, names.stop_topic),
        SubscriptionPlan(names.heartbeat_subscription, names.heartbeat_topic),
        *(
            SubscriptionPlan(
                subscription_of(topic), topic, dead_letter_topic=names.submit_dead_topic
            )
            for topic in (names.submit_topic, *_besides(names, bound))
        ),
        SubscriptionPlan(
            names.submit_dead_subscription, names.submit_dead_topic, retention=DEAD_RETENTION
        ),
    )


async def apply_pubsub(
    admin: PubSubBus,
    names: Names,
    clusters: Sequence[ClusterSpec],
    bound: Sequence[TopicBinding] = (),
) -> list[Applied]:
    """Make everything as it must be, topics first; one line per item, in that order."""
    topics = [await apply_topic(admin, topic) for topic in wanted_topics(names, bound)]
    plans = wanted_subscriptions(names, clusters, bound)
    return topics + [await apply_subscription(admin, plan) for plan in plans]


async def apply_topic(admin: PubSubBus, topic: str) -> Applied:
    """Makes the topic unless it is there."""
    path = admin.topic_path(topic)
    try:
        await admin.publisher.create_topic(name=path, retry=None, timeout=CALL_TIMEOUT_S)
    except google_errors.AlreadyExists:
        return Applied("topic", topic, SetupOutcome.UNCHANGED)
    except google_errors.GoogleAPIError as error:
        raise explain(error, f"topic {topic}") from error
    return Applied("topic", topic, SetupOutcome.CREATED)


async def apply_subscription(admin: PubSubBus, plan: SubscriptionPlan) -> Applied:
    """Makes the subscription, or makes it as it must be as far as Google allows."""
    wanted = _subscription(admin, plan)
    try:
        try:
            await admin.subscriber.create_subscription(wanted, retry=None, timeout=CALL_TIMEOUT_S)
        except google_errors.AlreadyExists:
            return await _reconcile(admin, plan, wanted)
    except google_errors.GoogleAPIError as error:
        raise explain(error, f"subscription {plan.name}") from error
    hint = _DEAD_LETTER_HINT if plan.dead_letter_topic else ""
    return Applied("subscription", plan.name, SetupOutcome.CREATED, hint)


_DEAD_LETTER_HINT = (
    "on Google Cloud, the Pub/Sub service agent needs roles/pubsub.publisher on the dead-letter "
    "topic and roles/pubsub.subscriber here, or nothing is ever moved there"
)


async def _reconcile(
    admin: PubSubBus, plan: SubscriptionPlan, wanted: types.Subscription
) -> Applied:
    found = await admin.subscriber.get_subscription(
        subscription=wanted.name, retry=None, timeout=CALL_TIMEOUT_S
    )
    fixed = _differences(found, wanted, ("topic", "filter", "enable_message_ordering"))
    if fixed:
        return Applied("subscription", plan.name, SetupOutcome.DIFFERS, _advice(plan, found, fixed))
    loose = _differences(
        found,
        wanted,
        (
            "ack_deadline_seconds",
            "message_retention_duration",
            "expiration_policy",
            "dead_letter_policy",
            "retry_policy",
        ),
    )
    if not loose:
        return Applied("subscription", plan.name, SetupOutcome.UNCHANGED)
    await admin.subscriber.update_subscription(
        subscription=wanted,
        update_mask=field_mask_pb2.FieldMask(paths=loose),
        retry=None,
        timeout=CALL_TIMEOUT_S,
    )
    return Applied("subscription", plan.name, SetupOutcome.UPDATED, f"changed: {', '.join(loose)}")


def _subscription(admin: PubSubBus, plan: SubscriptionPlan) -> types.Subscription:
    subscription = types.Subscription(
        name=admin.subscription_path(plan.name),
        topic=admin.topic_path(plan.topic),
        ack_deadline_seconds=ACK_DEADLINE_S,
        message_retention_duration=_duration(plan.retention),
        filter=plan.filter,
        expiration_policy=types.ExpirationPolicy(),  # present and empty: never
    )
    if plan.dead_letter_topic:
        low, high = SUBMIT_BACKOFF
        subscription.dead_letter_policy = types.DeadLetterPolicy(
            dead_letter_topic=admin.topic_path(plan.dead_letter_topic),
            max_delivery_attempts=SUBMIT_TRIES,
        )
        subscription.retry_policy = types.RetryPolicy(
            minimum_backoff=_duration(low), maximum_backoff=_duration(high)
        )
    return subscription


def _differences(
    found: types.Subscription, wanted: types.Subscription, fields: Sequence[str]
) -> list[str]:
    have, want = types.Subscription.pb(found), types.Subscription.pb(wanted)
    return [name for name in fields if getattr(have, name) != getattr(want, name)]


def _advice(plan: SubscriptionPlan, found: types.Subscription, fields: Sequence[str]) -> str:
    have = ", ".join(f"{name} is {getattr(found, name)!r}" for name in fields)
    return (
        f"{have}; expected topic {plan.topic!r}, filter {plan.filter!r}, no ordering. Google "
        "cannot change this in place: when no message in it matters any more, run "
        f"`gcloud pubsub subscriptions delete {plan.name}` and apply again"
    )


def _duration(span: timedelta) -> duration_pb2.Duration:
    return duration_pb2.Duration(seconds=int(span.total_seconds()))
