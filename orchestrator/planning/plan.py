"""How many VMs, where, and why. Pure: the same picture gives the same plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from core.actions import Action, Delete, Drain, Queue, Undrain, Unqueue
from core.names import Names, request_for
from core.ports import Ids
from core.timers import Timers
from core.vm import Vm, VmState
from orchestrator.planning.analysis import Scene, is_expired, survey
from orchestrator.planning.flex_start import given_up, is_awaited
from orchestrator.planning.idle_policy import LOOK_AGAIN_S, idle_limit_s, tired
from orchestrator.planning.plan_input import Picture, match
from orchestrator.planning.unproven_groups import trial_ends
from orchestrator.planning.vm_requests import LONG_WAIT_S, Asks, askable, fresh_names, growth

V = VmState
# Beliefs and prices drift with time alone; while somebody waits they are looked at this often.
DRIFT_S = 60.0
# The cloud cuts the power of a spot VM 30 s after it began to stop it; past this it hangs.
CLOUD_STOPS_S = 60.0


def plan_cluster(
    picture: Picture, names: Names, timers: Timers, ids: Ids, now: datetime
) -> tuple[Action, ...]:
    """Deletes first (they free the purse), then drains, then growth or the reasons against it."""
    return decide(survey(picture, timers, now), names, ids)


def decide(scene: Scene, names: Names, ids: Ids) -> tuple[Action, ...]:
    """The plan for a scene that was surveyed already."""
    deletes = [
        Delete(region, tuple(sorted(group)), ids.request_id(), reason)
        for (region, reason), group in sorted(_deletes(scene).items())
    ]
    back = [Undrain(vm.name, "there is work for it again") for vm in scene.back]
    gangs = (*_given_up(scene, ids), *scene.together.holds, *_asked_together(scene, names, ids))
    return (*deletes, *back, *_drains(scene), *gangs, *growth(scene, names, ids))


def next_look(picture: Picture, timers: Timers, now: datetime) -> datetime | None:
    """When the plan may change by time alone, if nothing else happens."""
    return look_again(survey(picture, timers, now))


def look_again(scene: Scene) -> datetime | None:
    """The same for a scene that was surveyed already."""
    picture, now = scene.picture, scene.now
    moments = [*_vm_moments(scene), *_wish_moments(scene)]
    moments += [trouble.until for trouble in picture.troubles]
    moments += trial_ends(picture, scene.timers, now)
    moments += [floor.next_change(now) for floor in picture.spec.floors]
    # Rules say "longer than": a moment later they hold.
    later = [moment + timedelta(milliseconds=1) for moment in moments if moment >= now]
    return min(later, default=None)


def _vm_moments(scene: Scene) -> Iterator[datetime]:
    timers, now = scene.timers, scene.now
    for vm in (*scene.fleet.fresh, *scene.fleet.stale, *scene.fleet.running):
        outlook = scene.known.get(vm.region)
        late_s = outlook.late_after_s if outlook is not None else timers.widen_after_s
        yield vm.requested_at + timedelta(seconds=late_s)
        yield vm.requested_at + timedelta(seconds=timers.boot_timeout_s)
    for vm in scene.fleet.bound:
        if not vm.queued:
            yield vm.state_since + timedelta(seconds=timers.boot_timeout_s)
    spare = match(scene.wishes, scene.fleet.idle + scene.fleet.running, scene.now).spare
    if spare or (scene.fleet.fresh and not scene.need):
        yield now + timedelta(seconds=LOOK_AGAIN_S)
    yield from (vm.kept_until for vm in scene.picture.vms if vm.kept_until is not None)
    stops = timedelta(seconds=CLOUD_STOPS_S)
    yield from (vm.state_since + stops for vm in scene.picture.vms if _has_notice(vm, now))
    limit = timedelta(seconds=idle_limit_s(scene.picture, timers))
    yield from (vm.idle_since + limit for vm in spare if vm.idle_since is not None)


def _wish_moments(scene: Scene) -> Iterator[datetime]:
    if scene.uncredited:
        yield scene.now + timedelta(seconds=DRIFT_S)
    for wish in scene.uncredited:
        if wish.start_by is not None:
            yield wish.start_by
        if wish.since is not None:
            yield wish.since + timedelta(seconds=LONG_WAIT_S)
        for outlook in scene.known.values():
            at = scene.prices.affordable_at(wish, outlook)
            if at is not None:
                yield at


# --- giving back -------------------------------------------------------------------------


def _deletes(scene: Scene) -> dict[tuple[str, str], list[str]]:
    """(region, reason) → names."""
    picture = scene.picture
    surplus = {**_surplus_running(scene), **_surplus_fresh(scene), **_surplus_stale(scene)}
    surplus |= _left_by_gangs(scene)
    kept = {vm.name for vm in scene.back}
    found: dict[tuple[str, str], list[str]] = {}
    for vm in picture.vms:
        if vm.state is V.READY or vm.queued:
            continue  # drained first; given up only with those that were asked for with it
        reason = _over(vm, scene) or surplus.get(vm.name, "")
        wanted = vm.name in kept or vm.name in picture.asked or vm.region in picture.quiet
        if reason and not wanted:
            found.setdefault((vm.region, reason), []).append(vm.name)
    return found


def _over(vm: Vm, scene: Scene) -> str:
    """Why the VM is beyond use, whatever the demand."""
    if vm.state is V.DELETING:
        return "" if _has_notice(vm, scene.now) else vm.reason or "to be deleted"
    if vm.state is V.DRAINING and not vm.leases:
        kept = vm.kept_until is not None and scene.now < vm.kept_until
        return "" if kept else vm.reason or "drained"
    if vm.state not in (V.REQUESTED, V.BOOTING):
        return ""
    if vm.region not in scene.known:
        return f"{vm.region} was withdrawn from the cluster"
    expired = is_expired(vm, scene.timers, scene.now)
    return f"not ready within {scene.timers.boot_timeout_s:g} s" if expired else ""


def _has_notice(vm: Vm, now: datetime) -> bool:
    """Whether the cloud is stopping a spot VM by itself while a job of ours uses its notice to
    checkpoint: asking for the deletion now could cut that short."""
    uses = vm.spot and vm.taken and vm.busy and bool(vm.boot_nonce) and vm.stopped_at is None
    return uses and now < vm.state_since + timedelta(seconds=CLOUD_STOPS_S)


def _surplus_running(scene: Scene) -> dict[str, str]:
    """Those that came second and are not ready yet: the next job may be worth their price."""
    spare = _loose(scene, (*scene.fleet.idle, *scene.back, *scene.fleet.running))
    given = tired(spare, scene.stream, scene.known, scene.picture, scene.timers, scene.now)
    running = {vm.name for vm in scene.fleet.running}
    return {name: reason for name, reason in given.items() if name in running}


def _loose(scene: Scene, vms: Sequence[Vm]) -> list[Vm]:
    """Those that nobody waits for, without those of gangs that wait for the rest of theirs."""
    return [vm for vm in match(scene.wishes, vms, scene.now).spare if not vm.together]


def _left_by_gangs(scene: Scene) -> dict[str, str]:
    """Given, for a gang that has gone in the meantime, and not running yet: that costs nothing."""
    left = (vm for vm in scene.fleet.bound if not is_awaited(vm, scene.wishes))
    return {vm.name: "its gang does not wait for it any more" for vm in left}


def _surplus_fresh(scene: Scene) -> dict[str, str]:
    """Cancelling before RUNNING costs nothing: whatever is beyond the demand and its slack goes
    as soon as the first ones have come."""
    spare = match(scene.need, scene.fleet.fresh, scene.now).spare
    over = len(scene.fleet.fresh) - scene.keep_max
    dearest = sorted(spare, key=lambda vm: (-scene.known[vm.region].price, vm.name))
    return {vm.name: "not needed any more" for vm in dearest[: max(0, over)]}


def _surplus_stale(scene: Scene) -> dict[str, str]:
    """One per region stands as a probe while somebody waits for it; if the limit is reached and
    another region may deliver, probes make room."""
    standing: dict[str, Vm] = {}
    found: dict[str, str] = {}
    for vm in scene.fleet.stale:
        useful = any(wish.allows(vm.region, vm.usd_per_hour) for wish in scene.need)
        if useful and vm.region not in standing:
            standing[vm.region] = vm
        else:
            found[vm.name] = _taken_back(vm, scene)
    probes = sorted(standing.values(), key=lambda vm: (scene.known[vm.region].price, vm.name))
    keep = len(probes) - _places_wanted(scene)
    for vm in probes[max(0, keep) :]:
        found[vm.name] = _taken_back(vm, scene)
    return found


def _places_wanted(scene: Scene) -> int:
    """Places under the limit that requests with better prospects lack."""
    asks = Asks(scene)
    hopeful = sum(bool(askable(wish, scene, asks)) for wish in scene.uncredited)
    return max(0, hopeful - asks.places)


def _taken_back(vm: Vm, scene: Scene) -> str:
    if not scene.need:
        return "not needed any more"
    outlook = scene.known[vm.region]
    cause = outlook.block.kind if outlook.block is not None else "too slow"
    return f"taken back: {cause} in {vm.region}"


def _drains(scene: Scene) -> list[Action]:
    withdrawn = [vm for vm in scene.picture.vms if vm.idle and vm.region not in scene.known]
    spare = _loose(scene, scene.fleet.idle)
    given = tired(spare, scene.stream, scene.known, scene.picture, scene.timers, scene.now)
    return [
        *(Drain(vm.name, f"{vm.region} was withdrawn from the cluster") for vm in withdrawn),
        *(Drain(name, reason) for name, reason in {**_over_limit(scene, spare), **given}.items()),
    ]


# --- several at once ----------------------------------------------------------------------


def _given_up(scene: Scene, ids: Ids) -> list[Action]:
    found = given_up(scene.picture, scene.lacking)
    return [
        Unqueue(vms[0].region, name, tuple(vm.name for vm in vms), ids.request_id(), reason)
        for name, (vms, reason) in sorted(found.items())
    ]


def _asked_together(scene: Scene, names: Names, ids: Ids) -> list[Action]:
    """Each gang by a request of its own: they need not come at the same time."""
    used = {vm.name for vm in scene.picture.vms}
    actions: list[Action] = []
    for ask in scene.together.asks:
        fresh = fresh_names(names, scene.picture.spec.name, ask.region, ask.count, used, ids)
        if len(fresh) < ask.count:
            continue  # no names left: never a part of a gang
        name = request_for(ask.gang, ids.suffix())
        reason = f"a gang lacks {ask.count} VMs, all or none: asked for together"
        actions.append(
            Queue(ask.region, name, fresh, ask.run_s, ids.request_id(), reason, ask.jobs)
        )
    return actions


def _over_limit(scene: Scene, spare: Sequence[Vm]) -> dict[str, str]:
    """A limit that was lowered is not reached by waiting: what idles above it goes at once, the
    dearest first. What works is left alone."""
    limit = scene.picture.spec.vm_max
    if len(scene.picture.vms) <= limit:
        return {}
    standing = [vm for vm in scene.picture.vms if vm.state not in (V.DRAINING, V.DELETING)]
    dearest = sorted(spare, key=lambda vm: (-vm.usd_per_hour, vm.name))
    over = dearest[: max(0, len(standing) - limit)]
    return {vm.name: f"the cluster's limit was lowered to {limit}" for vm in over}
