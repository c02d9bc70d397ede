"""Where jobs share VMs, several of them share one VM request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter

from core.cluster import ClusterSpec
from core.demand import Demand, VmRequest
from core.job import Job
from core.vm import Vm

Where = tuple[str, float]
"""Region and price of a VM."""


@dataclass(slots=True)
class _Hole:
    """What is left of a VM."""

    gpus: int
    cpus: float
    memory_mb: float
    tenants: set[str] | None = None
    """Whose jobs it has, where tenants are kept apart; None: it serves any tenant."""

    def fits(self, request: VmRequest) -> bool:
        if self.tenants is not None and not self.tenants <= {request.tenant}:
            return False
        room = request.cpus <= self.cpus and request.memory_mb <= self.memory_mb
        return room and request.gpus <= self.gpus

    def fill(self, request: VmRequest) -> None:
        self.gpus -= request.gpus
        self.cpus -= request.cpus
        self.memory_mb -= request.memory_mb
        if self.tenants is not None:
            self.tenants.add(request.tenant)


@dataclass(slots=True)
class _Bin:
    """One VM request."""

    request: VmRequest
    hole: _Hole

    def add(self, request: VmRequest) -> None:
        """The most urgent of those who share it speaks for all."""
        mine = self.request
        self.hole.fill(request)
        self.request = replace(
            mine,
            since=_first(mine.since, request.since),
            start_by=_first(mine.start_by, request.start_by),
            gpus=mine.gpus + request.gpus,
            cpus=mine.cpus + request.cpus,
            memory_mb=mine.memory_mb + request.memory_mb,
        )


class _Holes:
    """What is left of busy VMs, by place and by how many GPUs it is: the smallest that is enough
    is filled first."""

    def __init__(self, spec: ClusterSpec, vms: Iterable[Vm], jobs: Iterable[Job]) -> None:
        self._gpus = spec.slots
        self._at: dict[Where, dict[int, list[_Hole]]] = {}
        left = _left(spec, jobs)
        ours = {region.region for region in spec.regions}
        for vm in vms:
            if vm.cluster == spec.name and vm.region in ours and _may_take_more(vm):
                hole = left.get(vm.uid) or _whole(spec)
                hole.gpus -= len(vm.health.gpus)  # bad ones are not free
                self._keep((vm.region, vm.usd_per_hour), hole)

    def take(self, request: VmRequest) -> bool:
        """Whether a busy VM has room for it, which is the VM request's then."""
        for size in range(request.gpus, self._gpus + 1):
            for where, holes in self._open_to(request, size):
                found = next((n for n, hole in enumerate(holes) if hole.fits(request)), None)
                if found is not None:
                    hole = holes.pop(found)
                    hole.fill(request)
                    self._keep(where, hole)
                    return True
        return False

    def _open_to(self, request: VmRequest, size: int) -> Iterator[tuple[Where, list[_Hole]]]:
        for where, sizes in self._at.items():
            if size in sizes and request.allows(*where):
                yield where, sizes[size]

    def _keep(self, where: Where, hole: _Hole) -> None:
        if hole.gpus > 0:
            self._at.setdefault(where, {}).setdefault(hole.gpus, []).append(hole)


def packed(demand: Demand, spec: ClusterSpec, vms: Iterable[Vm], jobs: Iterable[Job]) -> Demand:
    """The demand with one request for each VM that is needed: what fits beside jobs that run asks
    for none, the rest is packed in the order of the queue. A VM that is idle or in flight is
    counted by the plan, one VM for each of these VM requests."""
    if not demand.requests:
        return demand
    holes = _Holes(spec, vms, jobs)
    bins: list[_Bin] = []
    # Only VM requests with the same reach share a VM: whatever comes must serve all of them.
    unfilled: dict[object, list[_Bin]] = {}
    for request in demand.requests:
        if holes.take(request):
            continue
        alike = unfilled.setdefault(_reach(request), [])
        found = next((item for item in alike if item.hole.fits(request)), None)
        if found is None:
            found = _Bin(replace(request, gpus=0, cpus=0.0, memory_mb=0.0), _whole(spec))
            bins.append(found)
            alike.append(found)
        found.add(request)
        if not found.hole.gpus:
            alike.remove(found)
    return Demand(demand.cluster, tuple(item.request for item in bins))


def _may_take_more(vm: Vm) -> bool:
    """The same rule as for placement: a hole that nobody is placed in would be waited for."""
    return vm.assignable and vm.busy


def _left(spec: ClusterSpec, jobs: Iterable[Job]) -> Mapping[str, _Hole]:
    """VM → what its jobs leave of it."""
    left: dict[str, _Hole] = {}
    for job in jobs:
        lease, asked = job.lease, job.spec
        if lease is None or job.cluster != spec.name:
            continue
        hole = left.setdefault(lease.vm_uid, _whole(spec))
        hole.gpus -= len(lease.slots)
        hole.cpus -= asked.cpu_cores
        hole.memory_mb -= asked.memory_mb
        if hole.tenants is not None:
            hole.tenants.add(asked.tenant_id)
    return left


def _whole(spec: ClusterSpec) -> _Hole:
    tenants: set[str] | None = set() if spec.keeps_tenants_apart else None
    return _Hole(spec.slots, spec.cpus, spec.memory_gb * 1024, tenants)


_reach = attrgetter("regions", "denied", "max_usd_per_hour")


def _first(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((at for at in (one, other) if at is not None), default=None)
