"""How many VMs, where, and why. Pure: the same picture gives the same plan."""

from __future__ import annotations

from collections import Counter
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
Wish = tuple[str, ...]
"""The regions that a job allows; empty: any."""
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
    asked: frozenset[str] = frozenset()
    """Names that the cloud deletes already, or was asked to: no need to ask again."""
    quiet: frozenset[str] = frozenset()
    """Regions where the cloud did not do as asked a moment ago: no call there for now."""


@dataclass(frozen=True, slots=True)
class Match:
    """Who serves whom."""

    unmet: tuple[Wish, ...]
    spare: tuple[Vm, ...]


def demand_by_cluster(jobs: Iterable[Job]) -> Mapping[str, Demand]:
    """PROVISIONING jobs are the demand: each wants one VM."""
    waiting: dict[str, list[Job]] = {}
    for job in jobs:
        if job.status is JobStatus.PROVISIONING:
            waiting.setdefault(job.cluster, []).append(job)
    return {
        cluster: Demand(
            cluster=cluster,
            wishes=tuple(
                job.spec.regions for job in sorted(group, key=attrgetter("queued_since", "uid"))
            ),
        )
        for cluster, group in waiting.items()
    }


def match(wishes: Iterable[Wish], supply: Sequence[Vm]) -> Match:
    """Give each wish a VM that it allows, the choosy ones first; VMs are taken in order."""
    free = list(supply)
    unmet: list[Wish] = []
    for wish in sorted(wishes, key=lambda wish: (not wish, len(wish), wish)):
        fitting = next((vm for vm in free if not wish or vm.region in wish), None)
        if fitting is None:
            unmet.append(wish)
        else:
            free.remove(fitting)
    return Match(tuple(unmet), tuple(free))


def plan_cluster(
    picture: Picture, names: Names, timers: Timers, ids: Ids, now: datetime
) -> tuple[Action, ...]:
    """Deletes first (they free the purse), then drains, then growth or the reasons against it."""
    deletes, doomed = _deletes(picture, timers, ids, now)
    left = tuple(vm for vm in picture.vms if vm.name not in doomed)
    drains = _drains(picture, left, timers, now)
    growth = _growth(picture, left, names, timers, ids, now)
    return (*deletes, *drains, *growth)


def _wishes(picture: Picture) -> tuple[Wish, ...]:
    """The demand, and the floor: warm VMs that nobody waits for are wished for as well."""
    busy = sum(vm.state is V.READY and vm.busy for vm in picture.vms)
    floor = max(0, picture.spec.vm_min - busy - len(picture.demand.wishes))
    return picture.demand.wishes + ((),) * floor


def _idle(vms: Iterable[Vm]) -> list[Vm]:
    return sorted((vm for vm in vms if vm.idle and not vm.taken), key=attrgetter("name"))


def _in_flight(vms: Iterable[Vm]) -> list[Vm]:
    """The nearest to delivery first."""
    found = [vm for vm in vms if vm.state in (V.REQUESTED, V.BOOTING)]
    found.sort(key=lambda vm: (vm.running_since is None, vm.requested_at, vm.name))
    return found


# --- giving back -------------------------------------------------------------------------


def _deletes(
    picture: Picture, timers: Timers, ids: Ids, now: datetime
) -> tuple[list[Action], set[str]]:
    reasons: dict[tuple[str, str], list[str]] = {}
    surplus = _surplus(picture)
    doomed: set[str] = set()
    for vm in picture.vms:
        reason = _delete_reason(vm, timers, now) or (
            "not needed any more" if vm.name in surplus else ""
        )
        if not reason:
            continue
        doomed.add(vm.name)
        if vm.name not in picture.asked and vm.region not in picture.quiet:
            reasons.setdefault((vm.region, reason), []).append(vm.name)
    actions: list[Action] = [
        Delete(region, tuple(sorted(group)), ids.request_id(), reason)
        for (region, reason), group in sorted(reasons.items())
    ]
    return actions, doomed


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
    wishes, idle, coming = _wishes(picture), _idle(picture.vms), _in_flight(picture.vms)
    need = len(match(wishes, idle).unmet)
    too_many = len(coming) - need - (SLACK if need else 0)
    spare = [vm for vm in match(wishes, idle + coming).spare if vm in coming]
    cancellable = [vm for vm in reversed(spare) if vm.running_since is None]
    return {vm.name for vm in cancellable[: max(0, too_many)]}


def _drains(picture: Picture, vms: Sequence[Vm], timers: Timers, now: datetime) -> list[Action]:
    timeout_s = picture.spec.idle_timeout_s or timers.idle_timeout_s
    ours = {region.region for region in picture.spec.regions}
    gone_regions = [vm for vm in vms if vm.idle and vm.region not in ours]
    spare = match(_wishes(picture), _idle(vm for vm in vms if vm.region in ours)).spare
    limit = timedelta(seconds=timeout_s)
    tired = [vm for vm in spare if vm.idle_since is not None and now - vm.idle_since > limit]
    return [
        *(Drain(vm.name, f"{vm.region} was withdrawn from the cluster") for vm in gone_regions),
        *(Drain(vm.name, f"idle for {timeout_s:g} s") for vm in tired),
    ]


# --- growing -----------------------------------------------------------------------------


def _growth(
    picture: Picture,
    vms: Sequence[Vm],
    names: Names,
    timers: Timers,
    ids: Ids,
    now: datetime,
) -> list[Action]:
    spec, wishes = picture.spec, _wishes(picture)
    idle, coming = _idle(vms), _in_flight(vms)
    late = {vm.region for vm in coming if _late(vm, timers, now)}
    punctual = [vm for vm in coming if not _late(vm, timers, now)]
    need = len(match(wishes, idle).unmet)
    unmet = match(wishes, idle + punctual).unmet
    want = min(len(unmet), need + SLACK - len(coming))
    if want <= 0:
        return []
    allowance = max(0, spec.vm_max - len(picture.vms))
    if allowance == 0:
        return [Hold("", _limit_reason(spec, len(picture.vms), len(wishes)))]
    room = min(want, allowance)
    ranked = _ranked(picture, late, timers, now)
    taken = Counter(vm.region for vm in picture.vms)
    used = {vm.name for vm in picture.vms}
    actions: list[Action] = []
    left = Counter(unmet)
    for wish in list(left):
        for region in (r for r in ranked if not wish or r in wish):
            limit = spec.region(region).vm_max
            free = room if limit is None else max(0, limit - taken[region])
            here = min(room, left[wish], free)
            if here > 0:
                fresh = _fresh_names(names, spec.name, region, here, used, ids)
                reason = _grow_reason(len(wishes), region, late)
                actions.append(Create(region, fresh, ids.request_id(), reason))
                taken[region] += here
                left[wish] -= here
                room -= here
    return actions if room <= 0 else actions + _refusals(picture, late, taken, now)


def _late(vm: Vm, timers: Timers, now: datetime) -> bool:
    """In flight for longer than a region should take, and not even running: no credit."""
    waited_s = (now - vm.requested_at).total_seconds()
    return vm.running_since is None and waited_s > timers.widen_after_s


def _ranked(picture: Picture, late: set[str], timers: Timers, now: datetime) -> list[str]:
    """Regions that may be asked, best first: fewest stockouts in memory, then the price, then
    the order of the configuration."""
    spec = picture.spec
    memory = timedelta(seconds=timers.stockout_memory_s)
    fresh = [trouble for trouble in picture.troubles if now - trouble.last_seen < memory]
    allowed = [
        (sum(t.count for t in fresh if _about(t, spec, name)), spec.usd_per_hour(name), index, name)
        for index, name in enumerate(region.region for region in spec.regions)
        if name not in late
        and name not in picture.quiet
        and block_on(picture.troubles, spec, name, now) is None
    ]
    return [name for *_, name in sorted(allowed)]


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
        if name not in used:
            used.add(name)
            fresh.append(name)
        if len(fresh) == count:
            break
    return tuple(fresh)


# --- words -------------------------------------------------------------------------------


def _waiting(count: int) -> str:
    return "1 VM is wanted" if count == 1 else f"{count} VMs are wanted"


def _limit_reason(spec: ClusterSpec, counted: int, wanted: int) -> str:
    return f"cluster limit {spec.vm_max} reached ({counted} VMs), {_waiting(wanted)}"


def _grow_reason(wanted: int, region: str, late: set[str]) -> str:
    slow = f"; slow: {', '.join(sorted(late))}" if late else ""
    return f"{_waiting(wanted)}, {region} is the best region now{slow}"


def _refusals(
    picture: Picture, late: set[str], taken: Mapping[str, int], now: datetime
) -> list[Action]:
    holds: list[Action] = []
    for region in picture.spec.regions:
        name, limit = region.region, region.vm_max
        block = block_on(picture.troubles, picture.spec, name, now)
        if block is not None:
            until = block.until.strftime("%H:%M:%S")
            holds.append(Hold(name, f"{block.kind} until {until} UTC: {block.message}"))
        elif name in picture.quiet:
            holds.append(Hold(name, "the cloud did not answer there, trying again soon"))
        elif name in late:
            holds.append(Hold(name, "asked already, slow to deliver"))
        elif limit is not None and taken.get(name, 0) >= limit:
            holds.append(Hold(name, f"region limit {limit} reached"))
        else:
            holds.append(Hold(name, "not among the regions that the waiting jobs allow"))
    return holds
