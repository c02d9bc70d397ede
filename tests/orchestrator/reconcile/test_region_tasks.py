"""A region that does not answer holds nothing but itself: real managers, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from core.actions import Create, Delete
from core.changes import AtomicBatch, JobMove, NewJob, NewVm, VmMove
from core.cluster import ClusterSpec
from core.errors import CloudBusy, CloudUnsure
from core.job import E, JobEvent
from core.job_steps import entry_for
from core.mig import CapacityHint, MachineState, ManagedInstance, MigSnapshot
from core.vm import VmState
from migs.manager import MigManager
from orchestrator.cluster_manager import ClusterManager
from orchestrator.orchestrator import ClusterOrchestrator
from orchestrator.planning.plan_input import BUSY, NO_ANSWER
from orchestrator.reconcile.context import Wiring
from orchestrator.reconcile.region_tasks import WAIT_MAX_S
from sim.memory.store import MemoryStore
from sim.virtual.loop import VirtualClock, VirtualLoop
from tests.builders import NAMES, cluster, dice, job, live, settings, vm

V = VmState
TIME_OUT_S = 20.0
SLOW = "us-central1"
"""The cheapest region, which everybody asks first."""


class SlowCloud:
    """Each call takes 0.1 s; in the slow region it takes 20 s and then fails."""

    def __init__(self, loop: VirtualLoop, *slow_calls: str) -> None:
        self._loop = loop
        self.slow_calls = slow_calls
        self.members: dict[str, dict[str, ManagedInstance]] = {}
        self.done: list[tuple[float, str, str, str]] = []
        """(when, call, region, group)"""
        self.inside: dict[str, int] = {}
        self.inside_max = 0

    async def _pass(self, call: str, region: str, group: str) -> None:
        self.inside[group] = self.inside.get(group, 0) + 1
        self.inside_max = max(self.inside_max, self.inside[group])
        try:
            if region == SLOW and call in self.slow_calls:
                await asyncio.sleep(TIME_OUT_S)
                error = CloudBusy if call == "observe" else CloudUnsure
                raise error(f"{region} does not answer")
            await asyncio.sleep(0.1)
        finally:
            self.inside[group] -= 1
        self.done.append((self._loop.time(), call, region, group))

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        await self._pass("observe", region, mig)
        found = tuple(self.members.get(mig, {}).values())
        now = VirtualClock(self._loop).now()
        return MigSnapshot(mig, cluster, region, len(found), True, found, now)

    async def create(self, mig: str, action: Create) -> None:
        await self._pass("create", action.region, mig)
        group = self.members.setdefault(mig, {})
        for name in action.names:
            group[name] = ManagedInstance(
                name, f"{action.region}-a", MachineState.RUNNING, f"id-{name}"
            )

    async def delete(self, mig: str, action: Delete) -> None:
        await self._pass("delete", action.region, mig)
        for name in action.names:
            self.members.get(mig, {}).pop(name, None)

    def first(self, call: str, region: str) -> float:
        return next(at for at, *what, _ in self.done if what == [call, region])


class House:
    """A store, a slow cloud and what a manager needs."""

    def __init__(self, loop: VirtualLoop, *slow_calls: str) -> None:
        self.clock = VirtualClock(loop)
        self.cloud = SlowCloud(loop, *slow_calls)
        self.store = MemoryStore(self.clock)
        self.loop = loop
        self.wiring = Wiring(
            store=self.store,
            names=NAMES,
            settings=live(cluster()),
            ids=dice(),
            clock=self.clock,
            term=lambda: 1,
            mig_of=lambda name, region: MigManager(
                NAMES.mig(name, region), name, region, self.cloud
            ),
            on_cloud_call=lambda *_: None,
        )

    async def want_a_vm(self, number: int, cluster: str) -> None:
        new, admitted = job(number, cluster=cluster), job(number, E.ADMITTED, cluster=cluster)
        first = NewJob(new, entry_for(None, new, JobEvent.SUBMITTED), f"hash-{number}")
        move = JobMove(new, admitted, (entry_for(new, admitted, E.ADMITTED),))
        assert (await self.store.commit([(first,), (move,)], None)).all_applied

    async def reconciles(self, manager: ClusterManager, until_s: float) -> None:
        while self.loop.time() < until_s:
            await manager.reconcile()
            await asyncio.sleep(0.2)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.dispose()


def test_slow_observation_holds_no_other_region(loop: VirtualLoop) -> None:
    """While the cheapest region takes 20 s to fail, the next one is asked within two seconds."""
    house = House(loop, "observe")

    async def run() -> None:
        await house.store.lead("me", 10_000)
        await house.want_a_vm(1, "1xl4")
        manager = ClusterManager(cluster(), house.wiring)
        await house.reconciles(manager, 5.0)
        await manager.close()

    loop.run_until_complete(run())
    assert house.cloud.first("create", "us-east1") < 2.0
    assert WAIT_MAX_S < 2.0


def test_slow_create_holds_no_other_region(loop: VirtualLoop) -> None:
    """A create that hangs in one region: VMs of another are given back and the names that hang are
    counted, so nothing is asked for twice."""
    house = House(loop, "create", "delete")

    async def run() -> None:
        await house.store.lead("me", 10_000)
        await house.want_a_vm(1, "1xl4")
        deleted = vm("vm-1", V.DELETING, region="us-east1", zone="us-east1-a")
        asked = replace(deleted, state=V.REQUESTED, boot_nonce="", idle_since=None)
        mig = NAMES.mig("1xl4", "us-east1")
        house.cloud.members[mig] = {
            "vm-1": ManagedInstance("vm-1", "us-east1-a", MachineState.RUNNING)
        }
        put: list[AtomicBatch] = [
            (NewVm(asked, 99),),
            (VmMove(asked, replace(deleted, version=2)),),
        ]
        assert (await house.store.commit(put, None)).all_applied
        manager = ClusterManager(cluster(), house.wiring)
        await house.reconciles(manager, 10.0)
        snapshot = await house.store.snapshot(0)
        assert sum(made.region == SLOW for made in snapshot.vms) == 1
        await manager.close()

    loop.run_until_complete(run())
    assert house.cloud.first("delete", "us-east1") < 2.0
    assert house.cloud.inside_max == 1, "one call at a time in one group"


def test_a_busy_region_is_told_apart_from_a_silent_one(loop: VirtualLoop) -> None:
    """While a call is under way, the job that waits hears that; once the call was not answered, it
    hears that."""
    house = House(loop, "create")
    spec = replace(cluster(), regions=cluster().regions[:1])
    house.wiring = replace(house.wiring, settings=live(spec))
    said: dict[float, str] = {}

    async def run() -> None:
        await house.store.lead("me", 10_000)
        await house.want_a_vm(1, "1xl4")
        manager = ClusterManager(spec, house.wiring)
        await house.reconciles(manager, 2.0)
        await house.want_a_vm(2, "1xl4")
        for until_s in (5.0, TIME_OUT_S + 0.9):
            await house.reconciles(manager, until_s)
            said[until_s] = manager._reporter._said[SLOW].why
        await manager.close()

    loop.run_until_complete(run())
    assert list(said.values()) == [BUSY, NO_ANSWER]


def test_late_answer_is_used(loop: VirtualLoop) -> None:
    """What a slow region says in the end is folded in, over what was known when it was asked: a VM
    written down meanwhile is not taken for missing."""
    house = House(loop)

    async def run() -> None:
        await house.store.lead("me", 10_000)
        manager = ClusterManager(cluster(), house.wiring)
        await house.reconciles(manager, 1.0)
        gate = asyncio.Event()
        observe = house.cloud.observe

        async def late(mig: str, cluster: str, region: str) -> MigSnapshot:
            seen = await observe(mig, cluster, region)
            if region == SLOW:
                await gate.wait()
            return seen

        house.cloud.observe = late  # type: ignore[method-assign]
        await house.reconciles(manager, 62.0)
        assert SLOW in manager._context.lanes.busy(), "asked, and not answered yet"
        made = vm("vm-9", V.REQUESTED, region=SLOW, zone="", instance_id="")
        old = replace(made, requested_at=house.clock.now().replace(year=2000))
        assert (await house.store.commit([(NewVm(old, 99),)], None)).all_applied
        gate.set()
        await manager.reconcile()
        (kept,) = [row for row in (await house.store.snapshot(0)).vms if row.name == "vm-9"]
        assert kept.counted
        await manager.close()

    loop.run_until_complete(run())


def test_many_clusters_and_one_slow_region(loop: VirtualLoop) -> None:
    """Twenty clusters share the slow region; each gets its VM elsewhere within three seconds, and
    closing does not wait for what hangs."""
    house = House(loop, "observe", "create")
    names = [f"{number}xl4" for number in range(1, 21)]

    async def run() -> None:
        await house.store.lead("me", 10_000)
        for number, name in enumerate(names, 1):
            await house.want_a_vm(number, name)
        house.wiring.settings.adopt(settings(*(cluster(name) for name in names)))
        everything = ClusterOrchestrator(house.wiring)
        while loop.time() < 4.0:
            everything.poke(await house.store.snapshot(0))
            await asyncio.sleep(0.1)
        began = loop.time()
        await everything.close()
        assert loop.time() - began < 1.0

    loop.run_until_complete(run())
    served = {
        group.partition(f"-{region}")[0]
        for at, call, region, group in house.cloud.done
        if call == "create" and at < 3.0
    }
    assert served == {f"{NAMES.prefix}-{name}" for name in names}


class SlowAdvice:
    """Takes 20 s to say anything."""

    def __init__(self) -> None:
        self.asked = 0

    async def advise(self, spec: ClusterSpec, region: str) -> tuple[CapacityHint, ...]:
        self.asked += 1
        await asyncio.sleep(TIME_OUT_S)
        return ()


def test_slow_advice_holds_no_region(loop: VirtualLoop) -> None:
    """While the cloud thinks about its advice, VMs are asked for where they are cheapest."""
    house, advice = House(loop), SlowAdvice()

    async def run() -> None:
        await house.store.lead("me", 10_000)
        await house.want_a_vm(1, "1xl4")
        wiring = replace(house.wiring, advice_of=lambda _: advice)
        house.wiring.settings.adopt(settings(cluster(spot=True)))
        manager = ClusterManager(cluster(spot=True), wiring)
        await house.reconciles(manager, 5.0)
        await manager.close()

    loop.run_until_complete(run())
    assert advice.asked == 3, "each region once: the first answers are still to come"
    assert house.cloud.first("create", SLOW) < 2.0
