"""Lasting subscriptions that somebody has deleted, detached or replaced: found and made again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from google.api_core import exceptions as google_errors
from google.pubsub_v1 import types

from core.cluster import ClusterSpec
from core.messages import SubscriptionFault
from core.names import Names
from core.submit_topics import TopicBinding
from messaging.channel import explain
from messaging.pubsub import CALL_TIMEOUT_S, PubSubBus, delete_subscription
from messaging.topics import (
    SetupOutcome,
    SubscriptionPlan,
    apply_subscription,
    apply_topic,
    wanted_subscriptions,
)

_DELETED_TOPIC = "_deleted-topic_"


async def mend_subscriptions(
    admin: PubSubBus,
    names: Names,
    clusters: Sequence[ClusterSpec],
    bound: Sequence[TopicBinding] = (),
) -> list[SubscriptionFault]:
    """What is wrong with the deployment's subscriptions, after making again what is missing. A
    subscription on another topic or with another filter is told and left alone: it may hold
    messages that matter. BusDown and Forbidden as ever."""
    plans = wanted_subscriptions(names, clusters, bound)
    found = await asyncio.gather(*(_mend(admin, plan) for plan in plans))
    return [fault for fault in found if fault is not None]


async def _mend(admin: PubSubBus, plan: SubscriptionPlan) -> SubscriptionFault | None:
    problem = await _problem(admin, plan)
    if problem is None:
        return None
    for topic in filter(None, (plan.topic, plan.dead_letter_topic)):
        await apply_topic(admin, topic)
    applied = await apply_subscription(admin, plan)
    if applied.outcome is SetupOutcome.DIFFERS:
        return SubscriptionFault(plan.name, applied.detail, made_again=False)
    return SubscriptionFault(plan.name, problem, made_again=True)


async def _problem(admin: PubSubBus, plan: SubscriptionPlan) -> str | None:
    """None: it is there and on its topic. One that can never get a message is deleted."""
    path = admin.subscription_path(plan.name)
    try:
        found: types.Subscription = await admin.subscriber.get_subscription(
            subscription=path, retry=None, timeout=CALL_TIMEOUT_S
        )
    except google_errors.NotFound:
        return "it was deleted"
    except google_errors.GoogleAPIError as error:
        raise explain(error, f"subscription {plan.name}") from error
    if found.detached or found.topic == _DELETED_TOPIC:
        await delete_subscription(admin, plan.name)
        return "it was detached" if found.detached else "its topic was deleted"
    if found.topic != admin.topic_path(plan.topic) or found.filter != plan.filter:
        return "it was replaced"
    return None
