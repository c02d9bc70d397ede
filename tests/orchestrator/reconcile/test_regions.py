"""Regions and clusters that left the configuration are watched until nothing of ours is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.changes import PutRegionStatus, RegionStatus
from core.cluster import ClusterSpec
from core.errors import CloudBusy, Forbidden, MigMissing, StoreDown
from core.mig import MachineState, ManagedInstance
from orchestrator.cluster_manager import ClusterManager
from orchestrator.orchestrator import ClusterOrchestrator
from orchestrator.reconcile.regions import WATCHED
from sim.memory.reads import MemoryReads
from tests.builders import NAMES, cluster
from tests.orchestrator.test_cluster_manager import TIMERS, House

LEFT = "us-east1"
ORPHAN = NAMES.vm("1xl4", LEFT, "aaaa")
IDLE_S = TIMERS.observe_idle_s


def without(spec: ClusterSpec, region: str) -> ClusterSpec:
    return replace(spec, regions=tuple(r for r in spec.regions if r.region != region))


def retried(name: str = ORPHAN) -> dict[str, ManagedInstance]:
    """A member that its group tries to make, and cannot."""
    return {name: ManagedInstance(name, f"{LEFT}-a", MachineState.NONE)}


async def driven(house: House) -> set[str]:
    return {region for _, region in await house.store.driven()}


@pytest.fixture
async def house() -> House:
    """One that has driven all regions of its cluster, and was then told to leave one."""
    house = await House(cluster()).open()
    await house.reconciles(1)
    assert LEFT in await driven(house)
    return house


def leave(house: House) -> None:
    house.configure(without(house.spec, LEFT))


async def test_an_empty_region_is_forgotten_at_once(house: House) -> None:
    """One look after the withdrawal is enough, and it is not looked at again."""
    leave(house)
    await house.reconciles(1)
    assert LEFT not in await driven(house)
    asked = house.cloud.calls["observe"]
    await house.reconciles(3, every_s=IDLE_S + 1)
    assert house.cloud.calls["observe"] == asked + 2 * 2  # the other two, in two of the rounds
    assert LEFT not in await driven(house)


async def test_a_member_that_is_being_made_is_taken_back_by_name(house: House) -> None:
    """Nobody owns it; its region is watched, and says so, until it is gone."""
    house.cloud.members[LEFT] = retried()
    leave(house)
    await house.reconciles(2)
    assert LEFT in await driven(house)
    statuses = {row.region: row.why for row in await MemoryReads(house.store).region_statuses()}
    assert statuses[LEFT] == WATCHED
    await house.reconciles(8, every_s=IDLE_S + 1)
    assert house.cloud.members[LEFT] == {}
    assert house.cloud.calls["delete"] == 1
    assert LEFT not in await driven(house)
    assert await house.vms() == ()
    assert await house.alerts() == set()


async def test_the_next_leader_goes_on_watching(house: House) -> None:
    """What one leader could not see, another finds by the rows that it left."""
    house.cloud.fail[f"observe {LEFT}"] = CloudBusy("not now")
    leave(house)
    await house.reconciles(3, every_s=IDLE_S + 1)
    house.cloud.fail.clear()
    house.cloud.members[LEFT] = retried()
    left = [region for _, region in await house.store.driven()]
    house.manager = ClusterManager(without(house.spec, LEFT), house.wiring, left)
    await house.reconciles(8, every_s=IDLE_S + 1)
    assert house.cloud.members[LEFT] == {}
    assert LEFT not in await driven(house)


async def assert_forgotten(house: House, orchestrator: ClusterOrchestrator) -> None:
    """After a while the group is empty, and nobody remembers it."""
    for _ in range(12):
        orchestrator.poke(await house.store.snapshot(0))
        for task in list(orchestrator._running.values()):
            await task
        house.clock.passed_s += IDLE_S + 1
    await orchestrator.close()
    assert house.cloud.members[LEFT] == {}
    assert await house.store.driven() == []


async def test_a_removed_cluster_is_watched_by_the_next_leader(house: House) -> None:
    """No VM row names it any more: its groups are looked at all the same, then it is forgotten."""
    house.cloud.members[LEFT] = retried()
    house.configure()
    orchestrator = ClusterOrchestrator(house.wiring, await house.store.driven())
    await assert_forgotten(house, orchestrator)


async def test_a_cluster_removed_while_we_lead(house: House) -> None:
    """The same for the leader that sees the removal."""
    house.cloud.members[LEFT] = retried()
    orchestrator = ClusterOrchestrator(house.wiring, await house.store.driven())
    house.configure()
    await assert_forgotten(house, orchestrator)


async def test_a_group_that_was_deleted_is_forgotten(house: House) -> None:
    """Its owner withdrew the region and deleted the group: no alert about that."""
    house.cloud.fail[f"observe {LEFT}"] = MigMissing("there is no such group")
    leave(house)
    await house.reconciles(1)
    assert LEFT not in await driven(house)
    assert await house.alerts() == set()


async def test_a_group_that_nobody_may_see_is_not_forgotten(house: House) -> None:
    """Without the permission to look, nobody knows that it is empty; a human is told."""
    house.cloud.fail[f"observe {LEFT}"] = Forbidden("no permission")
    leave(house)
    await house.reconciles(3, every_s=IDLE_S + 1)
    assert LEFT in await driven(house)
    assert ("cloud_permission", NAMES.mig("1xl4", LEFT)) in await house.alerts()
    house.cloud.fail.clear()
    await house.reconciles(2, every_s=IDLE_S + 1)
    assert LEFT not in await driven(house)
    assert await house.alerts() == set()


async def test_strangers_do_not_keep_us(house: House) -> None:
    """VMs that are not of our making are their owner's business: nothing of ours is left."""
    house.cloud.members[LEFT] = {
        "theirs": ManagedInstance("theirs", f"{LEFT}-a", MachineState.RUNNING)
    }
    leave(house)
    await house.reconciles(1)
    assert LEFT not in await driven(house)
    assert set(house.cloud.members[LEFT]) == {"theirs"}


async def test_a_region_that_comes_back_is_known_again(house: House) -> None:
    """Its status is stored before anything is asked for there."""
    leave(house)
    await house.reconciles(1)
    house.configure(house.spec)
    await house.reconciles(1)
    assert LEFT in await driven(house)


async def test_nothing_is_asked_for_where_the_next_leader_would_not_look(house: House) -> None:
    """A status that could not be stored is not taken for stored."""
    house = await House(cluster()).open()
    await house.wait_for_work()
    commit = house.store.commit

    async def failing(batches: object, term: int | None) -> object:
        if any(isinstance(c, PutRegionStatus) for batch in batches for c in batch):  # type: ignore[attr-defined]
            raise StoreDown("gone")
        return await commit(batches, term)  # type: ignore[arg-type]

    house.store.commit = failing  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreDown):
        await house.manager.reconcile()
    assert house.cloud.calls["create"] == 0
    house.store.commit = commit  # type: ignore[method-assign]
    await house.reconciles(1)
    assert house.cloud.calls["create"] == 1
    assert await driven(house) == {r.region for r in house.spec.regions}


async def test_old_rows_are_looked_at_once(house: House) -> None:
    """Whatever an earlier version of the software has left in the table goes the same way."""
    old = RegionStatus("1xl4", "asia-east1", 0, "", None)
    await house.put((PutRegionStatus(old),))
    regions = [region for _, region in await house.store.driven()]
    house.manager = ClusterManager(house.spec, house.wiring, regions)
    await house.reconciles(1)
    assert await driven(house) == {r.region for r in house.spec.regions}
