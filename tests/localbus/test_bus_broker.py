"""The broker alone: no wires, no disk, a clock that is a number."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localbus.broker import Broker
from localbus.changes import DeliveriesDropped, DeliveriesMarked, MessagesAdded, MessagesDropped
from localbus.delivery import Consumer, Lease
from localbus.errors import Exists, Full, InvalidArgument, Missing
from localbus.model import DAY_S, Backoff, DeadLetter, Draft, SubscriptionSpec, TopicSpec
from localbus.subscription import Subscription

TOPIC = "projects/proj/topics/topic"
GRAVE = "projects/proj/topics/grave"
NAME = "projects/proj/subscriptions/sub"


class TextCodec:
    """Bodies are the text itself."""

    def seal(self, raw: object, message_id: int, published: float) -> bytes:
        return str(raw).encode()

    def reseal(
        self, body: bytes, extra: dict[str, str], message_id: int, published: float
    ) -> bytes:
        return body


class Desk:
    """A broker with one topic and one subscription, spoken to in short sentences."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1_000_000.0
        limit = settings.pop("stored_bytes_max", 1 << 20)
        self.broker = Broker(TextCodec(), stored_bytes_max=limit)
        for name in (TOPIC, GRAVE):
            self.broker.create_topic(TopicSpec(name))
        self.sub = self.subscribe(NAME, **settings)

    def subscribe(self, name: str, topic: str = TOPIC, **settings: Any) -> Subscription:
        spec = SubscriptionSpec(name, topic, **settings)
        return self.broker.create_subscription(spec, self.now)

    def publish(self, *texts: str, key: str = "", topic: str = TOPIC, **attributes: str) -> None:
        drafts = [Draft(attributes, key, len(text), text) for text in texts]
        staged = self.broker.stage(topic, drafts, sum(map(len, texts)), self.now)
        if staged.change is not None:
            self.broker.ledger.changes.append(staged.change)
        self.broker.apply(staged, self.now)

    def take(
        self, at_most: int = 100, consumer: Consumer | None = None, sub: Subscription | None = None
    ) -> list[Lease]:
        chosen = sub or self.sub
        leases = chosen.take(self.now, messages_max=at_most, bytes_max=1 << 20, consumer=consumer)
        self.broker.settle(chosen, self.now)
        return leases

    def texts(self, at_most: int = 100, sub: Subscription | None = None) -> list[str]:
        return [text_of(lease) for lease in self.take(at_most, sub=sub)]

    def ack(self, *leases: Lease) -> list[str]:
        refused = self.sub.ack([lease.ack_id for lease in leases], self.now)
        self.broker.settle(self.sub, self.now)
        return refused

    def modify(self, seconds: int, *leases: Lease) -> list[str]:
        wishes = [(lease.ack_id, seconds) for lease in leases]
        refused = self.sub.modify(wishes, self.now)
        self.broker.settle(self.sub, self.now)
        return refused

    def nack(self, *leases: Lease) -> list[str]:
        return self.modify(0, *leases)

    def join(self, **limits: int) -> Consumer:
        consumer = Consumer(10, **limits)
        self.sub.join(consumer, self.now)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        self.sub.leave(consumer, self.now)
        self.broker.settle(self.sub, self.now)

    def pass_time(self, seconds: float) -> None:
        """Lets time pass as the driver does: by the broker's own timers."""
        end = self.now + seconds
        while (due := self.broker.next_due()) <= end:
            self.now = max(self.now, due)
            self.broker.tick(self.now)
        self.now = end


def text_of(lease: Lease) -> str:
    return lease.delivery.message.body.decode()


# -- leases


def test_lease_ends_at_the_deadline() -> None:
    """A message comes again when its ack deadline passes, not before."""
    desk = Desk(ack_deadline_s=10)
    desk.publish("a")
    assert desk.texts() == ["a"]
    desk.pass_time(9.9)
    assert desk.texts() == []
    desk.pass_time(0.2)
    assert desk.texts() == ["a"]


def test_deadline_can_be_moved_both_ways() -> None:
    """Each deadline change counts from now: later keeps the lease, sooner ends it sooner."""
    desk = Desk(ack_deadline_s=10)
    desk.publish("a")
    (lease,) = desk.take()
    desk.pass_time(9)
    assert desk.modify(20, lease) == []
    desk.pass_time(19)
    assert desk.take() == []
    desk.modify(600, lease)
    desk.modify(5, lease)
    desk.pass_time(4)
    assert desk.take() == []
    desk.pass_time(2)
    assert desk.texts() == ["a"]


def test_late_ack_does_nothing() -> None:
    """An ack id whose lease expired is refused, and the message stays."""
    desk = Desk()
    desk.publish("a")
    (late,) = desk.take()
    desk.pass_time(11)
    assert desk.ack(late) == [late.ack_id]
    assert desk.texts() == ["a"]


def test_ack_id_is_good_once() -> None:
    """The second ack of an at-least-once message is refused and harmless."""
    desk = Desk()
    desk.publish("a")
    (lease,) = desk.take()
    assert desk.ack(lease) == []
    assert desk.ack(lease) == [lease.ack_id]


def test_exactly_once_ack_may_be_repeated() -> None:
    """A client that lost the answer to its ack hears success again."""
    desk = Desk(exactly_once=True)
    desk.publish("a")
    (lease,) = desk.take()
    assert desk.ack(lease) == desk.ack(lease) == []


def test_failed_message_goes_to_the_back() -> None:
    """A message that is nacked again and again does not starve the others."""
    desk = Desk()
    desk.publish("poison", "b")
    (poison,) = desk.take(1)
    desk.nack(poison)
    assert desk.texts() == ["b", "poison"]


# -- streams


def test_closed_stream_hands_its_messages_back_in_order() -> None:
    """When a stream closes, others get its messages at once, oldest first."""
    desk = Desk()
    desk.publish("a", "b", "c")
    stream = desk.join()
    desk.take(2, stream)
    desk.leave(stream)
    assert desk.texts() == ["a", "b", "c"]


def test_ack_after_the_stream_closed_counts() -> None:
    """Clients close the stream first and send the last acks after: those still count."""
    desk = Desk()
    desk.publish("a")
    stream = desk.join()
    (lease,) = desk.take(1, stream)
    desk.leave(stream)
    assert desk.ack(lease) == []
    assert desk.take() == []
    assert desk.sub.ready_count == 0


def test_nack_after_the_stream_closed_takes_nothing_away() -> None:
    """The late nack of a closed stream does not take the message from its new holder."""
    desk = Desk()
    desk.publish("a")
    stream = desk.join()
    (old,) = desk.take(1, stream)
    desk.leave(stream)
    (new,) = desk.take()
    desk.nack(old)
    assert desk.take() == []
    assert desk.ack(new) == []


def test_exactly_once_keeps_leases_of_a_closed_stream() -> None:
    """Exactly-once never hands a message out twice within its deadline."""
    desk = Desk(exactly_once=True)
    desk.publish("a")
    stream = desk.join()
    desk.take(1, stream)
    desk.leave(stream)
    assert desk.take() == []
    desk.pass_time(11)
    assert desk.texts() == ["a"]


def test_stream_holds_no_more_than_it_asked_for() -> None:
    """Outstanding messages and bytes bound a stream; acks and expiry open it again."""
    desk = Desk()
    desk.publish(*"abcdef")
    stream = desk.join(messages_max=2)
    first = desk.take(100, stream)
    assert len(first) == 2
    assert desk.take(100, stream) == []
    desk.ack(first[0])
    assert len(desk.take(100, stream)) == 1
    desk.pass_time(11)
    assert len(desk.take(100, stream)) == 2


def test_large_message_passes_a_small_byte_limit() -> None:
    """A message larger than the stream's byte limit is delivered, alone."""
    desk = Desk()
    desk.publish("x" * 100, "y")
    stream = desk.join(bytes_max=10)
    assert [text_of(lease) for lease in desk.take(100, stream)] == ["x" * 100]
    assert desk.take(100, stream) == []


def test_streams_share() -> None:
    """Of two streams that can take everything, the first leaves the second its part."""
    desk = Desk()
    desk.publish(*[str(number) for number in range(10)])
    one, two = desk.join(), desk.join()
    assert len(desk.take(100, one)) == 5
    assert len(desk.take(100, two)) > 0


# -- ordering


def test_next_of_a_key_waits_for_the_ack() -> None:
    """One message of a key at a time; other keys and keyless messages do not wait."""
    desk = Desk(ordered=True)
    desk.publish("a0", "a1", key="a")
    desk.publish("b0", key="b")
    desk.publish("free")
    leases = desk.take()
    assert [text_of(lease) for lease in leases] == ["a0", "b0", "free"]
    desk.ack(leases[0])
    assert desk.texts() == ["a1"]


def test_key_without_ordering_is_plain() -> None:
    """Without ordering on the subscription all messages of a key come together."""
    desk = Desk()
    desk.publish("a0", "a1", key="a")
    assert desk.texts() == ["a0", "a1"]


@given(st.data())
def test_keys_are_acked_in_publish_order(data: st.DataObject) -> None:
    """Whatever is nacked, expires or is handed back: each key's acks are in publish order, and
    every message is acked exactly once."""
    desk = Desk(ordered=True, backoff=data.draw(st.sampled_from([None, Backoff(1, 8)])))
    keys = data.draw(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=8))
    for number, key in enumerate(keys):
        desk.publish(f"{number}", key=key)
    acked: list[int] = []
    for _ in range(200):
        if len(acked) == len(keys):
            break
        stream = desk.join()
        for lease in desk.take(3, stream):
            act = data.draw(st.sampled_from(["ack", "ack", "nack", "expire", "leave"]))
            if act == "ack" and not desk.ack(lease):
                acked.append(int(text_of(lease)))
            elif act == "nack":
                desk.nack(lease)
            elif act == "expire":
                desk.pass_time(11)
        desk.leave(stream)
        desk.pass_time(20)
    desk.pass_time(60)
    for key in "ab":
        mine = [number for number in acked if keys[number] == key]
        assert mine == sorted(set(mine))
    assert len(acked) + len(desk.sub.deliveries) == len(keys)


# -- retry, dead letters


def test_backoff_doubles_up_to_its_maximum() -> None:
    """Retries wait 1, 2, 4, 8, 10, 10 s under a policy of 1 s to 10 s."""
    desk = Desk(backoff=Backoff(1, 10))
    desk.publish("a")
    gaps = []
    for _ in range(6):
        (lease,) = desk.take()
        desk.nack(lease)
        start = desk.now
        while not desk.sub.ready_count:
            desk.pass_time(max(0.0, desk.broker.next_due() - desk.now))
        gaps.append(desk.now - start)
    assert gaps == pytest.approx([1, 2, 4, 8, 10, 10])


def dead_letter_desk() -> tuple[Desk, Subscription]:
    desk = Desk(dead_letter=DeadLetter(GRAVE, 5))
    return desk, desk.subscribe("projects/proj/subscriptions/grave-sub", GRAVE)


@pytest.mark.parametrize("how", ["nack", "expire", "stream lost"])
def test_message_dies_after_its_attempts(how: str) -> None:
    """Five failures of any kind move a message to the dead letter topic, with its origin."""
    desk, grave = dead_letter_desk()
    desk.publish("poison", colour="green")
    for attempt in range(1, 6):
        stream = desk.join()
        (lease,) = desk.take(1, stream)
        assert lease.delivery.attempts == attempt
        if how == "nack":
            desk.nack(lease)
        elif how == "expire":
            desk.pass_time(11)
        desk.leave(stream)
    assert desk.take() == []
    (dead,) = desk.take(sub=grave)
    attributes = dead.delivery.message.attributes
    assert text_of(dead) == "poison"
    assert attributes["colour"] == "green"
    assert attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert attributes["CloudPubSubDeadLetterSourceSubscription"] == "sub"


def test_dead_letter_frees_its_ordering_key() -> None:
    """When the first message of a key is dead, the next one comes."""
    desk = Desk(ordered=True, dead_letter=DeadLetter(GRAVE, 5))
    desk.publish("a0", "a1", key="a")
    for _ in range(5):
        desk.nack(*desk.take())
    assert desk.texts() == ["a1"]


def test_without_its_dead_letter_topic_a_message_lives_on() -> None:
    """Deleting the dead letter topic loses nothing: the message keeps coming."""
    desk, _ = dead_letter_desk()
    desk.publish("poison")
    desk.broker.delete_topic(GRAVE)
    for _ in range(7):
        desk.nack(*desk.take())
    assert desk.texts() == ["poison"]


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
    staged = desk.broker.stage(TOPIC, [Draft({}, "", 1, "a")], 1, desk.now)
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
    wish: dict[str, Any] = {"name": NAME, "topic": TOPIC, "filter": "attributes:a", **settings}
    with pytest.raises(InvalidArgument, match="cannot be changed"):
        desk.broker.update_subscription(SubscriptionSpec(**wish), desk.now)


def test_names_are_unique() -> None:
    """A name is taken once, and free again after deletion."""
    desk = Desk()
    with pytest.raises(Exists):
        desk.subscribe(NAME)
    desk.broker.delete_subscription(NAME)
    desk.subscribe(NAME)
