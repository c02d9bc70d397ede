"""Retention, expiry, seek, fan-out and limits of the broker alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from localbus.changes import DeliveriesDropped, DeliveriesMarked, MessagesAdded, MessagesDropped
from localbus.errors import Exists, Full, InvalidArgument, Missing
from localbus.model import DAY_S, IncomingMessage, SubscriptionSpec, TopicSpec
from tests.localbus.clients import GRAVE, NAME, TOPIC, Desk, dead_letter_desk

# -- retention, expiration, seek


def test_old_messages_are_dropped() -> None:
    """Past the subscription's retention a message is gone, also from the journal."""
    desk = Desk(retention_s=600.0)
    desk.publish("old")
    desk.pass_time(300)
    desk.publish("young")
    desk.broker.ledger.changes.clear()
    desk.pass_time(301)
    assert desk.texts() == ["young"]
    kinds = [type(change) for change in desk.broker.ledger.changes]
    assert MessagesDropped in kinds


def test_unused_subscription_expires() -> None:
    """A subscription without use for its ttl is removed; an open stream is use."""
    desk = Desk(ttl_s=DAY_S)
    stream = desk.join()
    desk.pass_time(3 * DAY_S)
    desk.leave(stream)
    desk.pass_time(0.9 * DAY_S)
    assert desk.broker.subscription(NAME) is desk.sub
    desk.pass_time(0.2 * DAY_S)
    with pytest.raises(Missing):
        desk.broker.subscription(NAME)


def test_subscription_that_never_expires() -> None:
    """Without a ttl a subscription stays, and asks for no timer."""
    desk = Desk(ttl_s=None)
    assert desk.broker.next_due() == math.inf


def test_seek_forward_purges_and_back_replays() -> None:
    """Seek acknowledges what is older and, with retain_acked, brings back what is newer."""
    desk = Desk(retain_acked=True, ordered=True)
    desk.publish("a", key="k")
    middle = desk.now + 1
    desk.pass_time(2)
    desk.publish("b", "c", key="k")
    (lease,) = desk.take()
    desk.ack(lease)
    desk.broker.seek(NAME, middle, desk.now)
    assert desk.texts() == ["b"]
    desk.broker.seek(NAME, 0.0, desk.now)
    assert desk.texts() == ["a"]
    desk.broker.seek(NAME, desk.now + 1, desk.now)
    assert desk.take() == []


def test_topic_retention_serves_new_subscriptions() -> None:
    """A topic that retains messages lets a later subscription seek back to them."""
    desk = Desk()
    desk.broker.update_topic(TopicSpec(TOPIC, retention_s=600.0))
    desk.publish("a", colour="red")
    desk.publish("b", colour="blue")
    late = desk.subscribe("projects/proj/subscriptions/late", filter='attributes.colour = "red"')
    desk.broker.seek(late.spec.name, 0.0, desk.now)
    assert desk.texts(sub=late) == ["a"]


# -- filters, fan-out, limits


def test_audience_is_found_by_equality_and_by_asking() -> None:
    """Indexed and unindexed subscriptions get the same messages as plain evaluation gives."""
    desk = Desk()
    wanted = {
        'attributes.vm = "one"': ["for one"],
        'attributes.vm = "one" AND attributes:x': [],
        'attributes.vm = "two" OR attributes.vm = "one"': ["for one", "for two"],
        "NOT attributes:vm": ["for all"],
    }
    subs = {
        text: desk.subscribe(f"projects/proj/subscriptions/sub-{number}", filter=text)
        for number, text in enumerate(wanted)
    }
    desk.publish("for one", vm="one")
    desk.publish("for two", vm="two")
    desk.publish("for all")
    assert {text: desk.texts(sub=sub) for text, sub in subs.items()} == wanted


def test_deleted_subscription_leaves_the_index() -> None:
    """After its subscriptions are gone a publish finds nobody and stores nothing."""
    desk = Desk(filter='attributes.vm = "one"')
    desk.broker.delete_subscription(NAME)
    desk.broker.ledger.changes.clear()
    desk.publish("a", vm="one")
    assert desk.broker.ledger.changes == []
    assert desk.broker.ledger.stored_bytes == 0


def test_message_is_dropped_with_its_last_delivery() -> None:
    """Two subscriptions share one stored message; the second ack frees it."""
    desk = Desk()
    other = desk.subscribe("projects/proj/subscriptions/other")
    desk.publish("a")
    desk.broker.ledger.changes.clear()
    desk.ack(*desk.take())
    (mine,) = desk.broker.ledger.changes
    assert isinstance(mine, DeliveriesDropped)
    (lease,) = desk.take(sub=other)
    other.ack([lease.ack_id], desk.now)
    assert isinstance(desk.broker.ledger.changes[-1], MessagesDropped)
    assert desk.broker.ledger.stored_bytes == 0


def test_subscription_deleted_during_a_publish_leaks_nothing() -> None:
    """A message whose only subscription went while it was written is dropped again."""
    desk = Desk()
    staged = desk.broker.stage(TOPIC, [IncomingMessage({}, "", 1, "a")], 1, desk.now)
    assert isinstance(staged.change, MessagesAdded)
    desk.broker.delete_subscription(NAME)
    desk.broker.apply(staged, desk.now)
    assert isinstance(desk.broker.ledger.changes[-1], MessagesDropped)
    assert desk.broker.ledger.stored_bytes == 0


def test_attempts_are_remembered_only_where_they_count() -> None:
    """Delivery counts go to disk for subscriptions with a dead letter policy alone."""
    plain, (counted, _) = Desk(), dead_letter_desk()
    for desk, expected in ((plain, False), (counted, True)):
        desk.publish("a")
        desk.take()
        marked = [c for c in desk.broker.ledger.changes if isinstance(c, DeliveriesMarked)]
        assert bool(marked) is expected


def test_the_bus_is_bounded() -> None:
    """Past its byte limit the bus refuses publishes until something is acknowledged."""
    desk = Desk(stored_bytes_max=10)
    desk.publish("x" * 8)
    with pytest.raises(Full):
        desk.publish("yyyy")
    desk.ack(*desk.take())
    desk.publish("yyyy")


def test_many_settled_leases_leave_no_trace() -> None:
    """Timers of settled leases are thrown away long before they would be due."""
    desk = Desk(ack_deadline_s=600)
    for number in range(5_000):
        desk.publish(str(number))
        desk.ack(*desk.take())
    assert len(desk.sub._expiries) < 2_500


@pytest.mark.parametrize(
    "settings",
    [{"filter": "attributes:b"}, {"ordered": True}, {"topic": GRAVE}],
    ids=str,
)
def test_fixed_settings_cannot_change(settings: dict[str, Any]) -> None:
    """Filter, ordering and topic are for life."""
    desk = Desk(filter="attributes:a")
    changed: dict[str, Any] = {"name": NAME, "topic": TOPIC, "filter": "attributes:a", **settings}
    with pytest.raises(InvalidArgument, match="cannot be changed"):
        desk.broker.update_subscription(SubscriptionSpec(**changed), desk.now)


def test_names_are_unique() -> None:
    """A name is taken once, and free again after deletion."""
    desk = Desk()
    with pytest.raises(Exists):
        desk.subscribe(NAME)
    desk.broker.delete_subscription(NAME)
    desk.subscribe(NAME)
