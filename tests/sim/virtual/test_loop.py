"""Virtual time, processes that can be killed and frozen, and a bus that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Iterator
from datetime import timedelta

import pytest

from core.errors import BusDown
from core.messages import OutMessage
from sim.virtual.bus import ACK_DEADLINE_S, SWEEP_S, BusOdds, MemoryBus, PretendBroker
from sim.virtual.loop import EPOCH, Stalled, VirtualClock, VirtualLoop
from sim.virtual.trace import Trace


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.dispose()


class Heartbeats:
    """Something that happens every second."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.at: list[float] = []
        self.ended = False

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                self.at.append(self._loop.time())
        finally:
            self.ended = True


def test_hours_pass_in_no_time(loop: VirtualLoop) -> None:
    """The clock jumps to the next timer."""

    async def play() -> None:
        async with asyncio.timeout(7200):
            await asyncio.sleep(3600)

    loop.run_until_complete(play())
    assert loop.time() == 3600


def test_killed_process_does_nothing_more_not_even_finally(loop: VirtualLoop) -> None:
    """As SIGKILL: no callback of it runs again."""
    heartbeats = Heartbeats(loop)

    async def play() -> None:
        process = loop.process("victim")
        process.spawn(heartbeats.run())
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(10)

    loop.run_until_complete(play())
    assert heartbeats.at == [1, 2]
    assert not heartbeats.ended


def test_killing_a_frozen_process_leaves_no_task_to_the_garbage_collector(
    loop: VirtualLoop,
) -> None:
    """Work that came while it was frozen has not begun, and nobody else holds on to it."""
    told: list[str] = []
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))

    async def main() -> None:
        process = loop.process("frozen")
        process.freeze()
        process.spawn(asyncio.sleep(1))
        await asyncio.sleep(1)
        process.kill()
        gc.collect()

    loop.run_until_complete(main())
    assert told == []


def test_frozen_process_goes_on_when_it_thaws(loop: VirtualLoop) -> None:
    """As SIGSTOP and SIGCONT: what was due meanwhile happens late, and the others never stopped."""
    frozen, other = Heartbeats(loop), Heartbeats(loop)

    async def play() -> None:
        process = loop.process("frozen")
        process.spawn(frozen.run())
        loop.process("other").spawn(other.run())
        await asyncio.sleep(1.5)
        process.freeze()
        await asyncio.sleep(4)
        process.thaw()
        await asyncio.sleep(1.2)

    loop.run_until_complete(play())
    assert frozen.at == [1, 5.5, 6.5]
    assert other.at == [1, 2, 3, 4, 5, 6]


def test_world_that_waits_for_nothing_or_spins_is_noticed(loop: VirtualLoop) -> None:
    """Instead of hanging."""

    async def spin() -> None:
        while True:  # noqa: ASYNC110  # it is meant to spin
            await asyncio.sleep(0)

    with pytest.raises(Stalled, match="no timer"):
        loop.run_until_complete(loop.create_future())
    with pytest.raises(Stalled, match="has not moved"):
        loop.run_until_complete(spin())


def test_clocks_differ_by_machine_and_count_alike(loop: VirtualLoop) -> None:
    """Wall time may be wrong; the monotonic clock only counts."""
    right, wrong = VirtualClock(loop), VirtualClock(loop, ahead_s=-300, counted_s=5)
    loop.run_until_complete(asyncio.sleep(10))
    assert right.now() == EPOCH + timedelta(seconds=10)
    assert right.now() - wrong.now() == timedelta(seconds=300)
    assert (right.monotonic(), wrong.monotonic()) == (10, 15)


# --- the bus -----------------------------------------------------------------------------


class Desk:
    """A topic, a subscription, a reader that notes what came and acknowledges if told to."""

    def __init__(self, loop: VirtualLoop, *, ordered: bool = False) -> None:
        self.loop = loop
        self.trace = Trace(loop)
        self.broker = PretendBroker(loop, random.Random(1), VirtualClock(loop), self.trace)
        self.broker.add_topic("t")
        self.broker.add_subscription("s", "t", {"to": "me"}, ordered=ordered)
        self.process = loop.process("reader")
        self.bus = MemoryBus(self.broker, self.process, random.Random(2), self.trace)
        self.came: list[str] = []

    def listen(self, *, ack: bool = True) -> None:
        self.process.spawn(self._listen(ack))

    async def _listen(self, ack: bool) -> None:
        inbound = self.bus.subscribe("s")
        async for batch in inbound.batches():
            self.came += [message.body.decode() for message in batch]
            if ack:
                await inbound.ack([message.ack_id for message in batch])

    async def send(self, *bodies: str, to: str = "me", key: str = "") -> None:
        messages = [OutMessage("t", body.encode(), {"to": to}, key) for body in bodies]
        await self.bus.publish(messages, 10.0)


def test_message_reaches_those_it_is_for_once(loop: VirtualLoop) -> None:
    """Filters are by attribute; an acknowledged message does not come again."""
    desk = Desk(loop)

    async def play() -> None:
        desk.listen()
        await desk.send("mine")
        await desk.send("theirs", to="you")
        await asyncio.sleep(300)

    loop.run_until_complete(play())
    assert desk.came == ["mine"]


def test_unacknowledged_message_of_a_dead_reader_comes_again(loop: VirtualLoop) -> None:
    """After its deadline, to the subscriber of that moment."""
    desk = Desk(loop)

    async def play() -> None:
        desk.listen(ack=False)
        await desk.send("work")
        await asyncio.sleep(5)
        desk.process.kill()
        desk.process = loop.process("successor")
        desk.bus = MemoryBus(desk.broker, desk.process, random.Random(3), desk.trace)
        desk.listen()
        await asyncio.sleep(ACK_DEADLINE_S + SWEEP_S + 5)

    loop.run_until_complete(play())
    assert desk.came == ["work", "work"]


def test_duplicates_and_disorder_lose_nothing(loop: VirtualLoop) -> None:
    """At least once, in some order."""
    desk = Desk(loop)
    desk.broker.odds = BusOdds(duplicate=0.5, reorder=0.5)
    sent = [f"m{number}" for number in range(50)]

    async def play() -> None:
        desk.listen()
        for body in sent:
            await desk.send(body)
        await asyncio.sleep(60)

    loop.run_until_complete(play())
    assert set(desk.came) == set(sent)
    assert len(desk.came) > len(sent)
    assert list(dict.fromkeys(desk.came)) != sent


def test_lane_that_was_late_is_in_time_after_healing(loop: VirtualLoop) -> None:
    """What is sent then does not wait for the moment at which a late one would have come."""
    desk = Desk(loop, ordered=True)
    desk.broker.odds = BusOdds(delay=1.0)
    sent = [f"m{number}" for number in range(20)]

    async def play() -> None:
        desk.listen()
        await desk.send(*sent, key="lane")
        desk.broker.heal()
        await desk.send("last", key="lane")
        await asyncio.sleep(70)

    loop.run_until_complete(play())
    assert desk.came == [*sent, "last"]


def test_ordered_lane_keeps_its_order_under_delay(loop: VirtualLoop) -> None:
    """A late message holds up those behind it."""
    desk = Desk(loop, ordered=True)
    desk.broker.odds = BusOdds(reorder=0.5, delay=0.3)
    sent = [f"m{number}" for number in range(30)]

    async def play() -> None:
        desk.listen()
        for body in sent:
            await desk.send(body, key="vm")
        await asyncio.sleep(4000)

    loop.run_until_complete(play())
    assert desk.came == sent


def test_cut_off_process_neither_sends_nor_hears(loop: VirtualLoop) -> None:
    """Until it is reached again."""
    desk = Desk(loop)

    async def play() -> None:
        desk.listen()
        desk.broker.cut_off.add("reader")
        with pytest.raises(BusDown):
            await desk.send("lost")
        desk.broker.take([OutMessage("t", b"waiting", {"to": "me"})])
        await asyncio.sleep(30)
        assert desk.came == []
        desk.broker.cut_off.clear()
        await asyncio.sleep(SWEEP_S + 1)

    loop.run_until_complete(play())
    assert desk.came == ["waiting"]


def test_lost_confirmation_is_an_error_with_an_effect(loop: VirtualLoop) -> None:
    """The sender cannot know."""
    desk = Desk(loop)
    desk.broker.odds = BusOdds(lost_confirmation=1.0)

    async def play() -> None:
        desk.listen()
        with pytest.raises(BusDown):
            await desk.send("twice?")
        await asyncio.sleep(5)

    loop.run_until_complete(play())
    assert desk.came == ["twice?"]
