"""How many VMs, where, and why. Pure: the same plan input gives the same plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from core.actions import Action, Delete, Drain, Queue, Undrain, Unqueue
from core.names import Names, request_for
from core.ports import Ids
from core.timers import Timers
from core.vm import Vm
from orchestrator.planning.analysis import Analysis, survey
from orchestrator.planning.flex_start import given_up, is_awaited
from orchestrator.planning.idle_policy import LOOK_AGAIN_S, idle_limit_s, idled_out
from orchestrator.planning.plan_input import PlanInput, match
from orchestrator.planning.vm_requests import (
    LONG_WAIT_S,
    Asks,
    askable,
    growth,
    new_names,
    proof_ends,
)

# Success probabilities and prices drift with time alone; while somebody waits they are looked at
# this often.
DRIFT_S = 60.0


def plan_cluster(
    inputs: PlanInput, names: Names, timers: Timers, ids: Ids, now: datetime
) -> tuple[Action, ...]:
    """Deletes first (they free the purse), then drains, then growth or the reasons against it."""
    return decide(survey(inputs, timers, now), names, ids)


def decide(analysis: Analysis, names: Names, ids: Ids) -> tuple[Action, ...]:
    """The plan for an analysis that was surveyed already."""
    deletes = [
        Delete(region, tuple(sorted(group)), ids.request_id(), reason)
        for (region, reason), group in sorted(_deletes(analysis).items())
    ]
    back = [Undrain(vm.name, "there is work for it again") for vm in analysis.back]
    gangs = (
        *_cancelled_requests(analysis, ids),
        *analysis.together.holds,
        *_flex_start_calls(analysis, names, ids),
    )
    return (*deletes, *back, *_drains(analysis), *gangs, *growth(analysis, names, ids))


def look_again(analysis: Analysis) -> datetime | None:
    """When the plan may change by time alone, if nothing else happens."""
    inputs, now = analysis.inputs, analysis.now
    moments = [*_vm_moments(analysis), *_request_moments(analysis)]
    moments += [block.until for block in inputs.blocks]
    moments += proof_ends(inputs, analysis.timers, now)
    moments += [floor.next_change(now) for floor in inputs.spec.floors]
    # Rules say "longer than": a moment later they hold.
    later = [moment + timedelta(milliseconds=1) for moment in moments if moment >= now]
    return min(later, default=None)


def _vm_moments(analysis: Analysis) -> Iterator[datetime]:
    timers, now = analysis.timers, analysis.now
    for vm in (*analysis.fleet.on_time, *analysis.fleet.late, *analysis.fleet.running):
        outlook = analysis.known.get(vm.region)
        late_s = outlook.late_after_s if outlook is not None else timers.widen_after_s
        yield vm.requested_at + timedelta(seconds=late_s)
        yield vm.requested_at + timedelta(seconds=timers.boot_timeout_s)
    for vm in analysis.fleet.bound:
        if not vm.queued:
            yield vm.state_since + timedelta(seconds=timers.boot_timeout_s)
    spare = match(
        analysis.requests, analysis.fleet.idle + analysis.fleet.running, analysis.now
    ).spare
    if spare or (analysis.fleet.on_time and not analysis.need):
        yield now + timedelta(seconds=LOOK_AGAIN_S)
    yield from (vm.kept_until for vm in analysis.inputs.vms if vm.kept_until is not None)
    stops = timedelta(seconds=analysis.inputs.spec.terms.stops_within_s)
    yield from (vm.state_since + stops for vm in analysis.inputs.vms if _has_notice(vm, analysis))
    limit = timedelta(seconds=idle_limit_s(analysis.inputs, timers))
    yield from (vm.idle_since + limit for vm in spare if vm.idle_since is not None)


def _request_moments(analysis: Analysis) -> Iterator[datetime]:
    if analysis.uncredited:
        yield analysis.now + timedelta(seconds=DRIFT_S)
    for request in analysis.uncredited:
        if request.start_by is not None:
            yield request.start_by
        if request.since is not None:
            yield request.since + timedelta(seconds=LONG_WAIT_S)
        for outlook in analysis.known.values():
            yield from analysis.prices.affordable_at(request, outlook)


# --- giving back -------------------------------------------------------------------------


def _deletes(analysis: Analysis) -> dict[tuple[str, str], list[str]]:
    """(region, reason) → names."""
    inputs = analysis.inputs
    surplus = {
        **_surplus_running(analysis),
        **_surplus_in_flight(analysis),
        **_surplus_late(analysis),
    }
    surplus |= _left_by_gangs(analysis)
    kept = {vm.name for vm in analysis.back}
    found: dict[tuple[str, str], list[str]] = {}
    for vm in inputs.vms:
        if vm.state.ready or vm.queued:
            continue  # drained first; cancelled only with the VMs of the same request
        reason = _over(vm, analysis) or surplus.get(vm.name, "")
        wanted = vm.name in kept or vm.name in inputs.asked or vm.region in inputs.quiet
        if reason and not wanted:
            found.setdefault((vm.region, reason), []).append(vm.name)
    return found


def _over(vm: Vm, analysis: Analysis) -> str:
    """Why the VM is beyond use, whatever the demand."""
    if vm.state.deleting:
        return "" if _has_notice(vm, analysis) else vm.reason or "to be deleted"
    if vm.state.draining and not vm.leases:
        kept = vm.kept_until is not None and analysis.now < vm.kept_until
        return "" if kept else vm.reason or "drained"
    if not vm.state.in_flight:
        return ""
    if vm.region not in analysis.known:
        return f"{vm.region} was withdrawn from the cluster"
    boot_s = analysis.timers.boot_timeout_s
    return f"not ready within {boot_s:g} s" if vm.has_boot_timed_out(boot_s, analysis.now) else ""


def _has_notice(vm: Vm, analysis: Analysis) -> bool:
    """Whether the cloud is stopping a spot VM by itself while a job of ours uses its notice to
    checkpoint: asking for the deletion now could cut that short."""
    uses = vm.spot and vm.taken and vm.busy and bool(vm.boot_nonce) and vm.stopped_at is None
    stops = timedelta(seconds=analysis.inputs.spec.terms.stops_within_s)
    return uses and analysis.now < vm.state_since + stops


def _surplus_running(analysis: Analysis) -> dict[str, str]:
    """VMs that came second and are not ready yet: the next job may be worth their price."""
    spare = _loose(analysis, (*analysis.fleet.idle, *analysis.back, *analysis.fleet.running))
    given = idled_out(
        spare, analysis.stream, analysis.known, analysis.inputs, analysis.timers, analysis.now
    )
    running = {vm.name for vm in analysis.fleet.running}
    return {name: reason for name, reason in given.items() if name in running}


def _loose(analysis: Analysis, vms: Sequence[Vm]) -> list[Vm]:
    """VMs that no job waits for, without the VMs of gangs that wait for the rest of theirs."""
    return [vm for vm in match(analysis.requests, vms, analysis.now).spare if not vm.together]


def _left_by_gangs(analysis: Analysis) -> dict[str, str]:
    """Given, for a gang that has gone in the meantime, and not running yet: that costs nothing."""
    left = (vm for vm in analysis.fleet.bound if not is_awaited(vm, analysis.requests))
    return {vm.name: "its gang does not wait for it any more" for vm in left}


def _surplus_in_flight(analysis: Analysis) -> dict[str, str]:
    """Cancelling before RUNNING costs nothing: whatever is beyond the demand and its slack goes
    as soon as the first ones have come."""
    spare = match(analysis.need, analysis.fleet.on_time, analysis.now).spare
    over = len(analysis.fleet.on_time) - analysis.keep_max
    dearest = sorted(spare, key=lambda vm: (-analysis.known[vm.region].price, vm.name))
    return {vm.name: "not needed any more" for vm in dearest[: max(0, over)]}


def _surplus_late(analysis: Analysis) -> dict[str, str]:
    """One per region stands as a probe while somebody waits for it; if the limit is reached and
    another region may deliver, probes make room."""
    standing: dict[str, Vm] = {}
    found: dict[str, str] = {}
    for vm in analysis.fleet.late:
        useful = any(request.allows(vm.region, vm.usd_per_hour) for request in analysis.need)
        if useful and vm.region not in standing:
            standing[vm.region] = vm
        else:
            found[vm.name] = _taken_back(vm, analysis)
    probes = sorted(standing.values(), key=lambda vm: (analysis.known[vm.region].price, vm.name))
    keep = len(probes) - _places_wanted(analysis)
    for vm in probes[max(0, keep) :]:
        found[vm.name] = _taken_back(vm, analysis)
    return found


def _places_wanted(analysis: Analysis) -> int:
    """Places under the limit that requests with better prospects lack."""
    asks = Asks(analysis)
    hopeful = sum(bool(askable(request, analysis, asks)) for request in analysis.uncredited)
    return max(0, hopeful - asks.places)


def _taken_back(vm: Vm, analysis: Analysis) -> str:
    if not analysis.need:
        return "not needed any more"
    outlook = analysis.known[vm.region]
    cause = outlook.block.kind if outlook.block is not None else "too slow"
    return f"taken back: {cause} in {vm.region}"


def _drains(analysis: Analysis) -> list[Action]:
    withdrawn = [vm for vm in analysis.inputs.vms if vm.idle and vm.region not in analysis.known]
    spare = _loose(analysis, analysis.fleet.idle)
    given = idled_out(
        spare, analysis.stream, analysis.known, analysis.inputs, analysis.timers, analysis.now
    )
    return [
        *(Drain(vm.name, f"{vm.region} was withdrawn from the cluster") for vm in withdrawn),
        *(
            Drain(name, reason)
            for name, reason in {**_over_limit(analysis, spare), **given}.items()
        ),
    ]


# --- several at once ----------------------------------------------------------------------


def _cancelled_requests(analysis: Analysis, ids: Ids) -> list[Action]:
    found = given_up(analysis.inputs, analysis.lacking)
    return [
        Unqueue(vms[0].region, name, tuple(vm.name for vm in vms), ids.request_id(), reason)
        for name, (vms, reason) in sorted(found.items())
    ]


def _flex_start_calls(analysis: Analysis, names: Names, ids: Ids) -> list[Action]:
    """Each gang by a request of its own: they need not come at the same time."""
    used = {vm.name for vm in analysis.inputs.vms}
    actions: list[Action] = []
    for ask in analysis.together.asks:
        new = new_names(names, analysis.inputs.spec.name, ask.region, ask.count, used, ids)
        if len(new) < ask.count:
            continue  # no names left: never a part of a gang
        name = request_for(ask.gang, ids.suffix())
        reason = f"a gang lacks {ask.count} VMs, all or none: asked for together"
        actions.append(Queue(ask.region, name, new, ask.run_s, ids.request_id(), reason, ask.jobs))
    return actions


def _over_limit(analysis: Analysis, spare: Sequence[Vm]) -> dict[str, str]:
    """A limit that was lowered is not reached by waiting: what idles above it goes at once, the
    dearest first. What works is left alone."""
    limit = analysis.inputs.spec.vm_max
    if len(analysis.inputs.vms) <= limit:
        return {}
    standing = [vm for vm in analysis.inputs.vms if not vm.state.leaving]
    dearest = sorted(spare, key=lambda vm: (-vm.usd_per_hour, vm.name))
    over = dearest[: max(0, len(standing) - limit)]
    return {vm.name: f"the cluster's limit was lowered to {limit}" for vm in over}
