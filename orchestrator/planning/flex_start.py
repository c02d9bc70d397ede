"""VMs for gangs, all at once or none: what to request together, and what to cancel. Pure.

One request asks for all that a gang lacks, in the region where the gang looks, and waits in the
cloud's own queue. Until it is given, its VMs are names that count against the limit: they are not
late, get no company, and are cancelled only all of them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from core.actions import NoAction
from core.demand import VmRequest, VmRequestKind
from core.region_blocks import BlockKind
from core.timers import Timers
from core.vm import Vm
from core.waits import JOBS_PER_REGION
from orchestrator.planning.plan_input import PlanInput
from orchestrator.planning.region_estimates import Outlook

# Beside the longest boot: the members find each other, and their ends are noticed.
MARGIN_S = 600.0

Key = tuple[str, str]
"""(gang, region)."""


@dataclass(frozen=True, slots=True)
class GangRequest:
    """A gang, where it looks, and what it lacks there."""

    gang: str
    region: str
    count: int
    run_s: float
    """How long it may run, and what comes with it."""
    jobs: tuple[str | None, ...] = ()
    """The members that lack a VM."""


@dataclass(frozen=True, slots=True)
class FlexStartPlan:
    """What is asked for together, and what is not, with the reason."""

    asks: tuple[GangRequest, ...] = ()
    holds: tuple[NoAction, ...] = ()
    kept: int = 0
    """Places under the limit that are nobody else's: of what is asked for, and of a gang that is
    next and lacks some. Without them singles would take each place that comes free."""


NOBODY = FlexStartPlan()


def is_gangs(request: VmRequest, inputs: PlanInput) -> bool:
    """Whether it is asked for together with others."""
    return inputs.spec.flex_start_wait_s is not None and bool(request.gang and request.regions)


def gather(
    inputs: PlanInput,
    known: Mapping[str, Outlook],
    need: Iterable[VmRequest],
    singles: Sequence[VmRequest],
    bound: Sequence[Vm],
    timers: Timers,
) -> FlexStartPlan:
    """`need`: gangs' VM requests that no VM serves; `singles`: VM requests that will ask for a VM
    each; `bound`: VMs that come for a gang."""
    coming = Counter((vm.gang, vm.region) for vm in bound)
    taken = Counter(vm.region for vm in inputs.vms)
    places = max(0, inputs.spec.vm_max - len(inputs.vms))
    terms = inputs.spec.terms
    asks: list[GangRequest] = []
    holds = list(_waiting(bound))
    kept = 0
    for (gang, region), requests in _parties(need).items():
        count = len(requests) - coming[gang, region]
        if count <= 0:
            continue
        free = places - sum(_is_ahead(single, requests[0]) for single in singles)
        why = _refusal(region, requests, taken[region] + count, inputs, known)
        if not why and count > free - kept:
            limit = inputs.spec.vm_max
            why = f"{max(0, free - kept)} places are left under the cluster's limit {limit}"
            kept = max(kept, free if count <= limit else 0)
        if why:
            jobs = tuple(request.job for request in requests if request.job)[:JOBS_PER_REGION]
            holds.append(NoAction(region, f"a gang lacks {count} VMs, all or none: {why}", jobs))
            continue
        run_s = max(request.run_s for request in requests) + timers.boot_timeout_s + MARGIN_S
        run_s = min(max(run_s, terms.request_run_min_s), terms.request_run_max_s)
        members = tuple(request.job for request in requests[-count:])
        asks.append(GangRequest(gang, region, count, run_s, members))
        kept += count
        taken[region] += count
    return FlexStartPlan(tuple(asks), tuple(holds), kept)


def _parties(need: Iterable[VmRequest]) -> dict[Key, list[VmRequest]]:
    """In the order of the queue."""
    found: dict[Key, list[VmRequest]] = {}
    for request in need:
        found.setdefault((request.gang, request.regions[0]), []).append(request)
    return found


def _is_ahead(single: VmRequest, member: VmRequest) -> bool:
    return single.kind is VmRequestKind.JOB and single.position < member.position


def _refusal(
    region: str,
    requests: Sequence[VmRequest],
    there: int,
    inputs: PlanInput,
    known: Mapping[str, Outlook],
) -> str:
    """Why nothing is asked for there. A stockout is no reason: the request waits for its end."""
    outlook = known.get(region)
    if outlook is None:
        return f"{region} was withdrawn from the cluster"
    if region in inputs.refused:
        return inputs.refused[region]
    if region in inputs.quiet:
        return inputs.quiet[region]
    if region in inputs.spurned:
        return "such a request failed there a moment ago, trying again soon"
    block = outlook.block
    if block is not None and block.kind is not BlockKind.STOCKOUT:
        return f"{block.words}: {block.message}"
    if not all(request.allows(region, outlook.usd_per_hour) for request in requests):
        return f"${outlook.usd_per_hour:.2f} per hour is above what the job may cost"
    limit = inputs.spec.region(region).vm_max
    if limit is not None and there > limit:
        return f"with them {there} VMs would be there, and the region's limit is {limit}"
    return ""


def _waiting(bound: Iterable[Vm]) -> Iterator[NoAction]:
    """What people see of a region while requests wait there."""
    for request in requests_in(bound).values():
        first = request[0]
        asked = f"{len(request)} VMs were asked for together at {first.requested_at:%H:%M} UTC"
        yield NoAction(first.region, f"{asked}, they come when there is room for all")


# --- cancelling ------------------------------------------------------------------------


def requests_in(vms: Iterable[Vm]) -> dict[str, list[Vm]]:
    """Requests that wait, by name, with their VMs. One of which a VM was given is over."""
    found: dict[str, list[Vm]] = {}
    for vm in vms:
        if vm.together and not vm.state.deleting:
            found.setdefault(vm.together, []).append(vm)
    return {name: group for name, group in found.items() if all(vm.queued for vm in group)}


def given_up(
    inputs: PlanInput, lacking: Iterable[VmRequest]
) -> dict[str, tuple[Sequence[Vm], str]]:
    """Requests that nobody waits for any more → their VMs, and why. `lacking`: gangs' VM requests
    that no VM serves yet."""
    wanted, places = set(_parties(lacking)), {r.region for r in inputs.spec.regions}
    over = len(inputs.vms) - inputs.spec.vm_max
    found: dict[str, tuple[Sequence[Vm], str]] = {}
    for name, vms in sorted(requests_in(inputs.vms).items(), key=_newest_first):
        key = (vms[0].gang, vms[0].region)
        if key[1] in inputs.quiet or any(vm.name in inputs.asked for vm in vms):
            continue
        if key[1] not in places:
            found[name] = (vms, f"{key[1]} was withdrawn from the cluster")
        elif key not in wanted:
            found[name] = (vms, f"its gang does not wait for VMs in {key[1]} any more")
        elif over > 0:
            found[name] = (vms, f"the cluster's limit was lowered to {inputs.spec.vm_max}")
        over -= len(vms) if name in found else 0
    return found


def _newest_first(request: tuple[str, list[Vm]]) -> tuple[float, str]:
    name, vms = request
    return -vms[0].requested_at.timestamp(), name


# --- VMs that were given ---------------------------------------------------------------


def is_awaited(vm: Vm, requests: Iterable[VmRequest]) -> bool:
    """Whether the gang that it was asked for waits, and looks where it is."""
    return any(request.gang == vm.gang and request.in_reach(vm.region) for request in requests)


def free_to_use(vms: Sequence[Vm], requests: Sequence[VmRequest], now: datetime) -> tuple[Vm, ...]:
    """A gang that has begun, ended or gone elsewhere leaves its VMs to everybody who ends before
    the cloud ends them. Not known yet when that is: to nobody."""
    return tuple(
        replace(vm, together="", ends_at=vm.ends_at or now)
        if vm.together and vm.running_since is not None and not is_awaited(vm, requests)
        else vm
        for vm in vms
    )
