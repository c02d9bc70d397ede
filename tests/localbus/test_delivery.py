"""Leases, streams, ordering, retries and dead letters of the broker alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localbus.model import Backoff, DeadLetterPolicy
from tests.localbus.clients import GRAVE, Desk, dead_letter_desk, text_of

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
    desk.pass_time(60)
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
    desk = Desk(ordered=True, dead_letter=DeadLetterPolicy(GRAVE, 5))
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
