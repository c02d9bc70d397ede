"""Which heads of which queues a cycle needs. Pure.

A cycle reads no more of the queue than it can use: as many jobs of each cluster as it has room for,
and a few more, since jobs may end while the cycle is on its way. A gang counts as one of these few.
Tenants that may not start anything are left out, so that they take nobody's place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from core.active import Census, take_census
from core.cluster import ClusterSpec
from core.queueing import Ask, HeadsOf, Live, QueuePolicy, QueueRule
from core.tenants import Amounts, Holding, MachineShape, Tenant, Usage, held_by, machines_of
from scheduler.queue.fair_share import shares_of

SPARE = 32
"""Also of clusters without room: jobs that wait too long may be moved elsewhere."""
FEW = 8
"""Beyond the room of clusters that are not looked at closely in this cycle: enough for
preemption."""
CLOSELY = 32
"""So many clusters whose room is filled by admitted jobs are looked at closely in a cycle, in
turns: where there are hundreds, the heads of all of them would be most of a cycle's work, and
nothing more can start there."""
UNSERVED = 100
"""Jobs of a cluster that takes none are told so; more of them than anybody looks at are not."""


ORDER_S = 1.0
"""Shares of tenants whose jobs neither start nor end drift apart slowly: their order may be as old
as this. Who is served is decided by the shares of the moment, among all whose heads were read."""


class Turns:
    """Which clusters are looked at closely though their room is filled: all where they are few."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, filled: Sequence[str]) -> Collection[str]:
        """Those of this cycle. After `len(filled) / CLOSELY` cycles each has had its turn."""
        if len(filled) <= CLOSELY:
            return filled
        first = self._next % len(filled)
        self._next = first + CLOSELY
        return (*filled, *filled)[first : first + CLOSELY]


class TenantQueues:
    """Order and quotas from cycle to cycle. What a tenant may start is worked out again when
    somebody set it up, or when one of its jobs got or lost a VM: a cycle costs those, not all there
    are."""

    def __init__(self) -> None:
        self.turns = Turns()
        self._order: list[str] = []
        self._usage: Mapping[str, Usage] | None = None
        self._of: tuple[object, ...] = ()
        self._until: datetime | None = None
        self._seen: dict[str, Tenant] = {}
        self._limits: dict[str, Amounts] = {}
        self._machines: Mapping[str, MachineShape] = {}
        self._full: dict[str, tuple[Holding | None, frozenset[MachineShape]]] = {}

    def in_order(
        self, live: Live, policy: QueuePolicy, ahead_s: float, census: Census
    ) -> list[str]:
        """Those first that have had least."""
        of = (census.counted, len(live.tenants), policy, ahead_s)
        same = live.usage is self._usage and of == self._of
        if not same or self._until is None or live.now >= self._until:
            shares = shares_of(live.tenants, live.usage, census, live.now, policy, ahead_s)
            self._order, self._usage, self._of = shares.in_order(), live.usage, of
            self._until = live.now + timedelta(seconds=ORDER_S)
        return self._order

    def full(
        self, tenants: Mapping[str, Tenant], machines: Mapping[str, MachineShape], census: Census
    ) -> dict[MachineShape, set[str]]:
        """Machine → tenants that may start nothing there."""
        self._notice(tenants, machines)
        kinds = dict.fromkeys(machines.values())
        found: dict[MachineShape, set[str]] = {kind: set() for kind in kinds}
        for name, limits in self._limits.items():
            holding = census.holding.get(name)
            known = self._full.get(name)
            if known is None or known[0] is not holding:
                left = _left(limits, holding or {}, machines)
                shut = frozenset(kind for kind in kinds if not _may_start(left, kind))
                known = self._full[name] = (holding, shut)
            for kind in known[1]:
                found[kind].add(name)
        return found

    def _notice(self, tenants: Mapping[str, Tenant], machines: Mapping[str, MachineShape]) -> None:
        if machines != self._machines:
            self._machines = dict(machines)
            self._full.clear()
        seen = self._seen
        for tenant in [t for name, t in tenants.items() if seen.get(name) is not t]:
            name = tenant.tenant_id
            seen[name] = tenant
            self._full.pop(name, None)
            self._limits.pop(name, None)
            if limits := tenant.quota.limits:
                self._limits[name] = limits


def heads_for(
    clusters: Mapping[str, ClusterSpec],
    held: Collection[str],
    policy: QueuePolicy,
    ahead_s: float,
    queues: TenantQueues,
) -> Ask:
    """The question for this cycle. `held`: tenants that may start nothing."""

    def ask(live: Live) -> list[HeadsOf]:
        census = live.census or take_census(live.jobs)
        order = queues.in_order(live, policy, ahead_s, census)
        free = [tenant for tenant in order if tenant not in held]
        machines = machines_of(clusters.values())
        # Clusters of one kind of GPU have the same list: it is the same value, sent once.
        lists = {
            machine: tuple(name for name in free if name not in full) if full else tuple(free)
            for machine, full in queues.full(live.tenants, machines, census).items()
        }
        rooms = {spec.name: _room_in(spec, census) for spec in clusters.values()}
        filled = [name for name, room in rooms.items() if room <= census.awaiting[name]]
        briefly = frozenset(filled).difference(queues.turns.take(filled))
        wanted = [
            _heads_of(spec, rooms[name], lists[machines[name]], closely=name not in briefly)
            for name, spec in clusters.items()
        ]
        lost = (HeadsOf(name, UNSERVED) for name in live.queues if name not in clusters)
        return [*wanted, *lost]

    return ask


def _room_in(spec: ClusterSpec, census: Census) -> int:
    """How many jobs more it may run."""
    jobs = spec.vm_max * spec.slots if spec.share else spec.vm_max
    return 0 if spec.drain else max(0, jobs - census.leased[spec.name])


def _heads_of(spec: ClusterSpec, room: int, tenants: Sequence[str], *, closely: bool) -> HeadsOf:
    # Without a rank among tenants, jobs that may not start stand in the way: look past them.
    fair = spec.queue is QueueRule.FAIR and not spec.drain
    more = (SPARE if fair else UNSERVED) if closely else FEW
    return HeadsOf(spec.name, room + more, spec.queue, tenants, room=room)


def _left(limits: Amounts, holding: Holding, machines: Mapping[str, MachineShape]) -> Amounts:
    """What a tenant's running jobs leave of each limit."""
    used = held_by(holding, machines)
    return {what: limit - used.get(what, 0.0) for what, limit in limits.items()}


def _may_start(left: Amounts, machine: MachineShape) -> bool:
    """Whether the smallest job fits on such a machine: one GPU, and some of the rest. How much of
    the rest is the job's own word: it may ask for less GPU memory than a GPU has."""
    gpus = float(machine.has_gpus)
    least = {"jobs": 1.0, "gpus": gpus, f"gpus:{machine.gpu_type}": gpus}
    rest = ("cpus", "memory_gb", *(("gpu_memory_gb",) if machine.has_gpus else ()))
    others = (left[what] > 0 for what in rest if what in left)
    return all(left.get(what, need) >= need for what, need in least.items()) and all(others)
