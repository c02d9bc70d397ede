"""Which heads of which queues a turn needs. Pure.

A turn reads no more of the queue than it can use: as many jobs of each cluster as it has room for,
and a few more, since jobs may end while the turn is on its way. Tenants that may not start
anything are left out, so that they take nobody's place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from core.capacity import ClusterSpec
from core.queueing import Ask, HeadsOf, Live, QueuePolicy, QueueRule
from core.tenants import Amounts, Machine, Tenant, held_by, machines_of
from scheduler.queue.shares import Census, CensusKeeper, shares_of

SPARE = 32
"""Also of clusters without room: jobs that wait too long may be moved elsewhere."""
UNSERVED = 100
"""Jobs of a cluster that takes none are told so; more of them than anybody looks at are not."""


def heads_for(
    clusters: Mapping[str, ClusterSpec],
    held: Collection[str],
    policy: QueuePolicy,
    ahead_s: float,
    keeper: CensusKeeper,
) -> Ask:
    """The question for this turn. `held`: tenants that may start nothing."""

    def ask(live: Live) -> list[HeadsOf]:
        census = keeper.look(live.jobs)
        shares = shares_of(live.tenants, live.usage, census, live.now, policy, ahead_s)
        free = [tenant for tenant in shares.in_order() if tenant not in held]
        machines = machines_of(clusters.values())
        left = _left(live.tenants, machines, census)
        # Clusters of one kind of GPU have the same list: it is the same value, sent once.
        lists: dict[Machine, tuple[str, ...]] = {}
        for machine in machines.values():
            if machine not in lists:
                lists[machine] = tuple(name for name in free if _may_start(left.get(name), machine))
        wanted = [
            HeadsOf(spec.name, _room(spec, census), spec.queue, lists[machines[spec.name]])
            for spec in clusters.values()
        ]
        lost = (HeadsOf(name, UNSERVED) for name in live.queues if name not in clusters)
        return [*wanted, *lost]

    return ask


def _room(spec: ClusterSpec, census: Census) -> int:
    if spec.drain:
        return UNSERVED
    # Without a rank among tenants, those that may not start stand in the way: look past them.
    spare = SPARE if spec.queue is QueueRule.FAIR else UNSERVED
    jobs = spec.vm_max * spec.gpus if spec.share else spec.vm_max
    return max(0, jobs - census.leased[spec.name]) + spare


def _left(
    tenants: Mapping[str, Tenant], machines: Mapping[str, Machine], census: Census
) -> dict[str, Amounts]:
    """Tenant with a quota → what its running jobs leave of each limit."""
    found = {}
    for name, tenant in tenants.items():
        limits = tenant.quota.limits
        if limits:
            used = held_by(census.holding.get(name, {}), machines)
            found[name] = {what: limit - used.get(what, 0.0) for what, limit in limits.items()}
    return found


def _may_start(left: Amounts | None, machine: Machine) -> bool:
    """Whether the smallest job fits on such a machine: one GPU, and some of the rest."""
    if left is None:
        return True
    least = {
        "jobs": 1.0,
        "gpus": 1.0,
        f"gpus:{machine.gpu_type}": 1.0,
        "gpu_memory_gb": machine.gpu_memory_gb,
    }
    others = (left[what] > 0 for what in ("cpus", "memory_gb") if what in left)
    return all(left.get(what, need) >= need for what, need in least.items()) and all(others)
