"""What a cluster has to give and when: the pool that its queue is played on. Pure.

A pool is counted in VMs where a job has its VM to itself, else in GPUs. VMs that are on their way,
and VMs that may still be requested, hold their part until they are expected to be ready: then
they are free like any other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.cluster import ClusterSpec
from core.demand import Demand
from core.job import Job, S, by_gang
from core.job_fields import JobSpec
from core.region_blocks import RegionBlock
from core.supply import CapacityPolicy, SupplyHistory
from core.tenants import Holding, MachineShape, ResourceTotals, Tenant, held_by
from core.timers import Timers
from core.vm import Vm
from orchestrator.planning.plan_input import PlanInput
from orchestrator.planning.region_estimates import LASTING, Outlook, Outlooks
from scheduler.forecast.queue_simulation import Busy, TenantCap, Waits
from scheduler.forecast.run_times import UNKNOWN, Guess

Guesses = Callable[[Job], Guess]
SPREAD = 0.3
"""Of the logarithm of a boot: most come within a third of what is usual."""
_NORMAL = (-1.645, -1.036, -0.674, -0.385, -0.126, 0.126, 0.385, 0.674, 1.036, 1.645, 2.326)
"""Evenly spread over the probabilities, and one late one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of one cluster besides its queue."""

    spec: ClusterSpec
    now: datetime
    leased: Sequence[Job]
    vms: Sequence[Vm]
    """Of this cluster, not gone."""
    blocks: Sequence[RegionBlock] = ()
    supply: Sequence[SupplyHistory] = ()
    timers: Timers = field(default_factory=Timers)
    policy: CapacityPolicy = field(default_factory=CapacityPolicy)


@dataclass(frozen=True, slots=True)
class Pool:
    """What the queue is played on."""

    units: int
    busy: tuple[Busy, ...]
    jobs: int
    """So many of the busy ones are running jobs."""
    regions: Mapping[str, Outlook]
    open: frozenset[str]
    """Regions that have VMs, or may get some now."""
    heals: Mapping[str, Guess] = field(default_factory=dict)
    """Blocked region → when a VM is ready there that is asked for as soon as the block ends. Not
    blocks that a human must mend."""
    ready: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Blocked region → when each part of what is there is expected to be free, the first first."""


def pool_of(seen: Seen, guess: Guesses) -> Pool:
    """As it is now."""
    spec, unit = seen.spec, unit_of(seen.spec)
    inputs = PlanInput(
        spec,
        Demand(spec.name),
        tuple(seen.vms),
        tuple(seen.blocks),
        supply=tuple(seen.supply),
        policy=seen.policy,
    )
    regions = Outlooks(inputs, seen.timers, seen.now)
    gangs = list(by_gang(seen.leased).values())  # the members of a gang end together
    busy = [_running(gang, spec, seen.now, guess) for gang in gangs]
    askable = [outlook for outlook in regions.values() if outlook.block is None]
    asked = [vm for vm in seen.vms if vm.state.in_flight]
    # A group that is refused its VMs goes on trying: they count, but they do not come.
    sure = [vm for vm in asked if not _refused(vm, regions)]
    coming = [_coming(vm, regions, unit, seen.now) for vm in sure]
    cold = max(0, spec.vm_max - sum(not vm.state.leaving or vm.busy for vm in seen.vms))
    heals = _heals(regions, seen.now)
    idle = _idle(seen, unit)
    leaving = {vm.uid for vm in seen.vms if vm.state.leaving}
    running = zip(gangs, busy, strict=True)
    ready = _ready(regions, idle, running, zip(sure, coming, strict=True), leaving)
    # They come when their region has room again. Of those in the cloud's own queue nobody knows.
    late = [vm for vm in asked if vm.running_since is None and not vm.queued]
    coming += [Busy(unit, 0.0, heals[vm.region]) for vm in late if vm.region in heals]
    if cold and (start := _soonest(askable, heals)):
        coming += [Busy(unit, 0.0, start)] * cold
    held = sum(job.gpus for job in (*busy, *coming))
    units = min(held + idle.total(), spec.vm_max * unit)
    there = {vm.region for vm in seen.vms if vm.state.ready} | {vm.region for vm in sure}
    may_give = frozenset(there | {outlook.region for outlook in askable})
    return Pool(units, (*busy, *coming), len(busy), regions, may_give, heals, ready)


def unit_of(spec: ClusterSpec) -> int:
    """How much of the pool one VM is."""
    return spec.slots if spec.share else 1


def units_of(spec: ClusterSpec, job: JobSpec, members: int) -> int:
    """How much of the pool a job takes."""
    return members * (job.slots if spec.share else 1)


def waits_of(spec: ClusterSpec, job: Job, guess: Guesses) -> Waits:
    """A waiting job as it is played; of a gang all members at once."""
    members = job.spec.least
    return Waits(
        uid=job.gang_uid,
        gpus=units_of(spec, job.spec, members),
        guess=guess(job),
        had_s=job.saved_s,
        most_s=job.spec.max_runtime_s,
        tenant=job.spec.tenant_id,
        jobs=members,
        asks=job.spec.slots * members,
    )


def cap_of(
    tenant: Tenant, holding: Holding, cluster: str, machines: Mapping[str, MachineShape]
) -> TenantCap | None:
    """What a tenant's quota leaves to one cluster, given what it holds elsewhere; a limit of CPUs
    or memory is counted by the GPUs that come with them. None: it has no such limit."""
    limits = tenant.quota.limits
    if not limits:
        return None
    elsewhere = {name: tally for name, tally in holding.items() if name != cluster}
    used = held_by(elsewhere, machines)
    machine = machines.get(cluster)
    gpus_each = int(machine is None or machine.has_gpus)
    one = ResourceTotals(
        jobs=0,
        gpus=gpus_each,
        gpus_without_cpus=1,
        gpus_without_memory=1,
        gpus_without_gpu_memory=gpus_each,
    )
    each = one.amounts(machine)
    left = {name: limit - used.get(name, 0.0) for name, limit in limits.items()}
    gpus = [left[name] / cost for name, cost in each.items() if name in left and cost > 0]
    return TenantCap(left.get("jobs", math.inf), min(gpus, default=math.inf))


def _running(gang: Sequence[Job], spec: ClusterSpec, now: datetime, guess: Guesses) -> Busy:
    job = gang[0]
    ran_s = job.saved_s
    most_s = job.spec.max_runtime_s
    if job.started_at is not None:
        here_s = (now - job.started_at).total_seconds()
        ran_s, most_s = ran_s + here_s, most_s - here_s
    if job.status in (S.STOPPING, S.PREEMPTING) and job.deadline_at is not None:
        most_s = (job.deadline_at - now).total_seconds()
    return Busy(
        gpus=units_of(spec, job.spec, len(gang)),
        ran_s=ran_s,
        guess=guess(job),
        most_s=max(0.0, most_s),
        tenant=job.spec.tenant_id,
        jobs=len(gang),
        asks=sum(member.spec.slots for member in gang),
    )


def _coming(vm: Vm, regions: Mapping[str, Outlook], unit: int, now: datetime) -> Busy:
    outlook = regions.get(vm.region)
    if outlook is None:
        return Busy(unit, 0.0, UNKNOWN)
    if vm.running_since is not None:
        since, guess = vm.running_since, _spans(outlook.boot_s, SPREAD)
    else:
        since, guess = vm.requested_at, _first_start(outlook)
    return Busy(unit, max(0.0, (now - since).total_seconds()), guess)


def _refused(vm: Vm, regions: Mapping[str, Outlook]) -> bool:
    outlook = regions.get(vm.region)
    blocked = outlook is not None and outlook.block is not None
    # Of what waits in the cloud's own queue nobody knows when it comes.
    return vm.running_since is None and (vm.queued or vm.refused or blocked)


def _soonest(askable: Sequence[Outlook], heals: Mapping[str, Guess]) -> Guess | None:
    """When a VM comes that is asked for as soon as may be."""
    if askable:
        return _first_start(min(askable, key=lambda outlook: outlook.cold_start_s))
    return min(heals.values(), key=lambda start: start.at(0.5), default=None)


def _heals(regions: Mapping[str, Outlook], now: datetime) -> dict[str, Guess]:
    """A region that was blocked is believed less, so its late ones are later."""
    found: dict[str, Guess] = {}
    for outlook in regions.values():
        block = outlook.block
        if block is not None and block.kind not in LASTING:
            wait_s, start = (block.until - now).total_seconds(), _first_start(outlook)
            found[outlook.region] = Guess(tuple(wait_s + s for s in start.runs), start.basis)
    return found


def _ready(
    regions: Mapping[str, Outlook],
    idle: Counter[str],
    running: Iterable[tuple[Sequence[Job], Busy]],
    coming: Iterable[tuple[Vm, Busy]],
    leaving: Container[str],
) -> dict[str, list[float]]:
    """Of blocked regions, whose VMs are all that can be had there. One that leaves is nobody's
    after its job."""
    found = {o.region: [0.0] * idle[o.region] for o in regions.values() if o.block is not None}
    if not found:
        return found
    for gang, busy in running:
        each = busy.gpus // len(gang)
        for job in gang:
            if job.lease is None or job.lease.vm_uid in leaving:
                continue
            if job.lease.region in found:
                found[job.lease.region] += [busy.ends_s(0.5)] * each
    for vm, busy in coming:
        if vm.region in found:
            found[vm.region] += [busy.ends_s(0.5)] * busy.gpus
    return {region: sorted(moments) for region, moments in found.items()}


def _first_start(outlook: Outlook) -> Guess:
    """From the request to READY. A refusal shows as a delivery that is late, and a region that
    refuses often is often late."""
    usual_s = outlook.cold_start_s
    late_s = max(usual_s, outlook.late_after_s + outlook.boot_s) / max(0.1, outlook.probability)
    return _spans(usual_s, max(SPREAD, math.log(late_s / usual_s) / 2.326))


def _spans(usual_s: float, spread: float) -> Guess:
    return Guess(tuple(usual_s * math.exp(spread * z) for z in _NORMAL), "starts of VMs")


def _idle(seen: Seen, unit: int) -> Counter[str]:
    """What is free this moment, by region: VMs without work, and where VMs are shared, what is
    left."""
    ready = {vm.uid: vm for vm in seen.vms if vm.state.ready}
    if not seen.spec.share:
        return Counter(vm.region for vm in ready.values() if not vm.leases)
    free: Counter[str] = Counter()
    for vm in ready.values():
        free[vm.region] += unit
    for job in seen.leased:
        if job.lease and job.lease.vm_uid in ready:
            free[ready[job.lease.vm_uid].region] -= job.spec.slots
    return +free
