"""A ClusterManager that asks for a gang's VMs together: over real store semantics, with a scripted
cloud whose requests wait until told otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.actions import Create, Delete, Queue
from core.changes import JobMove, NewJob, VmMove
from core.cluster import ClusterSpec
from core.errors import CloudRefused, CloudUnsure, ZenError
from core.job import E, Job, JobEvent, Membership
from core.job_steps import EventFacts, advance, entry_for
from core.mig import MachineState, ManagedInstance, MigSnapshot, Queued, QueueState, Refusal
from core.names import gang_of
from core.region_blocks import BlockKind
from core.vm import Vm, VmEvent, VmState, advance_vm, take_lease
from migs.classify import ComputeError, refusal
from migs.manager import MigManager
from orchestrator.cluster_manager import ClusterManager
from orchestrator.reconcile.context import Wiring
from sim.memory.store import MemoryStore
from tests.builders import NAMES, REGIONS, RULES, HandClock, at, cluster, dice, job, live

V, Q = VmState, QueueState
HERE, THERE = REGIONS[0], REGIONS[1]
GANG = "job-uid-0001"
STOCKOUT = Refusal(BlockKind.STOCKOUT, "no room for all of them")


class FlexCloud:
    """Requests and members as told; a request id is known again, a name is taken once."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.requests: dict[str, Queued] = {}
        self.asked: dict[str, Queue] = {}
        self.members: dict[str, dict[str, ManagedInstance]] = {}
        self.calls: Counter[str] = Counter()
        self.lose: dict[str, ZenError] = {}
        """Kind of call → the error that follows its effect."""
        self.refuse: dict[str, ZenError] = {}
        self.remembers = True

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        members = tuple(self.members.get(region, {}).values())
        return MigSnapshot(mig, cluster, region, len(members), True, members, self.clock.now())

    async def create(self, mig: str, action: Create) -> None:
        raise AssertionError(f"{action} one by one")

    async def delete(self, mig: str, action: Delete) -> None:
        self.calls["delete"] += 1
        for name in action.names:
            self.members.get(action.region, {}).pop(name, None)

    async def queue(self, mig: str, action: Queue) -> None:
        self.calls["queue"] += 1
        if "queue" in self.refuse:
            raise self.refuse["queue"]
        known = self.asked.get(action.name)
        if known is None:
            self.asked[action.name] = action
            self.requests[action.name] = Queued(
                action.name, Q.ACCEPTED, len(action.names), action.run_s, (STOCKOUT,)
            )
            group = self.members.setdefault(action.region, {})
            group |= {
                n: ManagedInstance(n, "", MachineState.NONE, refusals=(STOCKOUT,))
                for n in action.names
            }
        elif not self.remembers:
            raise CloudRefused("alreadyExists")
        if "queue" in self.lose:
            raise self.lose["queue"]

    async def queued(self, mig: str, region: str) -> tuple[Queued, ...]:
        self.calls["queued"] += 1
        mine = (name for name, action in self.asked.items() if action.region == region)
        return tuple(self.requests[name] for name in mine)

    async def unqueue(self, mig: str, region: str, name: str, request_id: str) -> None:
        self.calls["unqueue"] += 1
        if not self.requests[name].state.final:
            self.end(name, Q.CANCELLED)
        if "unqueue" in self.lose:
            raise self.lose["unqueue"]

    def end(self, name: str, state: QueueState, *errors: Refusal) -> None:
        self.requests[name] = replace(self.requests[name], state=state, refusals=errors)
        for vm_name in self.asked[name].names:
            self.members[self.asked[name].region].pop(vm_name)

    def give(self, name: str, machine: MachineState = MachineState.RUNNING) -> None:
        """All of it at once."""
        action = self.asked[name]
        self.requests[name] = replace(self.requests[name], state=Q.SUCCEEDED, refusals=())
        self.members[action.region] |= {
            n: ManagedInstance(n, f"{action.region}-a", machine, f"id-{n}") for n in action.names
        }

    @property
    def request(self) -> str:
        """The one that was made last."""
        return list(self.asked)[-1]


class House:
    """A store, a cloud, a manager, a gang of four that waits."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.clock = HandClock()
        self.cloud = FlexCloud(self.clock)
        self.store = MemoryStore(self.clock)
        self.spec = spec
        self.gang: list[Job] = []
        self.new_leader()

    def new_leader(self) -> None:
        """The next leader has nothing but the store."""
        wiring = Wiring(
            store=self.store,
            names=NAMES,
            settings=live(self.spec),
            ids=dice(int(self.clock.passed_s) + 1),
            clock=self.clock,
            term=lambda: 1,
            mig_of=lambda name, region: MigManager("mig", name, region, self.cloud, self.cloud),
            on_cloud_call=lambda *_: None,
        )
        self.manager = ClusterManager(self.spec, wiring)

    async def open(self) -> House:
        await self.store.lead("me", 10_000)
        for rank in range(4):
            new = replace(job(rank + 1), gang=Membership(GANG, rank, 4))
            admitted = advance(new, E.ADMITTED, at(0), RULES, facts=EventFacts(gang_region=HERE))
            first = NewJob(new, entry_for(None, new, JobEvent.SUBMITTED), f"hash-{rank}")
            move = JobMove(new, admitted, (entry_for(new, admitted, E.ADMITTED),))
            assert (await self.store.commit([(first,), (move,)], None)).all_applied
            self.gang.append(admitted)
        return self

    async def step(self, event: JobEvent, gang_region: str | None = None) -> None:
        facts = EventFacts(gang_region=gang_region)
        moves = []
        for index, member in enumerate(self.gang):
            after = advance(member, event, self.clock.now(), RULES, facts=facts)
            moves.append((JobMove(member, after, (entry_for(member, after, event),)),))
            self.gang[index] = after
        assert (await self.store.commit(moves, None)).all_applied

    async def reconciles(self, count: int, every_s: float = 1.0) -> None:
        for _ in range(count):
            await self.manager.reconcile()
            self.clock.passed_s += every_s

    async def vms(self) -> Sequence[Vm]:
        return (await self.store.snapshot(0)).vms


@pytest.fixture
async def house() -> House:
    return await House(cluster(vm_max=8, flex_start_wait_s=7200.0)).open()


async def test_gang_waits_and_comes(house: House) -> None:
    """One request, written down first; for an hour its VMs are REQUESTED, whatever the cloud says
    about its last try; given, they boot from then on. Its state is asked after only meanwhile."""
    await house.reconciles(3)
    made = await house.vms()
    assert [v.state for v in made] == [V.REQUESTED] * 4
    assert {gang_of(v.together) for v in made} == {GANG}
    await house.reconciles(60, every_s=60)
    snapshot = await house.store.snapshot(0)
    assert (snapshot.vms, snapshot.requests, snapshot.blocks) == (made, (), ())
    assert house.cloud.calls == {"queue": 1, "queued": house.cloud.calls["queued"]}
    house.cloud.give(house.cloud.request, MachineState.STARTING)
    await house.reconciles(1, every_s=6)
    given_at, looks = house.clock.passed_s - 6, house.cloud.calls["queued"]
    assert {(v.state, v.state_since) for v in await house.vms()} == {(V.BOOTING, at(given_at))}
    house.cloud.give(house.cloud.request)
    await house.reconciles(2, every_s=6)
    assert all(v.running_since is not None for v in await house.vms())
    assert house.cloud.calls["queued"] == looks


async def test_lost_answer_asks_once(house: House) -> None:
    """The same name, the same request id: four VMs, one request."""
    house.cloud.lose["queue"] = CloudUnsure("timed out")
    await house.reconciles(2)
    assert [r.kind for r in (await house.store.snapshot(0)).requests] == ["queue"]
    house.cloud.lose.clear()
    await house.reconciles(5)
    snapshot = await house.store.snapshot(0)
    assert (len(snapshot.vms), len(house.cloud.requests), snapshot.requests) == (4, 1, ())


@pytest.mark.parametrize(("asked", "remembers"), [(False, True), (True, True), (True, False)])
async def test_leader_dies_between_writing_and_hearing(
    house: House, asked: bool, remembers: bool
) -> None:
    """The next one makes the call that was written down; also if it was made after all, even so
    long ago that the cloud knows the name but not the request id any more."""
    (house.cloud.lose if asked else house.cloud.refuse)["queue"] = CloudUnsure("died")
    await house.reconciles(1)
    assert len(house.cloud.requests) == asked
    assert len(await house.vms()) == 4
    house.cloud.lose.clear()
    house.cloud.refuse.clear()
    house.cloud.remembers = remembers
    house.new_leader()
    await house.reconciles(40)
    snapshot = await house.store.snapshot(0)
    assert (len(snapshot.vms), len(house.cloud.requests), snapshot.requests) == (4, 1, ())
    assert snapshot.blocks == ()


async def test_failed_request_is_knowledge(house: House) -> None:
    """Its names are free again, the region is blocked by what the cloud said, and no other request
    is made there at once."""
    await house.reconciles(2)
    quota = Refusal(BlockKind.QUOTA, "Quota 'NVIDIA_L4_GPUS' exceeded")
    house.cloud.end(house.cloud.request, Q.FAILED, quota)
    await house.reconciles(10)
    snapshot = await house.store.snapshot(0)
    assert snapshot.vms == ()
    assert [(t.region, t.kind) for t in snapshot.blocks] == [(HERE, BlockKind.QUOTA)]
    assert house.cloud.calls["queue"] == 1
    await house.step(E.GANG_TIMEOUT)
    await house.step(E.ADMITTED, gang_region=THERE)
    await house.reconciles(2)
    assert {v.region for v in await house.vms()} == {THERE}


@pytest.mark.parametrize(
    "errors", [(STOCKOUT,), (refusal(ComputeError("ODD", "what is this")),), ()]
)
async def test_failing_again_and_again_costs_few_calls(
    house: House, errors: tuple[Refusal, ...]
) -> None:
    """A cloud that takes each request and fails it is not asked in a circle."""
    for _ in range(600):
        await house.reconciles(1)
        for name in [n for n, r in house.cloud.requests.items() if not r.state.final]:
            house.cloud.end(name, Q.FAILED, *errors)
    assert house.cloud.calls["queue"] <= 18


async def test_another_gang_at_work_does_not_shorten_the_pause(house: House) -> None:
    """Its VMs came long ago: they say nothing about requests that fail now."""
    await house.reconciles(2)
    house.cloud.give(house.cloud.request)
    await house.reconciles(8)
    await house.step(E.GANG_TIMEOUT)
    await house.step(E.ADMITTED, gang_region=HERE)
    moves: list[tuple[VmMove, ...]] = []
    for made in await house.vms():
        ready = advance_vm(
            made, VmEvent.WORKER_READY, house.clock.now(), "its worker is ready", boot_nonce="n"
        )
        works = take_lease(ready, f"lease-{made.name}")
        moves.append((VmMove(made, replace(works, version=made.version + 1)),))
    assert (await house.store.commit(moves, None)).all_applied
    before = house.cloud.calls["queue"]
    for _ in range(300):
        await house.reconciles(1)
        for name in [n for n, r in house.cloud.requests.items() if not r.state.final]:
            house.cloud.end(name, Q.FAILED, STOCKOUT)
    assert 1 <= house.cloud.calls["queue"] - before <= 14


@pytest.mark.parametrize("state", [Q.CREATING, Q.ACCEPTED])
async def test_what_the_cloud_keeps_may_be_listed_late(house: House, state: QueueState) -> None:
    """As long as it says that the request waits, nobody asks again."""
    await house.reconciles(2)
    request = house.cloud.requests[house.cloud.request]
    house.cloud.requests[request.name] = replace(request, state=state)
    house.cloud.members[HERE].clear()
    await house.reconciles(30, every_s=10)
    assert [v.state for v in await house.vms()] == [V.REQUESTED] * 4
    assert house.cloud.calls["queue"] == 1


async def test_straggler_of_a_request_that_was_given_has_a_time_to_boot(house: House) -> None:
    """Three run, the cloud calls the request done, the fourth has no machine: it is not waited for
    without end."""
    await house.reconciles(2)
    house.cloud.give(house.cloud.request)
    late = house.cloud.asked[house.cloud.request].names[0]
    house.cloud.members[HERE][late] = ManagedInstance(late, "", MachineState.NONE)
    await house.reconciles(8)
    states = {v.name: v.state for v in await house.vms()}
    assert states[late] is V.BOOTING


async def test_gang_that_leaves_takes_its_request_along(house: House) -> None:
    """Cancelled by its name, though the first answer is lost; its places are free."""
    await house.reconciles(2)
    await house.step(E.GANG_TIMEOUT)
    house.cloud.lose["unqueue"] = CloudUnsure("timed out")
    await house.reconciles(2)
    assert {v.state for v in await house.vms()} == {V.DELETING}
    assert house.cloud.calls["delete"] == 0, "not before the cancellation was answered"
    house.cloud.lose.clear()
    await house.reconciles(40)
    snapshot = await house.store.snapshot(0)
    assert (snapshot.vms, snapshot.requests) == ((), ())
    assert house.cloud.requests[house.cloud.request].state is Q.CANCELLED


async def test_given_while_it_is_given_up(house: House) -> None:
    """The cloud was faster, between our look and our call: what it gave is deleted by name."""
    await house.reconciles(2)
    await house.step(E.GANG_TIMEOUT)
    house.cloud.give(house.cloud.request)
    await house.reconciles(1)
    assert house.cloud.calls["unqueue"] == 1
    assert {v.state for v in await house.vms()} == {V.DELETING}
    await house.reconciles(40)
    assert tuple(await house.vms()) == ()
    assert house.cloud.members[HERE] == {}


async def test_refused_request_holds_the_region(house: House) -> None:
    """A group that takes none: no names stay, and it is left alone."""
    house.cloud.refuse["queue"] = CloudRefused("defaultActionOnFailure must be DO_NOTHING")
    await house.reconciles(30)
    snapshot = await house.store.snapshot(0)
    assert snapshot.vms == ()
    assert house.cloud.calls["queue"] == 1
    assert [t.kind for t in snapshot.blocks] == [BlockKind.OTHER]


async def test_end_of_the_run_is_no_loss(house: House) -> None:
    """The cloud ends what it gave for a time: taken, as a spot VM is."""
    await house.reconciles(2)
    house.cloud.give(house.cloud.request)
    await house.reconciles(2, every_s=6)
    house.cloud.give(house.cloud.request, MachineState.STOPPING)
    await house.reconciles(1, every_s=6)
    gone = [v for v in await house.vms() if v.running_since is not None]
    assert len(gone) == 4
    assert {(v.state, v.taken) for v in gone} == {(V.DELETING, True)}
    assert gone[0].reason == "taken by the cloud (the end of its run)"
