"""Where a gang looks for its VMs, and which it gets: all in one region, or none. Pure."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from core.cluster import ClusterSpec, RegionSpec
from core.job import E, Job, S
from core.job_fields import JobSpec
from core.messages import Size
from core.region_blocks import RegionBlock
from core.supply import SupplyHistory, regional, room, success_probability
from core.vm import Vm
from scheduler.placement.gang import Gangs, gang_of
from scheduler.placement.simulation_results import NOTHING_KEPT, Kept
from scheduler.placement.slots import Slots, VmWithRoom
from scheduler.plan_builder import PlanBuilder

PORTS = range(20_000, 30_000)
"""Where the first member may listen: each gang and attempt has a port of its own, since several
share a machine in local runs and on shared VMs."""


@dataclass(frozen=True, slots=True)
class Post:
    """What a member is told about its gang when it starts."""

    rank: int
    world: int
    leader_address: str
    barrier: bool = True
    size: Size | None = None
    """Of an elastic job."""


class Regions:
    """Sends each gang of a cluster to one region at a time, so that its VMs come up together."""

    def __init__(self, plan: PlanBuilder, spec: ClusterSpec, blocks: Sequence[RegionBlock]) -> None:
        self._plan, self._spec = plan, spec
        self._blocks = blocked_regions(spec, blocks, plan.now)

    @cached_property
    def _there(self) -> Counter[str]:
        """VMs that wait or come, less the ones that gangs wait for. Counted when the first gang
        asks: most cycles have none."""
        plan, spec = self._plan, self._spec
        vms = plan.vms_of(spec.name)
        there = Counter(vm.region for vm in vms if _may_come(vm, shared=spec.share))
        for members in plan.gangs():
            first = members[0]
            if first.cluster == spec.name and first.status is S.PROVISIONING:
                there[first.gang_region] -= len(gang_of(members))
        return there

    def choose(self, job: Job, size: int) -> str:
        """Where most VMs wait or come that no other gang waits for; then where the rest is likely
        to be had at once, the cheapest. After an attempt in vain: the one after that."""
        ranked = sorted(self._allowed(job, size), key=lambda r: self._rank(r, size))
        free = [r.region for r in ranked if r.region not in self._blocks]
        names = free or [r.region for r in ranked]
        again = job.holds > 0 and job.gang_region in names
        chosen = names[(names.index(job.gang_region) + 1) % len(names) if again else 0]
        self._there[chosen] -= size
        return chosen

    def in_vain(self, members: Sequence[Job]) -> RegionBlock | None:
        """What keeps VMs from coming where the gang was sent, if there is another place to look.
        As long as the count there is not negative, all have come."""
        first = members[0]
        block = self._blocks.get(first.gang_region)
        if block is None or self._there[first.gang_region] >= 0:
            return None
        others = (r.region for r in self._allowed(first, len(members)))
        return block if any(name not in self._blocks for name in others) else None

    def _allowed(self, job: Job, size: int) -> list[RegionSpec]:
        spec, most = job.spec, job.spec.max_usd_per_hour
        allowed = [r for r in self._spec.regions if spec.allows_region(r.region)]
        cheap = [r for r in allowed if most is None or self._price(r) <= most] or allowed
        if self._plan.deadline_slack.has_slack(job, self._plan.now):
            # It has time to wait for its cheap regions.
            limit = min(map(self._price, cheap), default=0.0)
            limit *= 1.0 + self._plan.deadline_slack.price_band
            cheap = [r for r in cheap if self._price(r) <= limit]
        return [r for r in cheap if r.vm_max is None or r.vm_max >= size] or cheap

    def _rank(self, region: RegionSpec, size: int) -> tuple[int, bool, float, str]:
        there = min(size, self._there[region.region])
        short = self._likely_room(region.region) < size - there
        return -there, short, self._price(region), region.region

    def _likely_room(self, region: str) -> float:
        """How many VMs it is likely to give at once, by what it has given."""
        plan = self._plan
        known = self._known.get(region)
        return room(known, plan.now) * success_probability(known, plan.now)

    @cached_property
    def _known(self) -> dict[str, SupplyHistory]:
        return regional(self._plan.supply, self._spec)

    def _price(self, region: RegionSpec) -> float:
        return region.spot_usd_per_hour if self._spec.spot else region.usd_per_hour


def blocked_regions(
    spec: ClusterSpec, blocks: Sequence[RegionBlock], now: datetime
) -> dict[str, RegionBlock]:
    """Where nothing is to be had."""
    here = (t for t in blocks if t.concerns(spec) and t.holds_region)
    return {t.region: t for t in here if t.blocks(now)}


def stands_in_for(job: Job, vm: Vm, now: datetime) -> bool:
    """Whether the VM would do for the job, if nobody had it."""
    if vm.together and (vm.ends_at is None or not vm.lasts(job.spec.max_runtime_s, now)):
        return False
    price, region = job.spec.max_usd_per_hour, job.gang_region
    here = vm.region == region if region and job.status is S.PROVISIONING else True
    able = vm.assignable and job.spec.allows_region(vm.region)
    return able and here and (price is None or vm.usd_per_hour <= price)


def _may_come(vm: Vm, *, shared: bool) -> bool:
    return vm.state.in_flight or (vm.assignable and (shared or not vm.leases))


@dataclass(frozen=True, slots=True)
class Seat:
    """A place that is a member's from now on."""

    place: VmWithRoom
    gpus: tuple[int, ...]


def gather_gang(
    plan: PlanBuilder,
    slots: Slots,
    members: Sequence[Job],
    spec: ClusterSpec,
    leader: Job,
    kept: Kept = NOTHING_KEPT,
) -> list[Seat]:
    """Places for all of them in one region (or zone), the one they were sent to if it has them.
    Empty: not now; then what is there is kept for them this cycle, out of others' reach."""
    for region, zone in _choices(plan, members[0], spec, leader):
        before = slots.save()
        found = _take(plan, slots, members, region, zone, kept)
        if len(found) == len(members):
            return found
        slots.restore(before)
    if members[0].gang_region:
        _take(plan, slots, members, members[0].gang_region, None, kept)
    return []


def _choices(
    plan: PlanBuilder, job: Job, spec: ClusterSpec, leader: Job
) -> Iterator[tuple[str, str | None]]:
    """(region, zone), the best first; no zone: any. A member that joins a running gang goes
    there."""
    narrow = job.spec.same_zone
    if leader.lease is not None:
        yield leader.lease.region, leader.lease.zone if narrow else None
        return
    names = [r.region for r in spec.regions if job.spec.allows_region(r.region)]
    names.sort(key=lambda name: name != job.gang_region)
    for name in names:
        vms = plan.vms_of(spec.name)
        zones = sorted({vm.zone for vm in vms if vm.region == name and vm.zone})
        for zone in zones if narrow else [None]:
            yield name, zone


def _take(
    plan: PlanBuilder,
    slots: Slots,
    members: Sequence[Job],
    region: str,
    zone: str | None,
    kept: Kept,
) -> list[Seat]:
    """As many as there are."""

    def here(place: VmWithRoom) -> bool:
        good = zone is None or plan.vms[place.uid].zone == zone
        return good and not kept.keeps(place.uid, members[0])

    found: list[Seat] = []
    for job in members:
        gang = job.gang.uid if job.gang is not None else ""
        place = slots.best(_only_in(job.spec, region), here, gang)
        if place is None:
            break
        found.append(Seat(place, slots.take(place, job.spec)))
    return found


def _only_in(spec: JobSpec, region: str) -> JobSpec:
    return replace(spec, regions=(region,))


def post_of(job: Job, leader: Job, leader_vm: Vm, attempt: int, size: Size | None = None) -> Post:
    """`attempt`: the leader's, as it is when they run."""
    assert job.gang is not None, "only members have posts"
    port = PORTS[zlib.crc32(f"{leader.uid}/{attempt}".encode()) % len(PORTS)]
    address = f"{leader_vm.address or leader_vm.name}:{port}"
    if size is None:
        return Post(job.gang.rank, job.gang.size, address)
    # A member that joins a running elastic job waits for no other.
    return Post(job.gang.rank, len(size.members), address, leader.status is not S.RUNNING, size)


def end_holds(
    plan: PlanBuilder, clusters: Mapping[str, ClusterSpec], blocks: Sequence[RegionBlock]
) -> None:
    """A gang that has not all its VMs in time lets go of the ones that came, and looks elsewhere
    next time; at once, if its region has none to give and another one may. Two gangs that wait for
    each other's VMs both let go: no deadlock outlives this. Where the VMs come together, the gang
    waits as long as the cloud may keep it waiting, and then until what it was given has booted."""
    for whole in plan.gangs():
        members, first = gang_of(whole), whole[0]
        spec = clusters.get(first.cluster)
        if spec is None or not members or any(m.status is not S.PROVISIONING for m in members):
            continue
        hold = _wait_limit(plan, spec, first)
        over = max(m.status_since for m in members) + hold <= plan.now
        over = over and not _was_given(plan, first)
        block = None if over else Regions(plan, spec, blocks).in_vain(members)
        if not over and block is None:
            continue
        words = f"{len(members)} VMs in {first.gang_region} did not come together"
        why = f" ({block.kind})" if block else f" within {hold.total_seconds():g} s"
        with plan.together():
            for member in members:
                plan.step(member, E.GANG_TIMEOUT, words + why)


def _wait_limit(plan: PlanBuilder, spec: ClusterSpec, first: Job) -> timedelta:
    """To wait in the cloud's queue costs nothing; VMs that idle for a gang meanwhile do: not for
    longer than elsewhere."""
    hold = timedelta(seconds=plan.rules.timers.gang_hold_s)
    if spec.flex_start_wait_s is None:
        return hold
    idle = [
        vm.idle_since
        for vm in plan.vms_of(first.cluster)
        if vm.idle and vm.region == first.gang_region and vm.idle_since is not None
    ]
    paid = min(idle, default=plan.now) + hold <= plan.now
    return hold if paid else timedelta(seconds=spec.flex_start_wait_s)


def _was_given(plan: PlanBuilder, first: Job) -> bool:
    """VMs that were asked for together are there, and the last of them not for too long."""
    assert first.gang is not None, "only gangs wait for each other"
    since = [
        vm.state_since
        for vm in plan.vms_of(first.cluster)
        if vm.together and not vm.queued and vm.counted and vm.gang == first.gang.uid
        if not vm.state.deleting
    ]
    hold = timedelta(seconds=plan.rules.timers.gang_hold_s)
    return bool(since) and max(since) + hold > plan.now


def where(gangs: Gangs, regions: Regions, members: Sequence[Job]) -> str | None:
    """The region that the admission of a gang names; None for a job that is no gang."""
    job = members[0]
    if job.gang is None:
        return None
    lease = gangs.leader_of(job).lease
    return lease.region if lease is not None else regions.choose(job, len(members))
