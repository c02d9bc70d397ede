"""The journal and the group commit in front of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from localbus import commit, protos, wire
from localbus.broker import Broker
from localbus.changes import (
    Change,
    DeliveriesDropped,
    DeliveriesMarked,
    MessagesAdded,
    MessagesDropped,
    SubscriptionDropped,
    SubscriptionSaved,
    TopicDropped,
    TopicSaved,
)
from localbus.commit import JournalCommit
from localbus.delivery import AckDeadline, Delivery
from localbus.errors import InvalidArgument, Unavailable
from localbus.journal import Journal, JournalLocked
from localbus.model import Backoff, DeadLetterPolicy, Message, SubscriptionSpec, TopicSpec

CODEC = wire.MessageCodec()
TOPIC = TopicSpec("projects/proj/topics/topic", {"a": "b"}, 600.0)
SUB = SubscriptionSpec(
    "projects/proj/subscriptions/sub",
    TOPIC.name,
    filter="attributes:a",
    dead_letter=DeadLetterPolicy(TOPIC.name, 5),
    backoff=Backoff(1.0, 2.0),
    ttl_s=None,
)


def message(id_: int) -> Message:
    raw = protos.PubsubMessage(data=b"x", attributes={"a": "1"}, ordering_key="k")
    return Message(id_, TOPIC.name, 5.0, {"a": "1"}, "k", CODEC.seal(raw, id_, 5.0))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path, fsync=False)
    made.open()
    yield made
    made.close()


def test_journal_gives_back_what_it_was_given(journal: Journal, tmp_path: Path) -> None:
    """Topics, subscriptions, messages and delivery counts survive closing and opening."""
    journal.write(
        [
            TopicSaved(TOPIC),
            SubscriptionSaved(7, SUB, 123.5),
            MessagesAdded((message(1), message(2), message(3)), ((7, 1), (7, 2), (7, 3))),
            DeliveriesMarked(7, ((2, 4, False), (3, 1, True))),
            DeliveriesDropped(7, (1,)),
            MessagesDropped((1,)),
        ]
    )
    journal.close()
    journal.open()
    stored = journal.load(CODEC.open)
    assert stored.topics == (TOPIC,)
    assert stored.subscriptions == (SubscriptionSaved(7, SUB, 123.5),)
    assert [(m.id, m.attributes, m.ordering_key) for m in stored.messages] == [
        (2, {"a": "1"}, "k"),
        (3, {"a": "1"}, "k"),
    ]
    found = [(d.message, d.attempts, d.acked) for d in stored.deliveries]
    assert found == [(2, 4, False), (3, 1, True)]


def test_dropped_things_are_gone(journal: Journal) -> None:
    """A dropped subscription takes its deliveries along."""
    journal.write(
        [
            TopicSaved(TOPIC),
            SubscriptionSaved(7, SUB, 0.0),
            MessagesAdded((message(1),), ((7, 1),)),
            SubscriptionDropped(7),
            TopicDropped(TOPIC.name),
        ]
    )
    stored = journal.load(CODEC.open)
    assert (stored.topics, stored.subscriptions, stored.deliveries) == ((), (), ())


def test_orphaned_messages_are_swept_at_start(journal: Journal) -> None:
    """A message that nobody waits for (a crash between two writes) is dropped on restore."""
    journal.write([TopicSaved(TopicSpec(TOPIC.name)), MessagesAdded((message(1),), ())])
    broker = Broker(CODEC)
    broker.restore(journal.load(CODEC.open), 10.0)
    assert broker.ledger.changes == [MessagesDropped((1,))]
    assert broker.ledger.stored_bytes == 0


def test_every_start_has_its_own_number(journal: Journal) -> None:
    """Ids of one start never come again in the next."""
    assert journal.load(CODEC.open).boot + 1 == journal.load(CODEC.open).boot


def test_batch_is_all_or_nothing(journal: Journal) -> None:
    """When one change cannot be written, none of its batch is."""
    journal.write([MessagesAdded((message(1),), ())])
    with pytest.raises(Exception, match="UNIQUE"):
        journal.write([MessagesAdded((message(2), message(1)), ())])
    assert [m.id for m in journal.load(CODEC.open).messages] == [1]


def test_one_process_per_directory(journal: Journal, tmp_path: Path) -> None:
    """A second bus on the same data directory is refused."""
    journal.write([TopicSaved(TOPIC)])
    second = Journal(tmp_path)
    with pytest.raises(JournalLocked, match="in use"):
        second.open()


def test_disk_is_given_back(journal: Journal, tmp_path: Path) -> None:
    """After a large backlog is acknowledged the file shrinks again."""
    body = b"x" * 100_000
    for start in range(0, 400, 100):
        many = [Message(start + i, TOPIC.name, 1.0, {}, "", body) for i in range(100)]
        journal.write([MessagesAdded(tuple(many), ())])
    journal.write([MessagesDropped(tuple(range(400)))])
    for _ in range(20):
        journal.write([TopicSaved(TOPIC)])
    journal.close()
    assert (tmp_path / "bus.sqlite3").stat().st_size < 25_000_000


def test_answers_are_what_protobuf_would_write() -> None:
    """Answers put together from stored bytes parse as Google's own classes."""
    sealed = message(11)
    sealed.body += b""
    long = Message(12, TOPIC.name, 5.0, {}, "", message(12).body)
    long.body = CODEC.seal(protos.PubsubMessage(data=b"y" * 70_000), 12, 5.25)
    leases = [
        AckDeadline(f"ack-{m.id}", Delivery(m, attempts=300), 0.0, None) for m in (sealed, long)
    ]
    answer = protos.PullResponse.FromString(wire.received(leases, attempts=True))
    assert [r.ack_id for r in answer.received_messages] == ["ack-11", "ack-12"]
    assert [r.delivery_attempt for r in answer.received_messages] == [300, 300]
    second = answer.received_messages[1].message
    assert (second.message_id, second.data) == ("12", b"y" * 70_000)
    assert (second.publish_time.seconds, second.publish_time.nanos) == (5, 250_000_000)


def test_foreign_page_token_is_refused() -> None:
    """A page token that is not ours names the field."""
    for token in ("nonsense", "bm9uc2Vuc2U=", "%"):
        request = protos.request_of("ListTopics")(page_token=token)
        with pytest.raises(InvalidArgument, match="page_token"):
            wire.page(["a"], request, str)


# -- group commit


class GatedStore:
    """A disk that writes when it is let, and can refuse."""

    def __init__(self) -> None:
        self.batches: list[list[Change]] = []
        self.gate = threading.Event()
        self.broken = False
        self.written = threading.Event()

    def write(self, changes: Sequence[Change]) -> None:
        assert self.gate.wait(5)
        if self.broken:
            raise OSError("disk full")
        self.batches.append(list(changes))
        self.written.set()


def change(name: str) -> Change:
    return TopicDropped(name)


async def test_waiting_writes_share_one_batch() -> None:
    """What comes while the disk is busy is written together, in order, and confirmed in order."""
    store = GatedStore()
    commits = JournalCommit(store)
    order: list[str] = []
    waiters = []
    for name in "abcd":
        waiters.append(commits.submit([change(name)], partial(order.append, name)))
        await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in waiters)
    store.gate.set()
    await asyncio.gather(*waiters)
    await commits.close()
    assert order == list("abcd")
    assert store.batches == [[change("a")], [change("b"), change("c"), change("d")]]


async def test_lazy_writes_ride_along_or_come_soon() -> None:
    """Acks wait for the next write, but not for ever."""
    store = GatedStore()
    store.gate.set()
    commits = JournalCommit(store)
    commits.lazily([change("lazy")])
    await commits.submit([change("now")])
    assert store.batches == [[change("lazy"), change("now")]]
    store.written.clear()
    commits.lazily([change("later")])
    assert await asyncio.to_thread(store.written.wait, 5)
    await commits.close()


async def test_refused_write_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk makes publishers hear Unavailable; when it heals nothing is lost or reordered."""
    monkeypatch.setattr(commit, "RETRY_S", 0.02)
    store = GatedStore()
    store.broken = True
    commits = JournalCommit(store)
    shown: list[str] = []
    healed = asyncio.Event()
    first = commits.submit([change("a")], partial(shown.append, "a"))
    await asyncio.sleep(0)
    meanwhile = commits.submit([change("b")], healed.set)
    store.gate.set()
    for waiter in (first, meanwhile):
        with pytest.raises(Unavailable, match="disk full"):
            await waiter
    store.broken = False
    async with asyncio.timeout(5):
        await healed.wait()
    await commits.submit([change("c")])
    await commits.close()
    assert shown == ["a"]
    assert [c for batch in store.batches for c in batch] == [change(n) for n in "abc"]


async def test_close_writes_what_waits() -> None:
    """A clean stop loses no lazy write."""
    store = GatedStore()
    store.gate.set()
    commits = JournalCommit(store)
    commits.lazily([change("lazy")])
    await commits.close()
    assert store.batches == [[change("lazy")]]
