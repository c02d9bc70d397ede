"""A cluster's places as they would be if some of its jobs had gone. Pure: nobody is touched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from core.cluster import ClusterSpec
from core.job import Job, S
from core.job_fields import JobSpec
from core.vm import Vm
from scheduler.placement.gang import Gangs
from scheduler.placement.gang_placement import gather_gang
from scheduler.placement.slots import Slots, SlotUse, VmWithRoom, free_gpus, place_on
from scheduler.plan_builder import PlanBuilder

LEAVING = frozenset({S.PREEMPTING, S.STOPPING})
"""About to be gone: nobody is asked twice for the same need."""


class RoomSimulation:
    """What is free and what will be, less what those have been given who go first."""

    def __init__(self, plan: PlanBuilder, spec: ClusterSpec, unplaced: int) -> None:
        """`unplaced`: how many have been admitted and await a VM."""
        self._plan, self._spec, self._gangs = plan, spec, Gangs(plan)
        self._slots = Slots(plan, spec)
        self._seated: dict[str, list[JobSpec]] = {}
        leased = plan.leased_in(spec.name)
        self.leaving = [job for job in leased if job.status in LEAVING]
        self._gone = {job.uid for job in self.leaving}
        self._left = spec.vm_max - (len(leased) - len(self.leaving)) - unplaced
        """Of the cluster's limit, where each job needs a VM."""
        self._empty(self.leaving)

    def fits(self, gang: Sequence[Job], gone: Sequence[Job] = ()) -> bool:
        """Whether all of them would start at once if these were gone."""
        if not self._within_limit(gang, len(gone)):
            return False
        before = self._slots.save(), self._gone
        self._gone = self._gone | {job.uid for job in gone}
        self._empty(gone)
        found = self._seats(gang)
        self._slots.restore(before[0])
        self._gone = before[1]
        return found is not None

    def give(self, gang: Sequence[Job], gone: Sequence[Job] = ()) -> None:
        """They have their places from now on."""
        self._gone = self._gone | {job.uid for job in gone}
        self._empty(gone)
        if not _admitted(gang):
            self._left += len(gone) - len(gang)
        for job, place in zip(gang, self._seats(gang) or (), strict=False):
            self._seated.setdefault(place.uid, []).append(job.spec)

    def _within_limit(self, gang: Sequence[Job], gone: int) -> bool:
        """An preemption from a cluster that is above its limit would free nothing."""
        return self._spec.share or _admitted(gang) or self._left + gone >= len(gang)

    def _seats(self, gang: Sequence[Job]) -> list[VmWithRoom] | None:
        first = gang[0]
        if first.gang is not None:
            leader = self._gangs.leader_of(first)
            seats = gather_gang(self._plan, self._slots, gang, self._spec, leader)
            return [seat.place for seat in seats] or None
        place = self._slots.best(first.spec)
        if place is None:
            return None
        self._slots.take(place, first.spec)
        return [place]

    def _empty(self, jobs: Iterable[Job]) -> None:
        """What the VMs of these jobs have free without them."""
        uids = dict.fromkeys(job.lease.vm_uid for job in jobs if job.lease is not None)
        vms = (vm for vm in map(self._plan.vms.get, uids) if vm is not None)
        found = [place for place in map(self._place, vms) if place is not None]
        if found:
            self._slots.put(found)

    def _place(self, vm: Vm) -> VmWithRoom | None:
        place = place_without(self._plan, self._spec, vm, self._gone)
        for seated in self._seated.get(vm.uid, ()):
            if place is None or not self._spec.share:
                return None
            place = place.without(seated)
        return place if place is not None and place.free else None


def _admitted(gang: Sequence[Job]) -> bool:
    return all(job.status is S.PROVISIONING for job in gang)


def place_without(
    plan: PlanBuilder, spec: ClusterSpec, vm: Vm, gone: Collection[str]
) -> VmWithRoom | None:
    """What the VM has free once these jobs are gone; None: nothing that may be given away."""
    jobs = plan.jobs_on(vm.uid)
    stay, held = [job for job in jobs if job.uid not in gone], SlotUse()
    if stay and not spec.share:
        return None
    for job in stay:
        assert job.lease is not None, "it is on a VM"
        held.gpus.update(job.lease.slots)
        held.cpus += job.spec.cpu_cores
        held.memory_mb += job.spec.memory_mb
        held.tenants.add(job.spec.tenant_id)
    held.leases.update(job.lease.lease_id for job in jobs if job.lease is not None)
    free = free_gpus(vm, held)
    able = free and Slots.serves(vm, spec)
    return place_on(plan, vm, spec, free, held) if able else None
