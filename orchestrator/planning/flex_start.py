"""VMs for gangs, all at once or none: what to ask for together, and what to give up. Pure.

One request asks for all that a gang lacks, in the region where the gang looks, and waits in the
cloud's own queue. Until it is given, its VMs are names that count against the limit: they are not
late, get no company, and are given up only all of them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from core.actions import Hold
from core.demand import Wish
from core.region_blocks import TroubleKind
from core.timers import Timers
from core.vm import Vm, VmState
from core.waits import JOBS_PER_REGION
from orchestrator.planning.plan_input import Picture
from orchestrator.planning.region_estimates import Outlook

V = VmState
# What Google takes as the time that VMs are asked for.
RUN_MIN_S, RUN_MAX_S = 600.0, 7 * 86400.0
# Beside the longest boot: the members find each other, and their ends are noticed.
MARGIN_S = 600.0

Key = tuple[str, str]
"""(gang, region)."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A gang, where it looks, and what it lacks there."""

    gang: str
    region: str
    count: int
    run_s: float
    """How long it may run, and what comes with it."""
    jobs: tuple[str, ...] = ()
    """The members that lack a VM."""


@dataclass(frozen=True, slots=True)
class Together:
    """What is asked for together, and what is not, with the reason."""

    asks: tuple[Ask, ...] = ()
    holds: tuple[Hold, ...] = ()
    kept: int = 0
    """Places under the limit that are nobody else's: of what is asked for, and of a gang that is
    next and lacks some. Without them singles would take each place that comes free."""


NOBODY = Together()


def is_gangs(wish: Wish, picture: Picture) -> bool:
    """Whether it is asked for together with others."""
    return picture.spec.flex_start_wait_s is not None and bool(wish.gang and wish.regions)


def gather(
    picture: Picture,
    known: Mapping[str, Outlook],
    need: Iterable[Wish],
    singles: Sequence[Wish],
    bound: Sequence[Vm],
    timers: Timers,
) -> Together:
    """`need`: gangs' wishes that no VM serves; `singles`: wishes that will ask for a VM each;
    `bound`: VMs that come for a gang."""
    coming = Counter((vm.gang, vm.region) for vm in bound)
    taken = Counter(vm.region for vm in picture.vms)
    places = max(0, picture.spec.vm_max - len(picture.vms))
    asks: list[Ask] = []
    holds = list(_waiting(bound))
    kept = 0
    for (gang, region), wishes in _parties(need).items():
        count = len(wishes) - coming[gang, region]
        if count <= 0:
            continue
        free = places - sum(_is_ahead(single, wishes[0]) for single in singles)
        why = _refusal(region, wishes, taken[region] + count, picture, known)
        if not why and count > free - kept:
            limit = picture.spec.vm_max
            why = f"{max(0, free - kept)} places are left under the cluster's limit {limit}"
            kept = max(kept, free if count <= limit else 0)
        if why:
            jobs = tuple(wish.job for wish in wishes if wish.job)[:JOBS_PER_REGION]
            holds.append(Hold(region, f"a gang lacks {count} VMs, all or none: {why}", jobs))
            continue
        run_s = max(wish.run_s for wish in wishes) + timers.boot_timeout_s + MARGIN_S
        jobs = tuple(wish.job for wish in wishes[-count:])
        asks.append(Ask(gang, region, count, min(max(run_s, RUN_MIN_S), RUN_MAX_S), jobs))
        kept += count
        taken[region] += count
    return Together(tuple(asks), tuple(holds), kept)


def _parties(need: Iterable[Wish]) -> dict[Key, list[Wish]]:
    """In the order of the queue."""
    found: dict[Key, list[Wish]] = {}
    for wish in need:
        found.setdefault((wish.gang, wish.regions[0]), []).append(wish)
    return found


def _is_ahead(single: Wish, member: Wish) -> bool:
    if single.since is None or member.since is None:
        return False  # a floor waits for nobody
    return (-single.priority, single.since) < (-member.priority, member.since)


def _refusal(
    region: str,
    wishes: Sequence[Wish],
    there: int,
    picture: Picture,
    known: Mapping[str, Outlook],
) -> str:
    """Why nothing is asked for there. A stockout is no reason: the request waits for its end."""
    outlook = known.get(region)
    if outlook is None:
        return f"{region} was withdrawn from the cluster"
    if region in picture.refused:
        return picture.refused[region]
    if region in picture.quiet:
        return "the cloud did not answer there, trying again soon"
    if region in picture.spurned:
        return "such a request failed there a moment ago, trying again soon"
    block = outlook.block
    if block is not None and block.kind is not TroubleKind.STOCKOUT:
        return f"{block.words}: {block.message}"
    if not all(wish.allows(region, outlook.usd_per_hour) for wish in wishes):
        return f"${outlook.usd_per_hour:.2f} per hour is above what the job may cost"
    limit = picture.spec.region(region).vm_max
    if limit is not None and there > limit:
        return f"with them {there} VMs would be there, and the region's limit is {limit}"
    return ""


def _waiting(bound: Iterable[Vm]) -> Iterator[Hold]:
    """What people see of a region while requests wait there."""
    for request in requests_in(bound).values():
        first = request[0]
        asked = f"{len(request)} VMs were asked for together at {first.requested_at:%H:%M} UTC"
        yield Hold(first.region, f"{asked}, they come when there is room for all")


# --- giving up ---------------------------------------------------------------------------


def requests_in(vms: Iterable[Vm]) -> dict[str, list[Vm]]:
    """Requests that wait, by name, with their VMs. One of which a VM was given is over."""
    found: dict[str, list[Vm]] = {}
    for vm in vms:
        if vm.together and vm.state is not V.DELETING:
            found.setdefault(vm.together, []).append(vm)
    return {name: group for name, group in found.items() if all(vm.queued for vm in group)}


def given_up(picture: Picture, lacking: Iterable[Wish]) -> dict[str, tuple[Sequence[Vm], str]]:
    """Requests that nobody waits for any more → their VMs, and why. `lacking`: gangs' wishes that
    no VM serves yet."""
    wanted, places = set(_parties(lacking)), {r.region for r in picture.spec.regions}
    over = len(picture.vms) - picture.spec.vm_max
    found: dict[str, tuple[Sequence[Vm], str]] = {}
    for name, vms in sorted(requests_in(picture.vms).items(), key=_newest_first):
        key = (vms[0].gang, vms[0].region)
        if key[1] in picture.quiet or any(vm.name in picture.asked for vm in vms):
            continue
        if key[1] not in places:
            found[name] = (vms, f"{key[1]} was withdrawn from the cluster")
        elif key not in wanted:
            found[name] = (vms, f"its gang does not wait for VMs in {key[1]} any more")
        elif over > 0:
            found[name] = (vms, f"the cluster's limit was lowered to {picture.spec.vm_max}")
        over -= len(vms) if name in found else 0
    return found


def _newest_first(request: tuple[str, list[Vm]]) -> tuple[float, str]:
    name, vms = request
    return -vms[0].requested_at.timestamp(), name


# --- those that were given ---------------------------------------------------------------


def is_awaited(vm: Vm, wishes: Iterable[Wish]) -> bool:
    """Whether the gang that it was asked for waits, and looks where it is."""
    return any(wish.gang == vm.gang and wish.in_reach(vm.region) for wish in wishes)


def free_to_use(vms: Sequence[Vm], wishes: Sequence[Wish], now: datetime) -> tuple[Vm, ...]:
    """A gang that has begun, ended or gone elsewhere leaves its VMs to everybody who ends before
    the cloud ends them. Not known yet when that is: to nobody."""
    return tuple(
        replace(vm, together="", ends_at=vm.ends_at or now)
        if vm.together and vm.running_since is not None and not is_awaited(vm, wishes)
        else vm
        for vm in vms
    )
