"""How much of each queue a cycle reads where there are hundreds of clusters."""

from __future__ import annotations

from core.active import ActiveIndex
from core.cluster import ClusterSpec
from core.job import E
from core.queueing import Live
from core.tenants import Tenant
from scheduler.queue.heads import CLOSELY, FEW, SPARE, TenantQueues, Turns, heads_for
from tests.builders import RULES, at, cluster, job


def _many(count: int, **words: object) -> dict[str, ClusterSpec]:
    specs = (cluster(f"1xl4{n:03d}", **words) for n in range(count))  # type: ignore[arg-type]
    return {spec.name: spec for spec in specs}


def _limits(clusters: dict[str, ClusterSpec], live: Live, queues: TenantQueues) -> dict[str, int]:
    question = heads_for(clusters, (), RULES.queue, 3600.0, queues)
    return {heads.cluster: heads.limit for heads in question(live)}


def test_full_clusters_have_turns_where_they_are_many() -> None:
    """In each cycle a bounded number is looked at closely, and all of them have their turn."""
    clusters, queues = _many(100, vm_max=0), TenantQueues()
    live = Live(at(9), [], {"a": Tenant("a")}, {}, list(clusters))
    closely: set[str] = set()
    for _ in range(4):
        asked = _limits(clusters, live, queues)
        assert set(asked.values()) == {SPARE, FEW}
        now = {name for name, limit in asked.items() if limit == SPARE}
        assert len(now) == CLOSELY
        closely |= now
    assert closely == clusters.keys()


def test_few_full_clusters_are_all_looked_at_closely() -> None:
    """Nothing is saved where there is little to do."""
    names = [f"c-{n}" for n in range(CLOSELY)]
    assert Turns().take(names) == names


def test_a_cluster_with_room_needs_no_turn() -> None:
    """A job that may start there is seen at once; jobs that are admitted and have no VM fill a room
    as jobs with a VM do."""
    clusters = _many(100, vm_max=1)
    filled = [job(n, E.ADMITTED, cluster=name) for n, name in enumerate(clusters) if n < 90]
    census = ActiveIndex.of(filled, ()).census
    live = Live(at(9), filled, {"a": Tenant("a")}, {}, list(clusters), census)
    asked = list(_limits(clusters, live, TenantQueues()).values())
    assert asked[90:] == [1 + SPARE] * 10
    assert sorted(asked[:90]) == [1 + FEW] * (90 - CLOSELY) + [1 + SPARE] * CLOSELY
