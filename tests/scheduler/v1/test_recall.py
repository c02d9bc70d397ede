"""Messages for v1 workers that are not meant any more are taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from core.changes import Snapshot
from core.errors import BusDown, Forbidden
from core.job import E, Job, Offer
from core.job_steps import EventFacts
from core.messages import InMessage, OutMessage
from core.names import Names
from core.vm import Vm, VmState
from scheduler.plan_builder import PlanBuilder
from scheduler.v1.recall import Recall
from tests.builders import NOW, RULES, at, job, snapshot, vm

NAMES = Names()
V1 = frozenset({"1xl4"})
STARTS, STOPS = NAMES.start_subscription("1xl4"), NAMES.stop_subscription


def message(name: str, body: str) -> InMessage:
    return InMessage(f"ack-{name}", name, NOW, body.encode())


def start(lease_id: str) -> InMessage:
    return message(lease_id, f'{{"job_id":"j","lease_id":"{lease_id}"}}')


def stop(job_id: str) -> InMessage:
    return message(f"stop-{job_id}", f'{{"action":"stop","job_id":"{job_id}"}}')


def out(number: int) -> Job:
    waits = job(number, E.ADMITTED, workflow="train")
    return replace(waits, offer=Offer(f"lease-{number}", "uid-vm-a", at(0)))


def up(name: str, **facts: object) -> Vm:
    there = {"instance_id": "7", "running_since": NOW, "boot_nonce": "", **facts}
    return vm(name, VmState.BOOTING, **there)  # type: ignore[arg-type]


@dataclass(slots=True)
class Box:
    """One subscription; whatever is not acknowledged comes again."""

    held: list[InMessage]
    acked: list[str] = field(default_factory=list)
    fail: Exception | None = None
    empty: asyncio.Event = field(default_factory=asyncio.Event)

    async def batches(self) -> AsyncIterator[Sequence[InMessage]]:
        if self.fail is not None:
            why, self.fail = self.fail, None
            raise why
        if not self.held:
            await asyncio.Event().wait()
        yield tuple(self.held)

    async def ack(self, ack_ids: Sequence[str]) -> None:
        self.acked += ack_ids
        self.held = [m for m in self.held if m.ack_id not in ack_ids]
        if not self.held:
            self.empty.set()

    async def nack(self, ack_ids: Sequence[str]) -> None: ...
    async def close(self) -> None: ...


class House:
    """The rows, the two subscriptions, and the leader's task."""

    def __init__(
        self, jobs: Sequence[Job], starts: list[InMessage], stops: list[InMessage]
    ) -> None:
        self.jobs = jobs
        self.vms: tuple[Vm, ...] = (up("vm-a"),)
        self.boxes = {STARTS: Box(starts), STOPS: Box(stops)}
        self.recall = Recall(self, self, NAMES)  # type: ignore[arg-type]  # the two calls it makes

    def subscribe(self, subscription: str, *, max_messages: int) -> Box:
        assert max_messages > 0
        return self.boxes[subscription]

    async def snapshot(self, queue_limit: int) -> Snapshot:
        assert queue_limit == 0
        return snapshot(tuple(self.jobs), self.vms)

    def cycle(self, *jobs: Job) -> PlanBuilder:
        """What the loop shows after a cycle with these rows."""
        self.jobs = jobs
        return PlanBuilder(snapshot(jobs, self.vms), RULES, lambda _: OutMessage("", b""))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.v1.recall.LOOK_S", 0.02)
    monkeypatch.setattr("scheduler.v1.recall.RETRY_S", 0.01)


async def looked_through(house: House) -> None:
    names = list(house.recall._dirty)
    house.recall._dirty.clear()
    for name in names:
        await house.recall._clean(name)


async def test_a_new_leader_looks_through_everything() -> None:
    """Its predecessor may have left anything; what is meant stays."""
    house = House([], [start("lease-1"), start("gone")], [stop("old"), stop("job-2")])
    stopping = replace(job(2, E.ADMITTED, E.PLACED, E.STARTED, E.STOP_ASKED))
    house.recall.look(house.cycle(out(1), stopping), V1)
    await looked_through(house)
    assert house.boxes[STARTS].acked == ["ack-gone"]
    assert house.boxes[STOPS].acked == ["ack-stop-old"]
    assert [m.message_id for m in house.boxes[STARTS].held] == ["lease-1"]


async def known(house: House, *jobs: Job) -> None:
    """The first look is over, and so is what it found."""
    house.recall.look(house.cycle(*jobs), V1)
    house.recall._dirty.clear()


async def test_a_start_that_lost_its_meaning_is_taken_back() -> None:
    """Cancelled by its owner, by another replica: the leader sees it in its next snapshot."""
    house = House([], [start("lease-1")], [])
    await known(house, out(1))
    house.recall.look(house.cycle(), V1)
    assert list(house.recall._dirty) == [STARTS]
    await looked_through(house)
    assert house.boxes[STARTS].acked == ["ack-lease-1"]


async def test_a_claim_has_both_looked_through() -> None:
    """The bus may have been given its message twice; and a stop that somebody left under this id
    must not find it."""
    house = House([], [start("lease-1")], [stop("job-1")])
    await known(house, out(1))
    plan = house.cycle(out(1))
    lease = replace(job(1, E.ADMITTED, E.PLACED).lease, lease_id="lease-1")  # type: ignore[type-var]
    plan.step(plan.jobs["job-uid-0001"], E.FOUND_BY_V1, "taken", facts=EventFacts(lease=lease))
    house.recall.look(plan, V1)
    house.jobs = list(plan.jobs.values())
    await looked_through(house)
    assert house.boxes[STARTS].acked == ["ack-lease-1"]
    assert house.boxes[STOPS].acked == ["ack-stop-job-1"]


async def test_nothing_is_looked_at_without_reason() -> None:
    """A look keeps workers from what they should find, if only for a moment."""
    house = House([], [], [])
    await known(house, out(1))
    house.recall.look(house.cycle(out(1)), V1)
    house.recall.look(house.cycle(out(1), out(2)), V1)
    assert not house.recall._dirty
    Recall(house, house, NAMES).look(house.cycle(out(1)), frozenset())  # type: ignore[arg-type]


async def test_a_message_that_was_found_is_with_nobody() -> None:
    """Its VM is no more: it may be sent again at once."""
    house = House([], [start("lease-1")], [])
    await known(house, out(1))
    house.vms = (up("vm-b"),)
    house.recall.look(house.cycle(out(1)), V1)
    await looked_through(house)
    assert house.recall.recalled == {"lease-1": frozenset()}
    house.recall.look(house.cycle(out(1)), V1)
    assert not house.recall._dirty, "once is enough"
    house.recall.look(house.cycle(), V1)
    assert house.recall.recalled == {}


async def test_a_message_that_was_not_found_is_with_somebody() -> None:
    """With its VM that is no more, or with one that was up by then and has not spoken."""
    house = House([], [], [])
    await known(house, out(1))
    house.vms = (up("vm-b"), up("vm-c", running_since=None), up("vm-d", leases=("other",)))
    house.recall.look(house.cycle(out(1)), V1)
    await looked_through(house)
    assert house.recall.recalled == {"lease-1": frozenset({"uid-vm-b"})}


async def test_jobs_go_on_where_we_may_not_look() -> None:
    """Without the right to subscribe, a VM that could have it is awaited all the same."""
    house = House([], [start("lease-1")], [])
    await known(house, out(1))
    house.vms = (up("vm-b"),)
    house.boxes[STARTS].fail = Forbidden("no permission to subscribe")
    house.recall.look(house.cycle(out(1)), V1)
    await looked_through(house)
    assert house.recall.recalled == {"lease-1": frozenset({"uid-vm-b"})}


async def test_what_is_not_ours_is_left_there() -> None:
    """Somebody may have put it there by hand."""
    house = House([], [message("odd", "hello")], [])
    house.recall.look(house.cycle(), V1)
    await looked_through(house)
    assert house.boxes[STARTS].acked == []


async def test_a_bus_that_is_away_is_asked_again() -> None:
    """Nothing is forgotten."""
    house = House([], [start("gone")], [])
    house.boxes[STARTS].fail = BusDown("away")
    house.recall.look(house.cycle(), V1)
    await looked_through(house)
    assert list(house.recall._dirty)[-1] == STARTS
    await looked_through(house)
    assert house.boxes[STARTS].acked == ["ack-gone"]


async def test_the_task_wakes_and_cleans() -> None:
    """As the leader runs it."""
    house = House([], [start("gone")], [stop("old")])
    task = asyncio.create_task(house.recall.run())
    house.recall.look(house.cycle(), V1)
    async with asyncio.timeout(10):
        await asyncio.gather(*(box.empty.wait() for box in house.boxes.values()))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert house.boxes[STARTS].acked == ["ack-gone"]
