"""The outbox's way to the bus, and who leads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import pytest

from core.changes import AtomicBatch, ClearAlert, Committed, DeadLetter, RaiseAlert
from core.errors import BusDown, StoreDown, TermPassed
from core.messages import OutboxRow, OutMessage
from core.ports import LeaderStatus
from messaging.errors import BusRefused, ContentRefused
from messaging.token_parts import TOKENS
from scheduler.cycle.leadership import DatabaseClock, Leadership
from scheduler.cycle.outbox_relay import RETRY_S, Relay
from scheduler.cycle.start_secrets import SealedParts
from tests.builders import NOW, at, live
from tests.workers import as_sent


class HandClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def now(self) -> datetime:
        return at(self.passed_s)

    def monotonic(self) -> float:
        return self.passed_s


class Shelf:
    """A store that knows the outbox and the leader's row."""

    def __init__(self, *rows: OutboxRow, clock: HandClock) -> None:
        self.rows = list(rows)
        self.batches: list[AtomicBatch] = []
        self.clock = clock
        self.answer_takes_s = 0.0
        self.down = False
        """Nothing can be written."""
        self.holder, self.term_now = "me", 1
        self.database_ahead = timedelta(0)

    async def outbox(
        self,
        limit: int,
        topics: Collection[str] = (),
        *,
        besides: bool = True,
        without: Collection[int] = (),
    ) -> Sequence[OutboxRow]:
        rows = [row for row in self.rows if row.outbox_id not in without]
        return [row for row in rows if (row.message.topic in topics) is not besides][:limit]

    async def published(self, outbox_ids: Sequence[int]) -> None:
        self.rows = [row for row in self.rows if row.outbox_id not in outbox_ids]

    async def commit(self, batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        if self.down:
            raise StoreDown("away")
        self.batches += batches
        return Committed((True,) * len(batches))

    async def lead(self, holder: str, lease_s: float, gone_term: int | None = None) -> LeaderStatus:
        self.clock.passed_s += self.answer_takes_s
        now = self.clock.now() + self.database_ahead
        leading = holder == self.holder
        return LeaderStatus(
            leading, self.term_now, self.holder, now + timedelta(seconds=lease_s), now
        )

    @property
    def told(self) -> list[object]:
        return [change for batch in self.batches for change in batch]


class Wire:
    """A bus that refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.refuse: set[bytes] = set()
        self.refuse_topics: set[str] = set()
        self.refuse_calls = 0
        self.calls = 0
        self.down = False

    async def publish(self, messages: Sequence[OutMessage], timeout_s: float) -> Sequence[str]:
        self.calls += 1
        if self.down:
            raise BusDown("away")
        self.refuse_calls -= 1
        if self.refuse_calls >= 0:
            raise ContentRefused("refused for now")
        for message in messages:
            if message.topic in self.refuse_topics:
                raise BusRefused(f"refused {message.topic}")
            if message.body in self.refuse:
                raise ContentRefused(f"refused {message.body!r}")
        self.sent += [message.body for message in messages]
        return [str(n) for n in range(len(messages))]


def told_of(topic: str, shelf: Shelf) -> list[type]:
    alerts = (change for change in shelf.told if isinstance(change, RaiseAlert | ClearAlert))
    return [type(change) for change in alerts if change.subject == topic]


def row(number: int, topic: str = "control", worker: str = "") -> OutboxRow:
    return OutboxRow(number, OutMessage(topic, b"%d" % number, ordering_key=worker))


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


async def leader(shelf: Shelf) -> Leadership:
    made = Leadership(shelf, "me", live(), DatabaseClock(shelf.clock))  # type: ignore[arg-type]
    await made.renew()
    return made


async def relay(shelf: Shelf, wire: Wire) -> Relay:
    led = await leader(shelf)
    return Relay(shelf, wire, led, shelf.clock, live(), as_sent)  # type: ignore[arg-type]


async def test_outbox_is_sent_in_order_and_settled(clock: HandClock) -> None:
    """Sent, then marked."""
    shelf, wire = Shelf(row(1), row(2), clock=clock), Wire()
    assert await (await relay(shelf, wire)).send_batch() == 2
    assert (wire.sent, shelf.rows) == ([b"1", b"2"], [])


async def test_outbox_is_kept_while_the_bus_is_away(clock: HandClock) -> None:
    """Nothing is marked that was not confirmed."""
    shelf, wire = Shelf(row(1), clock=clock), Wire()
    wire.down = True
    with pytest.raises(BusDown):
        await (await relay(shelf, wire)).send_batch()
    assert len(shelf.rows) == 1


async def test_poison_message_does_not_hold_the_others(clock: HandClock) -> None:
    """It becomes a dead letter; the rest is sent."""
    shelf, wire = Shelf(row(1), row(2), row(3), clock=clock), Wire()
    wire.refuse = {b"2"}
    await (await relay(shelf, wire)).send_batch()
    assert (wire.sent, shelf.rows) == ([b"1", b"3"], [])
    assert [type(change) for change in shelf.told] == [DeadLetter, ClearAlert]


async def test_poison_at_the_head_does_not_hold_the_others_however_much_it_is(
    clock: HandClock,
) -> None:
    """Several that were refused and are sent again come together, before all others."""
    shelf, wire = Shelf(*(row(n) for n in range(6)), clock=clock), Wire()
    wire.refuse = {b"0", b"1", b"2", b"3"}
    sender = await relay(shelf, wire)
    await sender.send_batch()
    assert (wire.sent, shelf.rows) == ([b"4", b"5"], [])
    assert [type(change) for change in shelf.told] == [*[DeadLetter] * 4, ClearAlert]
    assert not sender.held(["control"], 30)


async def test_refused_start_is_remembered_with_its_dead_letter(clock: HandClock) -> None:
    """By its lease, so that the job it belongs to ends and says where the message is; a refused
    stop ends nobody."""
    start, stop = (
        b'{"job_id":"j","lease_id":"%s"%s}' % words for words in ((b"a1", b""), (b"b2", b',"x":1'))
    )
    rows = [
        OutboxRow(1, OutMessage("control", start, {"kind": "start"})),
        OutboxRow(2, OutMessage("control", stop, {"kind": "stop"})),
        OutboxRow(3, OutMessage("control", b"good", {})),
    ]
    shelf, wire = Shelf(*rows, clock=clock), Wire()
    wire.refuse = {start, stop}
    sender = await relay(shelf, wire)
    await sender.send_batch()
    assert list(sender.refused_starts(30)) == ["a1"]
    assert sender.refused_starts(30)["a1"].endswith("(outbox-1)")
    clock.passed_s = 31
    assert not sender.refused_starts(30), "the job it ended has ended"


async def test_topic_that_refuses_all_ends_no_job(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full batch of starts becomes dead letters, as it stands before all others. None of them
    passed, so it may as well be the topic: the jobs are not ended, they start again."""
    monkeypatch.setattr("scheduler.cycle.outbox_relay.BATCH", 2)
    starts = [b'{"job_id":"j","lease_id":"a%d"}' % n for n in range(3)]
    rows = [
        OutboxRow(n, OutMessage("control", start, {"kind": "start"}))
        for n, start in enumerate(starts)
    ]
    shelf, wire = Shelf(*rows, clock=clock), Wire()
    wire.refuse = set(starts)
    sender = await relay(shelf, wire)
    await sender.send_batch()
    assert [type(change) for change in shelf.told].count(DeadLetter) == 2
    assert not sender.refused_starts(30)


async def test_poison_alone_waits_for_one_that_passes(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it may as well be the topic: nothing is thrown away, a human is told."""
    monkeypatch.setattr("scheduler.cycle.outbox_relay.RETRY_S", 0)
    shelf, wire = Shelf(row(1), clock=clock), Wire()
    wire.refuse = {b"1"}
    sender = await relay(shelf, wire)
    await sender.send_batch()
    assert [type(change) for change in shelf.told] == [RaiseAlert]
    # Deadlines go on: what they bring about is what settles it.
    assert not sender.held(["control"], 30)
    shelf.rows.append(row(2))
    await sender.send_batch()
    assert (wire.sent, shelf.rows) == ([b"2"], [])
    assert [type(change) for change in shelf.told] == [RaiseAlert, DeadLetter, ClearAlert]


async def test_batch_full_of_poison_does_not_stand_before_all_others(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing behind it could ever pass and settle it. Until one does, people are told."""
    monkeypatch.setattr("scheduler.cycle.outbox_relay.BATCH", 3)
    monkeypatch.setattr("scheduler.cycle.outbox_relay.RETRY_S", 0)
    shelf, wire = Shelf(*(row(n) for n in range(4)), clock=clock), Wire()
    wire.refuse = {b"0", b"1", b"2"}
    sender = await relay(shelf, wire)
    await sender.send_batch()
    await sender.send_batch()
    assert (wire.sent, shelf.rows) == ([b"3"], [])
    assert sum(isinstance(change, DeadLetter) for change in shelf.told) == 3


async def test_batch_full_of_others_does_not_make_poison_of_a_refused_topic(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three orders are refused beside a backlog of another topic: kept, and a human is told."""
    monkeypatch.setattr("scheduler.cycle.outbox_relay.BATCH", 5)
    monkeypatch.setattr("scheduler.cycle.outbox_relay.RETRY_S", 0)
    orders = [row(n) for n in range(3)]
    shelf, wire = Shelf(*orders, row(8, "others"), row(9, "others"), clock=clock), Wire()
    wire.refuse = {order.message.body for order in orders}
    await (await relay(shelf, wire)).send_batch()
    assert (wire.sent, shelf.rows) == ([b"8", b"9"], orders)
    assert told_of("control", shelf) == [RaiseAlert]


async def test_topic_that_refuses_whatever_it_is_sent_blames_no_worker(clock: HandClock) -> None:
    """Somebody gave it a schema: orders for several workers are refused for what they say."""
    shelf, wire = Shelf(row(1, worker="a"), row(2, worker="b"), clock=clock), Wire()
    wire.refuse = {b"1", b"2"}
    sender = await relay(shelf, wire)
    await sender.send_batch()
    assert sender.held(["control"], 30)
    assert sender.unsent(30) == {"a", "b"}
    clock.passed_s = 31
    assert not sender.unsent(30)


async def test_refused_topic_is_tried_with_few_messages_others_each_time(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of them would hold up the other topics; one that passes is found in the end, and
    then messages that do not are poison."""
    monkeypatch.setattr("scheduler.cycle.outbox_relay.RETRY_S", 0)
    monkeypatch.setattr("scheduler.cycle.outbox_relay.TRIED", 4)
    shelf, wire = Shelf(*(row(n, worker=f"vm-{n}") for n in range(20)), clock=clock), Wire()
    wire.refuse = {b"%d" % n for n in range(20)}
    sender = await relay(shelf, wire)
    await sender.send_batch()  # all of them: it was not known
    before = wire.calls
    await sender.send_batch()
    assert wire.calls - before == 1 + 4  # the batch, and four alone
    wire.refuse.discard(b"13")
    for _ in range(5):
        await sender.send_batch()
    assert (wire.sent, shelf.rows) == ([b"13"], [])
    assert sum(isinstance(change, DeadLetter) for change in shelf.told) == 19


@pytest.mark.parametrize("down", [True, False])
async def test_orders_that_cannot_be_sent_are_held_for_a_while_after(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    """A worker that was to be told is not late yet when the words have only just gone out."""
    monkeypatch.setattr("scheduler.cycle.outbox_relay.RETRY_S", 0)
    shelf, wire = Shelf(row(1), clock=clock), Wire()
    sender = await relay(shelf, wire)
    assert not sender.held(["control"], 30)
    wire.down, wire.refuse_topics = down, set() if down else {"control"}
    clock.passed_s = 5
    with suppress(BusDown):
        await sender.send_batch()
    wire.down, wire.refuse_topics = False, set()
    await sender.send_batch()
    clock.passed_s = 35
    assert sender.held(["control"], 30)
    assert not sender.held(["others"], 30)
    clock.passed_s = 35.1
    assert not sender.held(["control"], 30)


async def test_message_refused_before_its_topic_came_back_is_sent(clock: HandClock) -> None:
    """The topic returned between two tries: what was refused before is no poison."""
    shelf, wire = Shelf(row(1), row(2), row(3), clock=clock), Wire()
    wire.refuse_calls = 2  # the batch, and the first one alone
    await (await relay(shelf, wire)).send_batch()
    assert (sorted(wire.sent), shelf.rows) == ([b"1", b"2", b"3"], [])
    assert not any(isinstance(change, DeadLetter) for change in shelf.told)


async def test_refused_topic_is_kept_and_told_once_and_holds_no_other(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing topic is a matter for a human: the messages wait, other topics flow."""
    monkeypatch.setattr("scheduler.cycle.outbox_relay.RETRY_S", 0)
    shelf, wire = Shelf(row(1, "lost"), row(2), clock=clock), Wire()
    wire.refuse_topics = {"lost"}
    sender = await relay(shelf, wire)
    await sender.send_batch()
    await sender.send_batch()
    assert (wire.sent, [r.outbox_id for r in shelf.rows]) == ([b"2"], [1])
    assert told_of("lost", shelf) == [RaiseAlert]
    wire.refuse_topics = set()
    await sender.send_batch()
    assert shelf.rows == []
    assert told_of("lost", shelf) == [RaiseAlert, ClearAlert]


@pytest.mark.parametrize("poison", [True, False])
async def test_refused_topic_does_not_stand_before_the_others_however_much_it_has(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch, poison: bool
) -> None:
    """It is tried apart."""
    monkeypatch.setattr("scheduler.cycle.outbox_relay.BATCH", 4)
    monkeypatch.setattr("scheduler.cycle.outbox_relay.RETRY_S", 0)
    lost = [row(n, "lost") for n in range(9)]
    shelf, wire = Shelf(*lost[:3], row(90, "lost, too"), *lost[3:], row(99), clock=clock), Wire()
    wire.refuse_topics = set() if poison else {"lost", "lost, too"}
    wire.refuse = {r.message.body for r in shelf.rows[:-1]} if poison else set()
    sender = await relay(shelf, wire)
    for _ in range(4):
        await sender.send_batch()
    assert wire.sent == [b"99"]
    assert poison is (sum(isinstance(told, DeadLetter) for told in shelf.told) > 0)


async def test_refused_topic_is_tried_again_at_a_pace(clock: HandClock) -> None:
    """Others do not wait for it meanwhile."""
    shelf, wire = Shelf(row(1, "lost"), clock=clock), Wire()
    wire.refuse_topics = {"lost"}
    sender = await relay(shelf, wire)
    await sender.send_batch()
    wire.refuse_topics = set()
    shelf.rows.append(row(2))
    await sender.send_batch()
    assert wire.sent == [b"2"]
    clock.passed_s = RETRY_S
    await sender.send_batch()
    assert wire.sent == [b"2", b"1"]


async def test_people_are_told_though_the_database_was_away(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the refusal, and of its end."""
    monkeypatch.setattr("scheduler.cycle.outbox_relay.RETRY_S", 0)
    shelf, wire = Shelf(row(1, "lost"), clock=clock), Wire()
    sender = await relay(shelf, wire)
    for refused, said in (({"lost"}, [RaiseAlert]), (set[str](), [RaiseAlert, ClearAlert])):
        wire.refuse_topics, shelf.down = refused, True
        with pytest.raises(StoreDown):
            await sender.send_batch()
        shelf.down, shelf.rows = False, [row(2, "lost")]
        await sender.send_batch()
        assert told_of("lost", shelf) == said


async def test_alert_of_a_former_leader_is_cleared_once_the_topic_works(clock: HandClock) -> None:
    """Its successor has not seen the refusal, and tells people all the same; once."""
    shelf, wire = Shelf(row(1), clock=clock), Wire()
    sender = await relay(shelf, wire)
    await sender.send_batch()
    shelf.rows.append(row(2))
    await sender.send_batch()
    assert told_of("control", shelf) == [ClearAlert]


async def test_leader_stops_believing_before_its_lease_ends(clock: HandClock) -> None:
    """Counted from before the call that renewed it."""
    shelf = Shelf(clock=clock)
    shelf.answer_takes_s = 3
    mine = await leader(shelf)
    assert mine.leading
    clock.passed_s = 9.9
    assert mine.term() == 1
    clock.passed_s = 10.0
    with pytest.raises(TermPassed):
        mine.term()


async def test_answer_slower_than_the_lease_leads_at_the_next_renewal(clock: HandClock) -> None:
    """The tasks of a leader start when it is sure, whenever that is."""
    shelf = Shelf(clock=clock)
    shelf.answer_takes_s = 12
    mine = await leader(shelf)
    seen = [mine.leading]
    mine.changed.clear()
    shelf.answer_takes_s = 0
    await mine.renew()
    assert [*seen, mine.leading] == [False, True]
    assert mine.changed.is_set()


async def test_losing_the_lease_is_news(clock: HandClock) -> None:
    """Once."""
    shelf = Shelf(clock=clock)
    mine = await leader(shelf)
    mine.changed.clear()
    shelf.holder, shelf.term_now = "other", 2
    await mine.renew()
    assert not mine.leading
    assert mine.changed.is_set()


async def test_replica_with_a_wrong_clock_writes_the_databases_time(clock: HandClock) -> None:
    """Learned each time it asks who leads."""
    shelf = Shelf(clock=clock)
    shelf.database_ahead = timedelta(seconds=30)
    right = DatabaseClock(clock)
    await Leadership(shelf, "me", live(), right).renew()  # type: ignore[arg-type]
    assert right.now() == NOW + timedelta(seconds=30)


async def test_held_renewals_do_not_stand_before_a_stop(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: one wake-up reads past them, and nobody reads them again."""
    monkeypatch.setattr("scheduler.cycle.outbox_relay.BATCH", 2)
    mark = {"kind": "tokens", TOKENS: "store"}
    renewals = [OutboxRow(n, OutMessage("control", b"{}", mark, f"vm-{n}")) for n in range(9)]
    shelf, wire = Shelf(*renewals, row(99, worker="vm-1"), clock=clock), Wire()
    led = await leader(shelf)
    sender = Relay(shelf, wire, led, clock, live(), as_sent, SealedParts())  # type: ignore[arg-type]
    await sender._drain()
    assert (wire.sent, shelf.rows) == ([b"99"], renewals)
    sender._starts.close()
