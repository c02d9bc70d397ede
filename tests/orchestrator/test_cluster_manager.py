"""A ClusterManager's rounds: over the real planner and store semantics, with a scripted cloud."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from core.actions import Create, Delete
from core.changes import (
    AtomicBatch,
    Change,
    ClearAlert,
    Committed,
    JobMove,
    NewJob,
    NewVm,
    PutRegionBlock,
    RaiseAlert,
    VmMove,
)
from core.cluster import ClusterSpec
from core.errors import CloudBusy, CloudUnsure, Forbidden, MigMissing, StoreDown, ZenError
from core.job import E, JobEvent
from core.job_steps import entry_for
from core.mig import MachineState, ManagedInstance, MigSnapshot, OperationFailed, Refusal
from core.region_blocks import BlockKind, block_key
from core.timers import Timers
from core.vm import Vm, VmEvent, VmState, advance_vm
from migs.classify import ComputeError, refusal
from migs.manager import MigManager
from orchestrator.cluster_manager import ClusterManager
from orchestrator.orchestrator import ClusterOrchestrator
from orchestrator.reconcile.context import Wiring
from orchestrator.supply.blocks import learn
from sim.memory.store import MemoryStore
from tests.builders import NAMES, HandClock, at, cluster, dice, job, live, settings, vm

V = VmState
TIMERS = Timers()


class ScriptedCloud:
    """Groups that do as told, and count what they are asked."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.members: dict[str, dict[str, ManagedInstance]] = {}
        self.fail: dict[str, ZenError] = {}
        """Kind of call, or "kind region" → the error it ends with."""
        self.effect_before_failure = False
        self.calls: Counter[str] = Counter()
        self.request_ids: list[str] = []
        self.refuses: Refusal | None = None
        """Members are listed, and never made."""

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        self.calls["observe"] += 1
        self._perhaps_fail("observe", region)
        found = tuple(self.members.get(region, {}).values())
        return MigSnapshot(mig, cluster, region, len(found), True, found, self.clock.now())

    async def create(self, mig: str, action: Create) -> None:
        self.calls["create"] += 1
        self.request_ids.append(action.request_id)
        if self.effect_before_failure:
            self._add(action)
        self._perhaps_fail("create", action.region)
        self._add(action)

    async def delete(self, mig: str, action: Delete) -> None:
        self.calls["delete"] += 1
        self._perhaps_fail("delete", action.region)
        for name in action.names:
            self.members.get(action.region, {}).pop(name, None)

    def _add(self, action: Create) -> None:
        group = self.members.setdefault(action.region, {})
        for name in action.names:
            made = ManagedInstance(name, f"{action.region}-a", MachineState.RUNNING, f"id-{name}")
            if self.refuses is not None:
                made = ManagedInstance(
                    name, f"{action.region}-a", MachineState.NONE, refusals=(self.refuses,)
                )
            group[name] = made

    def _perhaps_fail(self, kind: str, region: str) -> None:
        error = self.fail.get(kind) or self.fail.get(f"{kind} {region}")
        if error is not None:
            raise error


class House:
    """A store, a cloud, a manager."""

    def __init__(self, spec: ClusterSpec | None = None) -> None:
        self.clock = HandClock()
        self.cloud = ScriptedCloud(self.clock)
        self.store = MemoryStore(self.clock)
        self.spec = spec or cluster()
        self.wiring = Wiring(
            store=self.store,
            names=NAMES,
            settings=live(self.spec, timers=TIMERS),
            ids=dice(),
            clock=self.clock,
            term=lambda: 1,
            mig_of=lambda name, region: MigManager(
                NAMES.mig(name, region), name, region, self.cloud
            ),
            on_cloud_call=lambda *_: None,
        )
        self.manager = ClusterManager(self.spec, self.wiring)

    async def open(self) -> House:
        await self.store.lead("me", 10_000)
        return self

    def configure(self, *clusters: ClusterSpec, timers: Timers = TIMERS) -> None:
        """These are in force from now on."""
        self.wiring.settings.adopt(settings(*clusters, timers=timers))

    async def put(self, *batches: AtomicBatch) -> None:
        assert (await self.store.commit(batches, None)).all_applied

    async def wait_for_work(self, count: int = 1) -> None:
        """That many jobs in PROVISIONING."""
        for number in range(1, count + 1):
            new, admitted = job(number), job(number, E.ADMITTED)
            first = NewJob(new, entry_for(None, new, JobEvent.SUBMITTED), f"hash-{number}")
            move = JobMove(new, admitted, (entry_for(new, admitted, E.ADMITTED),))
            await self.put((first,), (move,))

    async def add_vm(self, made: Vm) -> Vm:
        asked = replace(made, state=V.REQUESTED, leases=(), boot_nonce="", idle_since=None)
        now = replace(made, version=2)
        await self.put((NewVm(asked, 99),), (VmMove(asked, now),))
        return now

    async def reconciles(self, count: int, every_s: float = 1.0) -> None:
        for _ in range(count):
            await self.manager.reconcile()
            self.clock.passed_s += every_s

    async def vms(self) -> Sequence[Vm]:
        return (await self.store.snapshot(0)).vms

    async def alerts(self) -> set[tuple[str, str]]:
        return set((await self.store.snapshot(0)).open_alerts)


@pytest.fixture
async def house() -> House:
    return await House().open()


async def test_demand_becomes_a_vm_written_down_before_the_call(house: House) -> None:
    """One job, one VM, one call, settled."""
    await house.wait_for_work()
    await house.reconciles(3)
    (made,) = await house.vms()
    assert (made.state, made.region) == (V.BOOTING, "us-central1")
    assert house.cloud.calls["create"] == 1
    assert (await house.store.snapshot(0)).requests == ()


async def test_lost_answer_is_repeated_with_the_same_request_id(house: House) -> None:
    """The VM exists; nothing is made twice."""
    await house.wait_for_work()
    house.cloud.fail["create"] = CloudUnsure("timed out")
    house.cloud.effect_before_failure = True
    await house.reconciles(1)
    house.cloud.fail.clear()
    await house.reconciles(5)
    assert len(await house.vms()) == 1
    assert len(set(house.cloud.request_ids)) == 1
    assert (await house.store.snapshot(0)).requests == ()


def failed(code: str, message: str) -> OperationFailed:
    """An operation that the cloud accepted, and that ended with an error."""
    return OperationFailed(
        f"accepted, then failed: {code}", (refusal(ComputeError(code, message)),)
    )


@pytest.mark.parametrize(
    ("code", "kind", "alert"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", BlockKind.STOCKOUT, None),
        ("QUOTA_EXCEEDED", BlockKind.QUOTA, "cloud_quota"),
        ("CONDITION_NOT_MET", BlockKind.OTHER, "cloud_other"),
    ],
)
async def test_an_accepted_call_that_fails_is_folded_like_a_members_error(
    house: House, code: str, kind: BlockKind, alert: str | None
) -> None:
    """Its error has the kind, the block and the alert that a member's would have; its VM is gone at
    the next look, and another region is asked."""
    await house.wait_for_work()
    house.cloud.fail["create us-central1"] = failed(code, "in Google's words")
    await house.reconciles(3)
    snapshot = await house.store.snapshot(0)
    (block,) = snapshot.blocks
    assert (block.region, block.kind) == ("us-central1", kind)
    assert "in Google's words" in block.message
    assert {name for name, _ in snapshot.open_alerts} == ({alert} if alert else set())
    assert snapshot.requests == ()
    (asked,) = snapshot.vms
    assert asked.region != "us-central1"


async def test_what_a_failed_call_has_made_all_the_same_is_kept(house: House) -> None:
    """A call for several may fail for some: what the group lists is a VM, whatever was said."""
    await house.wait_for_work()
    house.cloud.fail["create us-central1"] = failed("INTERNAL_ERROR", "")
    house.cloud.effect_before_failure = True
    await house.reconciles(2)
    assert "us-central1" in {vm.region for vm in await house.vms() if vm.running_since is not None}


async def test_a_deletion_that_fails_is_told_and_asked_for_again(house: House) -> None:
    """With Google's words; the VM is not forgotten."""
    await house.add_vm(vm("vm-1", V.DELETING, zone="us-central1-a"))
    house.cloud.members["us-central1"] = {
        "vm-1": ManagedInstance("vm-1", "us-central1-a", MachineState.RUNNING)
    }
    house.cloud.fail["delete"] = failed("INTERNAL_ERROR", "try again")
    await house.reconciles(2)
    assert {kind for kind, _ in await house.alerts()} == {"cloud_other"}
    house.cloud.fail.clear()
    await house.reconciles(10)
    assert await house.vms() == ()


async def test_blocked_region_costs_few_calls(house: House) -> None:
    """A delete that the cloud does not take is asked for with growing pauses, not in each
    reconcile."""
    await house.add_vm(vm("vm-1", V.DELETING, zone="us-central1-a"))
    house.cloud.members["us-central1"] = {
        "vm-1": ManagedInstance("vm-1", "us-central1-a", MachineState.RUNNING)
    }
    house.cloud.fail["delete"] = CloudBusy("rate limit")
    await house.reconciles(300, every_s=0.2)
    assert house.cloud.calls["delete"] <= 8
    assert len((await house.store.snapshot(0)).requests) == 1
    house.cloud.fail.clear()
    await house.reconciles(70)
    assert await house.vms() == ()


async def test_refusal_is_told_to_a_human_once_and_over_when_it_is(house: House) -> None:
    """Forbidden: hold, one alert; observed again, and not refused for a while: it is cleared."""
    house.cloud.fail["observe"] = Forbidden("no permission")
    await house.reconciles(20)
    subjects = {subject for kind, subject in await house.alerts() if kind == "cloud_permission"}
    assert len(subjects) == 3
    house.cloud.fail.clear()
    await house.reconciles(2 + int(2 * TIMERS.permission_block_s / 70), every_s=70)
    assert await house.alerts() == set()


@pytest.mark.parametrize("lost", [RaiseAlert, ClearAlert])
async def test_people_are_told_though_the_database_was_away_for_a_moment(
    house: House, monkeypatch: pytest.MonkeyPatch, lost: type[Change]
) -> None:
    """Of a refusal, and of its end: what could not be stored is told with the next look."""
    stored, failures = house.store.commit, 0

    async def commit(batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        nonlocal failures
        if not failures and any(isinstance(change, lost) for batch in batches for change in batch):
            failures += 1
            raise StoreDown("away")
        return await stored(batches, term)

    monkeypatch.setattr(house.store, "commit", commit)
    house.cloud.fail["observe us-central1"] = Forbidden("no permission")
    told: list[bool] = []
    for end in (2, 2 + int(2 * TIMERS.permission_block_s / 70)):
        for _ in range(end + 1):
            with suppress(StoreDown):
                await house.reconciles(1)
            house.clock.passed_s += 70
        told.append(bool(await house.alerts()))
        house.cloud.fail.clear()
    assert (told, failures) == ([True, False], 1)


async def test_look_that_is_older_than_the_workers_word_does_not_take_its_vm(house: House) -> None:
    """The answer was on its way when the machine came up and its worker spoke: the member without a
    machine is old news, and a job may run there by now."""
    await house.wait_for_work()
    await house.reconciles(1)
    made = (await house.vms())[0]

    async def now_known() -> Vm:
        return next(vm for vm in await house.vms() if vm.name == made.name)

    group = house.cloud.members[made.region]
    group[made.name] = ManagedInstance(made.name, "", MachineState.NONE, "")
    observe = house.cloud.observe

    async def slowly(mig: str, cluster: str, region: str) -> MigSnapshot:
        seen = await observe(mig, cluster, region)
        before = await now_known()
        if region == made.region and before.running_since is None:
            ready = advance_vm(
                before,
                VmEvent.WORKER_READY,
                (now := house.clock.now()),
                "its worker is ready",
                boot_nonce="n",
                running_since=now,
            )
            await house.put((VmMove(before, ready),))
        return seen

    house.cloud.observe = slowly  # type: ignore[method-assign]
    await house.reconciles(1)
    after = await now_known()
    assert (after.state, after.boot_nonce) == (V.READY, "n")
    await house.reconciles(3, every_s=60)
    names = [vm.name for vm in await house.vms()]
    assert made.name not in names, "a look that began later counts"


async def test_missing_group_keeps_the_other_regions(house: House) -> None:
    """A create into nothing is gone at once and does not count."""
    await house.wait_for_work()
    house.cloud.fail["create us-central1"] = MigMissing("no such group")
    await house.reconciles(1)
    assert await house.vms() == ()
    house.cloud.fail["observe us-central1"] = MigMissing("no such group")
    await house.reconciles(2, every_s=2)
    (made,) = await house.vms()
    assert made.region == "us-east1"


async def test_vms_of_a_withdrawn_region_are_drained_and_deleted(house: House) -> None:
    """The configuration does not know the region any more; the VM is not forgotten."""
    name = NAMES.vm("1xl4", "asia-east1", "aaaa")
    await house.add_vm(vm(name, V.READY, region="asia-east1", zone="asia-east1-a"))
    house.cloud.members["asia-east1"] = {
        name: ManagedInstance(name, "asia-east1-a", MachineState.RUNNING)
    }
    await house.reconciles(5, every_s=2)
    assert await house.vms() == ()
    assert house.cloud.members["asia-east1"] == {}


async def test_vms_of_a_withdrawn_cluster_are_taken_over() -> None:
    """A cluster without configuration keeps a manager until its last VM is gone."""
    house = await House().open()
    name = NAMES.vm("8xh100-80gb", "us-east4", "bbbb")
    await house.add_vm(vm(name, cluster="8xh100-80gb", region="us-east4", zone="us-east4-a"))
    house.cloud.members["us-east4"] = {
        name: ManagedInstance(name, "us-east4-a", MachineState.RUNNING)
    }
    house.configure()
    orchestrator = ClusterOrchestrator(house.wiring)
    for _ in range(6):
        orchestrator.poke(await house.store.snapshot(0))
        for task in list(orchestrator._running.values()):
            await task
        house.clock.passed_s += 2
    await orchestrator.close()
    assert await house.vms() == ()
    assert house.cloud.members["us-east4"] == {}


async def test_orphan_of_ours_is_deleted_and_a_strangers_vm_is_not(house: House) -> None:
    """A name of our making that nobody owns goes after a while; others only raise an alert."""
    ours = NAMES.vm("1xl4", "us-central1", "cccc")
    house.cloud.members["us-central1"] = {
        name: ManagedInstance(name, "us-central1-a", MachineState.RUNNING, f"id-{name}")
        for name in (ours, "somebody-elses")
    }
    await house.reconciles(10, every_s=20)
    assert set(house.cloud.members["us-central1"]) == {"somebody-elses"}
    assert ("unknown_vm", NAMES.mig("1xl4", "us-central1")) in await house.alerts()


async def test_limit_holds_over_regions_and_rounds() -> None:
    """Ten jobs, a limit of three, a first region that delivers nothing."""
    house = await House(cluster(vm_max=3)).open()
    await house.wait_for_work(10)
    most = 0
    for _ in range(100):
        await house.reconciles(1, every_s=5)
        most = max(most, sum(len(group) for group in house.cloud.members.values()))
    assert most == 3


async def test_nothing_is_written_when_nothing_happens(house: House) -> None:
    """A quiet cluster costs no commits."""
    await house.reconciles(3, every_s=61)
    before = len(house.store.history)
    await house.reconciles(10, every_s=61)
    assert len(house.store.history) == before


async def test_a_worker_that_speaks_before_its_vm_is_seen_running_teaches_a_hit(
    house: House,
) -> None:
    """Once, with the time that it took; and the block on its place is over."""
    await house.wait_for_work()
    await house.reconciles(1)
    (asked,) = await house.vms()
    assert asked.state is V.REQUESTED
    block = learn(
        None,
        block_key(house.spec.supply_key(asked.region), BlockKind.STOCKOUT),
        "none left",
        TIMERS,
        at(0),
    )
    ready = advance_vm(
        asked, VmEvent.WORKER_READY, at(7), "ready", running_since=at(7), zone=f"{asked.region}-a"
    )
    await house.put((VmMove(asked, ready),), (PutRegionBlock(block),))
    await house.reconciles(5)
    snapshot = await house.store.snapshot(0)
    assert {seen.zone: seen.hits for seen in snapshot.supply} == {
        "": pytest.approx(1.0, abs=0.01),
        f"{asked.region}-a": pytest.approx(1.0, abs=0.01),
    }
    assert snapshot.supply[0].delivery.usual_s == pytest.approx(7.0, abs=0.1)
    assert snapshot.blocks == ()
