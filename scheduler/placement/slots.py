"""Free GPUs: of VMs that are there (Slots), of VMs that a cluster may still have (Room). Pure.

A VM of a shared cluster takes jobs side by side, each on GPUs of its own; elsewhere a job has its
VM to itself. A bad GPU is never free. A VM without GPUs has one slot, which is no GPU.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from core.cluster import ClusterSpec
from core.job import S
from core.job_fields import JobSpec
from core.vm import LONG_S, Vm
from scheduler.plan_builder import PlanBuilder


@dataclass(frozen=True, slots=True, order=True)
class VmWithRoom:
    """A VM with room, as one cycle sees it. The cheapest comes first."""

    usd_per_hour: float
    name: str
    uid: str
    region: str
    free: tuple[int, ...]
    """GPUs that nobody holds and that are not bad."""
    cpus: float
    memory_mb: float
    """What no job there has asked for."""
    gang: str = ""
    """Waits for it: it serves that gang alone. Empty: it serves everybody."""
    left_s: float = math.inf
    """Until the cloud ends it."""
    tenants: frozenset[str] | None = None
    """Whose jobs it has, where tenants are kept apart; None: it serves any tenant."""

    def fits(self, spec: JobSpec) -> bool:
        if self.tenants is not None and not self.tenants <= {spec.tenant_id}:
            return False
        cheap = spec.max_usd_per_hour is None or self.usd_per_hour <= spec.max_usd_per_hour
        room = spec.cpu_cores <= self.cpus and spec.memory_mb <= self.memory_mb
        enough = spec.slots <= len(self.free) and min(spec.max_runtime_s, LONG_S) <= self.left_s
        return enough and cheap and room and spec.allows_region(self.region)

    def without(self, spec: JobSpec) -> VmWithRoom:
        """After the job has taken its part."""
        return VmWithRoom(
            self.usd_per_hour,
            self.name,
            self.uid,
            self.region,
            self.free[spec.slots :],
            self.cpus - spec.cpu_cores,
            self.memory_mb - spec.memory_mb,
            self.gang,
            self.left_s,
            None if self.tenants is None else self.tenants | {spec.tenant_id},
        )


class Slots:
    """Who can be given which GPUs right now: the fullest VM that fits first, then the cheapest, so
    that large holes stay whole for large jobs."""

    def __init__(self, plan: PlanBuilder, spec: ClusterSpec) -> None:
        self._spec = spec
        self._by_free: dict[int, list[VmWithRoom]] = {}
        held = held_in(plan, spec)
        for vm in plan.vms_of(spec.name) if spec.share else plan.idle_in(spec.name):
            if self.serves(vm, spec) and (free := free_gpus(vm, held.get(vm.uid))):
                self._by_free.setdefault(len(free), []).append(
                    place_on(plan, vm, spec, free, held.get(vm.uid, _NOTHING))
                )
        for places in self._by_free.values():
            places.sort()

    @staticmethod
    def serves(vm: Vm, spec: ClusterSpec) -> bool:
        """Whether it may be given work; in a region that was withdrawn it takes nothing new."""
        return vm.assignable and any(region.region == vm.region for region in spec.regions)

    def put(self, found: Sequence[VmWithRoom]) -> None:
        """These VMs have this free from now on, for a simulation."""
        news = {place.uid for place in found}
        for free, places in self._by_free.items():
            self._by_free[free] = [other for other in places if other.uid not in news]
        for place in found:
            self._by_free.setdefault(len(place.free), []).append(place)
        for free in {len(place.free) for place in found}:
            self._by_free[free].sort()

    def best(
        self,
        spec: JobSpec,
        among: Callable[[VmWithRoom], bool] = lambda _: True,
        gang: str = "",
    ) -> VmWithRoom | None:
        """Where the job, of that gang if it is of one, should go; None: nowhere now."""
        for free in range(spec.slots, self._spec.slots + 1):
            for place in self._by_free.get(free, ()):
                if place.gang in ("", gang) and place.fits(spec) and among(place):
                    return place
        return None

    def take(self, place: VmWithRoom, spec: JobSpec) -> tuple[int, ...]:
        """The GPUs that are the job's from now on."""
        self._by_free[len(place.free)].remove(place)
        if self._spec.share:
            left = place.without(spec)
            if left.free:
                insort(self._by_free.setdefault(len(left.free), []), left)
        return place.free[: spec.slots]

    def save(self) -> dict[int, list[VmWithRoom]]:
        """As it is now, for a simulation."""
        return {free: list(places) for free, places in self._by_free.items()}

    def restore(self, saved: dict[int, list[VmWithRoom]]) -> None:
        self._by_free = saved


Hole = tuple[str, int]
"""Whose jobs the VM has (empty: nobody's, or tenants are not kept apart), and its free GPUs."""


class Room:
    """How many more jobs a cluster can take within its limit, on VMs that are there, that come, or
    that may still be asked for. CPU and memory are left to placement."""

    def __init__(self, plan: PlanBuilder, spec: ClusterSpec, leased: int) -> None:
        """`leased`: how many of its jobs have a VM."""
        self._share, self._gpus = spec.share, spec.slots
        self._apart = spec.keeps_tenants_apart
        self._holes: Counter[Hole] = Counter()
        if not spec.share:
            self._holes["", spec.slots] = max(0, spec.vm_max - leased)
            return
        held, vms = held_in(plan, spec), plan.vms_of(spec.name)
        for vm in vms:
            if (vm.state.in_flight or vm.state.ready) and not vm.taken:
                there = held.get(vm.uid) or _NOTHING
                tenants = there.tenants if self._apart else set()
                if len(tenants) <= 1:  # with more it takes nobody until it is one tenant's
                    self._holes["".join(tenants), len(free_gpus(vm, there))] += 1
        self._holes["", spec.slots] += max(0, spec.vm_max - sum(vm.counted for vm in vms))

    def take_all(self, specs: Iterable[JobSpec]) -> bool:
        """Room for all of them, or nothing is taken."""
        before = self._holes.copy()
        if all(self.take(spec) for spec in specs):
            return True
        self._holes = before
        return False

    def free_up(self, gpus: int, beside: int = 0, tenant: str = "") -> None:
        """As if a job of the tenant had gone from a VM on which so many GPUs `beside` its own are
        free. A VM that is free as a whole is nobody's."""
        owner = tenant if self._apart else ""
        if self._holes[owner, beside] > 0 and beside:
            self._holes[owner, beside] -= 1
            gpus += beside
        self._holes["" if gpus >= self._gpus else owner, gpus] += 1

    def save(self) -> Counter[Hole]:
        """As it is now, for a simulation."""
        return self._holes.copy()

    def restore(self, saved: Counter[Hole]) -> None:
        self._holes = saved

    @property
    def gpus(self) -> int:
        """In all."""
        return sum(size * count for (_, size), count in self._holes.items())

    def fits(self, spec: JobSpec) -> bool:
        """Whether there is room."""
        return self._hole_for(spec) is not None

    def take(self, spec: JobSpec) -> bool:
        """Whether there is room, which is the job's then: the smallest hole that is enough."""
        found = self._hole_for(spec)
        if found is None:
            return False
        self._holes[found] -= 1
        owner = spec.tenant_id if self._apart else ""
        self._holes[owner, found[1] - self._need(spec)] += 1
        return True

    def _need(self, spec: JobSpec) -> int:
        return spec.slots if self._share else self._gpus

    def _hole_for(self, spec: JobSpec) -> Hole | None:
        owners = (spec.tenant_id, "") if self._apart else ("",)
        for size in range(self._need(spec), self._gpus + 1):
            for owner in owners:
                if self._holes[owner, size] > 0:
                    return owner, size
        return None


@dataclass(slots=True)
class SlotUse:
    """What jobs have of a VM that they share."""

    leases: set[str] = field(default_factory=set)
    gpus: set[int] = field(default_factory=set)
    cpus: float = 0.0
    memory_mb: float = 0.0
    tenants: set[str] = field(default_factory=set)


_NOTHING = SlotUse()


def held_in(plan: PlanBuilder, spec: ClusterSpec) -> dict[str, SlotUse]:
    """VM → what is taken of it, where VMs are shared."""
    found: dict[str, SlotUse] = {}
    for job in plan.leased_in(spec.name) if spec.share else ():
        lease = job.lease
        assert lease is not None, "chosen so"
        held = found.get(lease.vm_uid)
        if held is None:
            held = found[lease.vm_uid] = SlotUse()
        held.leases.add(lease.lease_id)
        held.gpus.update(lease.slots)
        held.cpus += job.spec.cpu_cores
        held.memory_mb += job.spec.memory_mb
        held.tenants.add(job.spec.tenant_id)
    return found


def free_gpus(vm: Vm, held: SlotUse | None) -> tuple[int, ...]:
    """GPUs that no job holds and that are not bad. A lease without its job in the snapshot is
    about to be let go of: its GPUs are not known to be free, so none of the VM's are."""
    held = held or _NOTHING
    taken = held.gpus
    if len(taken) >= vm.slots or not held.leases.issuperset(vm.leases):
        return ()
    bad = vm.health.bad if vm.health.gpus else ()
    return tuple(gpu for gpu in range(vm.slots) if gpu not in taken and gpu not in bad)


def place_on(
    plan: PlanBuilder, vm: Vm, spec: ClusterSpec, free: tuple[int, ...], held: SlotUse
) -> VmWithRoom:
    """What is left of a VM. Who has it to itself was given all it asked for when its cluster was
    chosen."""
    gang = vm.gang if vm.together and _waits(plan, vm) else ""
    left_s = math.inf
    if vm.together and not gang:
        left_s = (vm.ends_at - plan.now).total_seconds() if vm.ends_at is not None else 0.0
    return VmWithRoom(
        usd_per_hour=vm.usd_per_hour,
        name=vm.name,
        uid=vm.uid,
        region=vm.region,
        free=free,
        cpus=spec.cpus - held.cpus if spec.share else math.inf,
        memory_mb=spec.memory_gb * 1024 - held.memory_mb if spec.share else math.inf,
        gang=gang,
        left_s=left_s,
        tenants=frozenset(held.tenants) if spec.keeps_tenants_apart else None,
    )


def _waits(plan: PlanBuilder, vm: Vm) -> bool:
    """Whether a member of the gang that it was asked for waits for VMs there."""
    members = plan.gang(vm.gang) if vm.gang in plan.gang_uids() else ()
    return any(m.status is S.PROVISIONING and m.gang_region in ("", vm.region) for m in members)
