"""When clusters are looked at: those whose rows have moved soon, the others one after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from core.active import ActiveIndex, ActiveRows
from core.changes import Snapshot
from core.vm import take_lease
from orchestrator.orchestrator import RECONCILE_MIN_S, ClusterOrchestrator, marks_of
from orchestrator.reconcile.observer import Observation
from tests.builders import cluster, observed, snapshot, vm
from tests.orchestrator.test_cluster_manager import House

NAMES = [f"{n}xl4" for n in range(1, 11)]


def kept(active: ActiveIndex) -> Snapshot:
    return replace(
        snapshot(), jobs=ActiveRows(active.jobs), vms=ActiveRows(active.vms), active=active
    )


async def test_clusters_that_only_time_makes_due_are_not_looked_at_all_at_once() -> None:
    """Ten clusters, one round each in five seconds, two in each second: after the first moment, in
    which a new leader looks everywhere."""
    house = await House().open()
    active = ActiveIndex.of((), [vm(f"vm-{name}", cluster=name) for name in NAMES])
    house.configure(*(cluster(name) for name in NAMES))
    orchestrator = ClusterOrchestrator(house.wiring)
    seen: list[list[str]] = []
    for _ in range(16):
        orchestrator.poke(kept(active))
        seen.append(sorted(orchestrator._running))
        for task in list(orchestrator._running.values()):
            await task
        house.clock.passed_s += 1
    await orchestrator.close()
    assert len(seen[0]) == len(NAMES)
    later = seen[1:]
    assert max(map(len, later)) <= 3
    assert set(Counter(name for names in later for name in names)) == set(NAMES)


async def test_a_cluster_whose_rows_have_moved_does_not_wait_for_its_turn() -> None:
    """A VM that goes is news; one that goes on with another job is not."""
    house = await House().open()
    vms = [vm(f"vm-{name}", cluster=name) for name in NAMES]
    busy = take_lease(vms[0], "lease-1")
    active = ActiveIndex.of((), [busy, *vms[1:]])
    house.configure(*(cluster(name) for name in NAMES))
    orchestrator = ClusterOrchestrator(house.wiring)
    for moved, expected in (
        (None, NAMES),
        (replace(busy, leases=("lease-2",), version=busy.version + 2), []),
        (replace(busy, leases=(), version=busy.version + 3), [NAMES[0]]),
    ):
        if moved is not None:
            active.put_vm(moved)
        orchestrator.poke(kept(active))
        assert sorted(orchestrator._running) == sorted(expected)
        for task in list(orchestrator._running.values()):
            await task
        house.clock.passed_s += RECONCILE_MIN_S
    await orchestrator.close()


async def test_a_quiet_cluster_is_looked_at_soon_until_it_was_seen() -> None:
    """A floor is asked for when the groups have answered, not a whole idle pace later."""
    house = await House().open()
    orchestrator = ClusterOrchestrator(house.wiring)
    (manager,) = orchestrator._managers.values()
    pace = orchestrator._pace_s
    timers = house.wiring.settings.current.timers
    assert pace("1xl4", None) == timers.observe_idle_s
    manager._observer._looks.append(
        Observation(observed(), frozenset(), frozenset(), frozenset(), False)
    )
    assert pace("1xl4", None) == timers.observe_s
    await orchestrator.close()


def test_marks_are_there_for_each_cluster_with_work() -> None:
    """A plan input without an index has them too."""
    one = vm("vm-1")
    plain = marks_of(snapshot(vms=(one,)))
    assert plain.keys() == marks_of(kept(ActiveIndex.of((), [one]))).keys() == {"1xl4"}
    assert plain != marks_of(snapshot(vms=(replace(one, version=2),)))
