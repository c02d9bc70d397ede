"""How many VMs, where, and why. Pure: the same picture gives the same plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from core.capacity import (
    Action,
    ClusterSpec,
    Create,
    Delete,
    Demand,
    Drain,
    Hold,
    Trouble,
    Vm,
    VmState,
)
from core.job import Job, JobStatus
from core.names import Names
from core.ports import Ids
from core.timers import Timers

V = VmState
# One VM more than the demand may be in flight: the price of not waiting for a slow region.
SLACK = 1
NAME_TRIES = 64


@dataclass(frozen=True, slots=True)
class Picture:
    """All that the plan may look at."""

    spec: ClusterSpec
    demand: Demand
    vms: tuple[Vm, ...]
    """Every VM of the cluster that is not gone."""
    troubles: tuple[Trouble, ...]
    deleting: frozenset[str]
    """Names that the cloud is already deleting: no need to ask again."""


def demand_by_cluster(jobs: Iterable[Job]) -> Mapping[str, Demand]:
    """PROVISIONING jobs are the demand: each wants one VM."""
    waiting: dict[str, list[Job]] = {}
    for job in jobs:
        if job.status is JobStatus.PROVISIONING:
            waiting.setdefault(job.cluster, []).append(job)
    return {
        cluster: Demand(
            cluster=cluster,
            vms=len(group),
            oldest_wait_since=min(job.queued_since for job in group),
            regions=_shared_regions(group),
        )
        for cluster, group in waiting.items()
    }


def plan_cluster(
    picture: Picture, names: Names, timers: Timers, ids: Ids, now: datetime
) -> tuple[Action, ...]:
    """Deletes first (they free the purse), then drains, then growth or the reasons against it."""
    deletes, doomed = _deletes(picture, timers, ids, now)
    left = tuple(vm for vm in picture.vms if vm.name not in doomed)
    drains = _drains(picture, left, timers, now)
    growth = _growth(picture, left, names, timers, ids, now)
    return (*deletes, *drains, *growth)


# --- giving back -------------------------------------------------------------------------


def _deletes(
    picture: Picture, timers: Timers, ids: Ids, now: datetime
) -> tuple[list[Action], set[str]]:
    reasons: dict[tuple[str, str], list[str]] = {}
    surplus = _surplus(picture)
    for vm in picture.vms:
        reason = _delete_reason(vm, timers, now) or (
            "not needed any more" if vm.name in surplus else ""
        )
        if reason and vm.name not in picture.deleting:
            reasons.setdefault((vm.region, reason), []).append(vm.name)
    actions: list[Action] = [
        Delete(region, tuple(sorted(group)), ids.request_id(), reason)
        for (region, reason), group in sorted(reasons.items())
    ]
    return actions, {name for group in reasons.values() for name in group}


def _delete_reason(vm: Vm, timers: Timers, now: datetime) -> str:
    if vm.state is V.DELETING:
        return vm.reason or "to be deleted"
    if vm.state is V.DRAINING and not vm.leases:
        return vm.reason or "drained"
    if vm.state in (V.REQUESTED, V.BOOTING):
        age = (now - vm.requested_at).total_seconds()
        if age > timers.boot_timeout_s:
            return f"not ready within {timers.boot_timeout_s:g} s"
    return ""


def _surplus(picture: Picture) -> set[str]:
    """VMs in flight beyond the demand: cancelling before RUNNING costs nothing. One that runs
    already is kept: it will be ready in a moment and can serve the next job."""
    idle = sum(vm.idle for vm in picture.vms)
    in_flight = [vm for vm in picture.vms if vm.state in (V.REQUESTED, V.BOOTING)]
    wanted = max(picture.demand.vms - idle, _floor(picture), 0)
    if len(in_flight) <= wanted + (SLACK if wanted else 0):
        return set()
    cancellable = [vm for vm in in_flight if vm.running_since is None]
    # The youngest go first: the oldest is the nearest to delivery.
    cancellable.sort(key=attrgetter("requested_at", "name"), reverse=True)
    return {vm.name for vm in cancellable[: len(in_flight) - wanted]}


def _floor(picture: Picture) -> int:
    ready = sum(vm.state is V.READY for vm in picture.vms)
    return max(0, picture.spec.vm_min - ready)


def _drains(picture: Picture, vms: Sequence[Vm], timers: Timers, now: datetime) -> list[Action]:
    timeout_s = picture.spec.idle_timeout_s or timers.idle_timeout_s
    idle = [vm for vm in vms if vm.idle]
    spare = len([vm for vm in vms if vm.state is V.READY]) - picture.spec.vm_min
    allowed = min(spare, len(idle) - picture.demand.vms)
    tired = sorted(
        (vm for vm in idle if vm.idle_since and now - vm.idle_since > timedelta(seconds=timeout_s)),
        key=attrgetter("idle_since", "name"),
    )
    return [Drain(vm.name, f"idle for {timeout_s:g} s") for vm in tired[: max(0, allowed)]]


# --- growing -----------------------------------------------------------------------------


def _growth(
    picture: Picture,
    vms: Sequence[Vm],
    names: Names,
    timers: Timers,
    ids: Ids,
    now: datetime,
) -> list[Action]:
    spec, demand = picture.spec, picture.demand
    late = {vm.region for vm in vms if _late(vm, timers, now)}
    in_flight = [vm for vm in vms if vm.state in (V.REQUESTED, V.BOOTING)]
    punctual = [vm for vm in in_flight if not _late(vm, timers, now)]
    need = max(demand.vms - sum(vm.idle for vm in vms), _floor(picture), 0)
    want = min(need - len(punctual), need + SLACK - len(in_flight))
    if want <= 0:
        return []
    counted = sum(vm.counted for vm in picture.vms)
    allowance = max(0, spec.vm_max - counted)
    if allowance == 0:
        return [Hold("", _limit_reason(spec, counted, demand))]
    room = min(want, allowance)
    actions: list[Action] = []
    for region in _ranked(picture, late, now):
        if room <= 0:
            break
        taken = sum(vm.region == region for vm in vms)
        limit = spec.region(region).vm_max
        here = room if limit is None else min(room, max(0, limit - taken))
        if here <= 0:
            actions.append(Hold(region, f"region limit {limit} reached"))
            continue
        reason = _grow_reason(demand, region, late)
        fresh = _fresh_names(names, spec.name, region, here, {v.name for v in picture.vms}, ids)
        actions.append(Create(region, fresh, ids.request_id(), reason))
        room -= here
    if room > 0:
        actions += _refusals(picture, late, now)
    return actions


def _late(vm: Vm, timers: Timers, now: datetime) -> bool:
    """In flight for longer than a region should take, and not even running: no credit."""
    in_flight = vm.state in (V.REQUESTED, V.BOOTING) and vm.running_since is None
    return in_flight and (now - vm.requested_at).total_seconds() > timers.widen_after_s


def _ranked(picture: Picture, late: set[str], now: datetime) -> list[str]:
    """Regions that may be asked, best first: fewest stockouts in memory, then the price, then
    the order of the configuration."""
    spec = picture.spec
    allowed = [
        (index, region.region)
        for index, region in enumerate(spec.regions)
        if (not picture.demand.regions or region.region in picture.demand.regions)
        and region.region not in late
        and block_on(picture.troubles, spec, region.region, now) is None
    ]
    history = {
        region: sum(t.count for t in picture.troubles if _about(t, spec, region))
        for _, region in allowed
    }
    allowed.sort(key=lambda item: (history[item[1]], spec.usd_per_hour(item[1]), item[0]))
    return [region for _, region in allowed]


def block_on(
    troubles: Iterable[Trouble], spec: ClusterSpec, region: str, now: datetime
) -> Trouble | None:
    """What blocks the cluster in a region now: the block that ends last."""
    blocks = [t for t in troubles if _about(t, spec, region) and t.blocks(now)]
    return max(blocks, key=attrgetter("until"), default=None)


def _about(trouble: Trouble, spec: ClusterSpec, region: str) -> bool:
    return (trouble.region, trouble.machine_type, trouble.spot) == (
        region,
        spec.machine_type,
        spec.spot,
    )


def _fresh_names(
    names: Names, cluster: str, region: str, count: int, used: set[str], ids: Ids
) -> tuple[str, ...]:
    fresh: list[str] = []
    for _ in range(count + NAME_TRIES):
        name = names.vm(cluster, region, ids.suffix())
        if name not in used and name not in fresh:
            fresh.append(name)
        if len(fresh) == count:
            break
    return tuple(fresh)


# --- words -------------------------------------------------------------------------------


def _limit_reason(spec: ClusterSpec, counted: int, demand: Demand) -> str:
    waiting = "1 job waits" if demand.vms == 1 else f"{demand.vms} jobs wait"
    return f"cluster limit {spec.vm_max} reached ({counted} VMs), {waiting}"


def _grow_reason(demand: Demand, region: str, late: set[str]) -> str:
    waiting = "1 job waits" if demand.vms == 1 else f"{demand.vms} jobs wait"
    slow = f"; slow: {', '.join(sorted(late))}" if late else ""
    return f"{waiting}, {region} is the best region now{slow}"


def _refusals(picture: Picture, late: set[str], now: datetime) -> list[Action]:
    holds: list[Action] = []
    for region in picture.spec.regions:
        block = block_on(picture.troubles, picture.spec, region.region, now)
        if block is not None:
            until = block.until.strftime("%H:%M:%S")
            holds.append(Hold(region.region, f"{block.kind} until {until} UTC: {block.message}"))
        elif region.region in late:
            holds.append(Hold(region.region, "asked already, slow to deliver"))
        elif picture.demand.regions and region.region not in picture.demand.regions:
            holds.append(Hold(region.region, "not among the regions that the jobs allow"))
    return holds


def _shared_regions(jobs: Sequence[Job]) -> tuple[str, ...]:
    if any(not job.spec.regions for job in jobs):
        return ()
    return tuple(sorted({region for job in jobs for region in job.spec.regions}))
