"""What an observation means for the VMs we know and for what we know of a region. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from core.changes import Change, DropRegionBlock, PutRegionBlock, VmMove
from core.cluster import ClusterSpec
from core.mig import (
    GroupError,
    MachineState,
    ManagedInstance,
    MigSnapshot,
    Queued,
    QueueState,
    Refusal,
)
from core.region_blocks import BAD_LUCK_MAX, EVERYWHERE, NEVER_WORKS, BlockKind, RegionBlock
from core.supply import TAKEN_SHARE, CapacityPolicy, SupplyHistory, SupplyOutcome
from core.timers import Timers
from core.vm import Vm, VmEvent, VmFacts, advance_vm, with_facts
from orchestrator.planning.unproven_groups import is_remembered
from orchestrator.supply.learning import SupplyUpdates

E = VmEvent
# Names of an accepted create call are listed at once; this much later their absence is real.
UNLISTED_AFTER_S = 30.0
# How often the same refusal is written down again while its block lasts.
SAME_NEWS_S = 60.0


BlockKey = tuple[str, str, str, bool, str]


@dataclass(frozen=True, slots=True)
class Folded:
    """What to write, and the snapshot after it."""

    changes: tuple[Change, ...]
    vms: tuple[Vm, ...]
    blocks: tuple[RegionBlock, ...]
    supply: tuple[SupplyHistory, ...] = ()


def fold(
    observed: MigSnapshot,
    spec: ClusterSpec,
    vms: Sequence[Vm],
    blocks: Sequence[RegionBlock],
    unsettled: frozenset[str],
    timers: Timers,
    now: datetime,
    *,
    supply: Sequence[SupplyHistory] = (),
    policy: CapacityPolicy = CapacityPolicy(),  # noqa: B008  # frozen
    failed_creates: Mapping[str, str] = MappingProxyType({}),
) -> Folded:
    """Compare one group with our rows for its region. `unsettled` names VMs whose create call
    was not answered yet, or only just now: their absence means nothing. `failed_creates`: VMs
    whose create call was accepted and then failed, and why: their absence is final."""
    members = {member.name: member for member in observed.members}
    known = {block.key: block for block in blocks}
    lessons = SupplyUpdates(spec, supply, policy, now)
    changes: list[Change] = []
    after: list[Vm] = []
    for key in [k for k, t in known.items() if _is_missing_no_more(t, observed, spec)]:
        del known[key]
        changes.append(DropRegionBlock(key))
    here = [vm for vm in vms if vm.region == observed.region]
    failed = failed_requests(observed, here)
    news = _untold(observed, spec, here, known, supply)
    refusals = _refusals(observed, here) | {name: _final(failed[name]) for name in failed}
    refusals[""] = tuple(line.refusal for line in news)
    for vm in vms:
        # Two looks at a slow region may come together: what the first found gone stays so.
        if vm.region != observed.region or vm.state.gone:
            after.append(vm)
            continue
        member = members.get(vm.name)
        if vm.queued and vm.together in failed:
            seen = _failed(vm, failed[vm.together], member, now)
        elif vm.queued and _still_waits(vm, member, observed):
            seen = vm
        elif member is None:
            seen = _missing(vm, unsettled, failed_creates, now)
        else:
            seen = _present(vm, member, refusals.get(vm.name, ()), now)
        if seen.running_since is not None and vm.running_since is None:
            lessons.hit(seen)
            for key in _blocks_at(seen, spec, known):
                del known[key]
                changes.append(DropRegionBlock(key))
        if seen.state.gone:
            lessons.gone(seen)
        if seen is not vm:
            changes.append(VmMove(vm, seen))
        after.append(seen)
    # After the deliveries: a region that gave some and refused others has no more to give.
    heard = _learn_refusals(observed, spec, refusals, known, lessons, timers, now)
    changes += heard
    if spec.spot:
        _learn_shortage(observed.region, vms, after, heard, lessons)
    changes += lessons.changes
    return Folded(tuple(changes), tuple(after), tuple(known.values()), lessons.supply)


def delivered(
    vms: Iterable[Vm],
    spec: ClusterSpec,
    blocks: Sequence[RegionBlock],
    supply: Sequence[SupplyHistory],
    policy: CapacityPolicy,
    now: datetime,
) -> Folded:
    """Of VMs that were awaited: those whose worker spoke before anybody saw them run. Their places
    have delivered, too."""
    known = {block.key: block for block in blocks}
    lessons = SupplyUpdates(spec, supply, policy, now)
    came = tuple(vm for vm in vms if vm.running_since is not None)
    dropped: list[Change] = []
    for vm in came:
        lessons.hit(vm)
        for key in _blocks_at(vm, spec, known):
            del known[key]
            dropped.append(DropRegionBlock(key))
    changes = (*dropped, *lessons.changes)
    return Folded(changes, came, tuple(known.values()), lessons.supply)


def _learn_shortage(
    region: str,
    before: Sequence[Vm],
    after: Sequence[Vm],
    heard: Iterable[Change],
    lessons: SupplyUpdates,
) -> None:
    """The place took VMs back, or refused one more."""
    taken = _taken(before, after)
    kept = _kept(after, region)
    if taken and len(taken) >= TAKEN_SHARE * (len(taken) + kept):
        lessons.took(region, max(taken))
    if taken or _is_stockout(heard):
        lessons.short(region, kept)


def _is_stockout(heard: Iterable[Change]) -> bool:
    """Whether one was heard of that is news."""
    blocks = [change.block for change in heard if isinstance(change, PutRegionBlock)]
    return any(t.kind is BlockKind.STOCKOUT for t in blocks)


def _taken(before: Iterable[Vm], after: Iterable[Vm]) -> list[datetime]:
    """When those went that are found gone now. One that was off, or told, and then deleted is found
    gone minutes later."""
    pairs = zip(before, after, strict=True)
    gone = [(a, b) for a, b in pairs if b.state.gone and b.taken and not a.state.gone]
    return [a.state_since if a.state.deleting else b.state_since for a, b in gone]


def _kept(vms: Iterable[Vm], region: str) -> int:
    """How many of ours run there."""
    here = (vm for vm in vms if vm.region == region and not vm.state.beyond_use)
    return sum(vm.running_since is not None and not vm.taken for vm in here)


def _refusals(observed: MigSnapshot, vms: Sequence[Vm]) -> dict[str, tuple[Refusal, ...]]:
    """Why members that have no VM yet have none."""
    found: dict[str, tuple[Refusal, ...]] = {}
    names = {vm.name for vm in vms if not vm.queued}
    for member in observed.members:
        # One that waits with others has not failed, whatever stands in its way so far.
        if member.name in names and member.machine is MachineState.NONE:
            found[member.name] = tuple(_placed(r, member.zone) for r in member.refusals)
    return found


def _untold(
    observed: MigSnapshot,
    spec: ClusterSpec,
    vms: Iterable[Vm],
    known: Mapping[BlockKey, RegionBlock],
    supply: Iterable[SupplyHistory],
) -> list[GroupError]:
    """What the group remembers of members that are gone and could not be made, without what has
    been heard before, or was overtaken by a delivery: a new leader reads the whole past."""
    if not observed.errors:
        return []
    place = (observed.region, "", spec.offering, spec.spot)
    heard = {t.kind: t.last_seen for t in known.values() if t.key[:4] == place}
    bad = (SupplyOutcome.MISS, SupplyOutcome.TAKEN)
    good = [e.last_at for e in supply if e.place == place and e.last not in bad]
    good += [vm.running_since for vm in vms]
    since = max((at for at in good if at is not None), default=None)
    return [
        line
        for line in observed.errors
        if (since is None or line.at > since)
        and ((last := heard.get(line.refusal.kind)) is None or line.at > last)
    ]


def failed_requests(observed: MigSnapshot, vms: Iterable[Vm]) -> dict[str, Queued]:
    """Requests for several VMs at once that ended without any, as far as that is news: their VMs
    are still written down as waiting."""
    if not observed.requests:
        return {}
    open_ = {vm.together for vm in vms if vm.queued}
    over = (QueueState.FAILED, QueueState.CANCELLED)
    return {r.name: r for r in observed.requests if r.name in open_ and r.state in over}


def _still_waits(vm: Vm, member: ManagedInstance | None, observed: MigSnapshot) -> bool:
    """Whether it has not been given yet. As long as the cloud keeps the request, what is not listed
    may still come."""
    request = next((r for r in observed.requests if r.name == vm.together), None)
    if member is None:
        return request is not None and not request.state.final
    ungiven = not member.machine.given and member.leaving is None
    return ungiven and (request is None or not request.state.final)


def _final(request: Queued) -> tuple[Refusal, ...]:
    """Why it failed."""
    if request.state is not QueueState.FAILED:
        return ()
    unknown = Refusal(BlockKind.OTHER, "the request failed, the cloud gives no reason")
    return request.refusals or (unknown,)


def _failed(vm: Vm, request: Queued, member: ManagedInstance | None, now: datetime) -> Vm:
    """Its members leave the group by themselves, all of them."""
    words = "; ".join(refusal.message for refusal in request.refusals)
    reason = f"the request for {request.vms} VMs at once is {request.state.lower()}"
    if words:
        reason = f"{reason}: {words}"[:500]
    return advance_vm(vm, E.CREATE_FAILED if member is None else E.CLOUD_ENDED, now, reason)


def _placed(refusal: Refusal, zone: str) -> Refusal:
    return refusal if refusal.zone else replace(refusal, zone=zone)


def _learn_refusals(
    observed: MigSnapshot,
    spec: ClusterSpec,
    refusals: Mapping[str, Sequence[Refusal]],
    known: dict[BlockKey, RegionBlock],
    lessons: SupplyUpdates,
    timers: Timers,
    now: datetime,
) -> list[Change]:
    """One block per kind, however many members met it: the next VM would meet it as well. The same
    news again is written only now and then."""
    region = observed.region
    changes: list[Change] = []
    heard: dict[BlockKind, Refusal] = {}
    for refusal in (refusal for group in refusals.values() for refusal in group):
        heard.setdefault(refusal.kind, refusal)
    for kind, refusal in heard.items():
        key = (region, "", spec.offering, spec.spot, str(kind))
        before = known.get(key)
        block = learn(before, key, kind, refusal.message, timers, now)
        if before is not None and before.until == block.until and _is_same(before, block):
            continue
        known[key] = block
        changes.append(PutRegionBlock(block))
        if refusal.everywhere:
            changes += _block_everywhere(spec, block, known)
        if kind is BlockKind.STOCKOUT and (before is None or before.until != block.until):
            lessons.miss(region, refusal.zone)
            lessons.hints(region, refusal.zones_available)
    return changes


def _block_everywhere(
    spec: ClusterSpec, met: RegionBlock, known: dict[BlockKey, RegionBlock]
) -> list[Change]:
    """The other regions share what is spent: none of them is asked in vain."""
    others = [r.region for r in spec.regions if r.region != met.region]
    shared = [replace(met, region=region, zone=EVERYWHERE) for region in others]
    known |= {block.key: block for block in shared}
    return [PutRegionBlock(block) for block in shared]


def _is_same(before: RegionBlock, after: RegionBlock) -> bool:
    quiet_s = (after.last_seen - before.last_seen).total_seconds()
    return before.message == after.message and quiet_s < SAME_NEWS_S


def _missing(
    vm: Vm, unsettled: frozenset[str], failed_creates: Mapping[str, str], now: datetime
) -> Vm:
    never_seen = vm.never_seen
    if never_seen and vm.name in failed_creates:
        words = f"create failed: {failed_creates[vm.name]}"[:500]
        return advance_vm(vm, E.CREATE_FAILED, now, words)
    young = (now - vm.requested_at).total_seconds() < UNLISTED_AFTER_S
    if vm.name in unsettled or (never_seen and young):
        return vm  # its create call may still take effect
    if vm.queued:
        return advance_vm(vm, E.NOT_LISTED, now, "the group does not list it: its request is over")
    if vm.state.unseen:
        return advance_vm(vm, E.NOT_LISTED, now, "the group never listed it")
    if vm.state.deleting:
        return advance_vm(vm, E.NOT_LISTED, now, vm.reason or "deleted")
    taken = vm.taken or _may_be_taken(vm)
    return advance_vm(vm, E.NOT_LISTED, now, "the group does not list it any more", taken=taken)


def _may_be_taken(vm: Vm) -> bool:
    """Spot, or the end of the time that was asked for: the cloud's doing, not a loss. A v1 worker
    that has done its one job deletes its VM itself."""
    return (vm.spot and vm.kept_until is None) or bool(vm.together)


def _present(vm: Vm, member: ManagedInstance, refused: Sequence[Refusal], now: datetime) -> Vm:
    replaced = bool(vm.instance_id and member.instance_id) and vm.instance_id != member.instance_id
    facts: VmFacts = {}
    # A worker that deletes its VM without telling the group leaves a member with no machine.
    unmade = member.machine is MachineState.NONE and not member.instance_id
    vanished = vm.running_since is not None and unmade
    if replaced or vanished or member.machine is MachineState.OFF:
        # No worker lives on a machine that is off, or on one that is another by now; nor is it
        # billed any further.
        facts = {"boot_nonce": "", "stopped_at": vm.stopped_at or now}
    if vm.state.deleting:
        if member.machine is MachineState.RUNNING and not replaced:
            facts["running_since"] = vm.running_since or now  # too late to be used, not to be paid
        return with_facts(vm, **facts)
    if replaced:
        return advance_vm(vm, E.CLOUD_ENDED, now, "another machine took its name", **facts)
    if vanished:
        reason = "its machine was deleted, its group lists it"
        return advance_vm(vm, E.CLOUD_ENDED, now, reason, **facts)
    if member.machine.ending:
        facts["taken"] = vm.taken or _may_be_taken(vm)
        return advance_vm(vm, E.CLOUD_ENDED, now, _end_words(vm, member), **facts)
    return _alive(vm, member, refused, now)


def _end_words(vm: Vm, member: ManagedInstance) -> str:
    if not _may_be_taken(vm):
        return f"found {member.machine}"
    return f"taken by the cloud ({'spot' if vm.spot else 'the end of its run'})"


def _alive(vm: Vm, member: ManagedInstance, refused: Sequence[Refusal], now: datetime) -> Vm:
    facts = _facts(vm, member, now)
    facts["refused"] = bool(refused)
    # The group tries again for ever. For a stockout that is of use (the plan keeps one); the other
    # kinds do not heal by trying.
    hopeless = next((r.kind for r in refused if r.kind is not BlockKind.STOCKOUT), None)
    if hopeless is not None:
        reason = f"taken back: {hopeless} in {vm.region}"
        return advance_vm(vm, E.DELETE_ASKED, now, reason, **facts)
    if member.leaving is not None:
        reason = f"the group is {member.leaving} it"
        facts["taken"] = vm.taken or bool(vm.together)
        return advance_vm(vm, E.CLOUD_ENDED, now, reason, **facts)
    return advance_vm(vm, E.LISTED, now, "seen in its group", **facts)


def _facts(vm: Vm, member: ManagedInstance, now: datetime) -> VmFacts:
    running = member.machine is MachineState.RUNNING
    return {
        "zone": member.zone or vm.zone,
        "instance_id": member.instance_id or vm.instance_id,
        "running_since": vm.running_since or (now if running else None),
        "ends_at": member.terminates_at or vm.ends_at if vm.together else None,
    }


def learn(
    before: RegionBlock | None,
    key: BlockKey,
    kind: BlockKind,
    message: str,
    timers: Timers,
    now: datetime,
) -> RegionBlock:
    """One more sighting. While the block lasts it is the same news; after it, the next in a row."""
    region, zone, machine_type, spot, _ = key
    if before and before.blocks(now):
        return replace(before, last_seen=now, message=message)
    in_a_row = before.count + 1 if before and is_remembered(before, timers, now) else 1
    return RegionBlock(
        region=region,
        zone=zone,
        machine_type=machine_type,
        spot=spot,
        kind=kind,
        since=before.since if before and in_a_row > 1 else now,
        last_seen=now,
        until=now + timedelta(seconds=block_s(kind, in_a_row, timers)),
        count=in_a_row,
        message=message[:500],
    )


def block_s(kind: BlockKind, in_a_row: int, timers: Timers) -> float:
    """How long to leave a region alone: each kind heals in its own way."""
    match kind:
        case BlockKind.STOCKOUT:
            doubled = timers.stockout_block_s * 2.0 ** min(in_a_row - 1, 20)
            return min(doubled, timers.stockout_block_max_s)
        case BlockKind.QUOTA:
            return timers.quota_block_s
        case BlockKind.UNSUPPORTED:
            return timers.unsupported_block_s
        case BlockKind.ADDRESS_SPACE:
            return timers.address_block_s
        case BlockKind.UNREADY | BlockKind.UNCLAIMED:
            if in_a_row <= BAD_LUCK_MAX:
                return 0.0
            doubled = timers.boot_timeout_s * 2.0 ** min(in_a_row - BAD_LUCK_MAX - 1, 20)
            return min(doubled, timers.unready_block_max_s)
        case BlockKind.OTHER:
            doubled = timers.unknown_block_s * 2.0 ** min(in_a_row - 1, 20)
            return min(doubled, timers.permission_block_s)
        case BlockKind.PERMISSION | BlockKind.MISSING:
            return timers.permission_block_s


def _is_missing_no_more(block: RegionBlock, observed: MigSnapshot, spec: ClusterSpec) -> bool:
    return block.kind is BlockKind.MISSING and (block.region, block.machine_type) == (
        observed.region,
        spec.offering,
    )


def _blocks_at(vm: Vm, spec: ClusterSpec, known: Mapping[BlockKey, RegionBlock]) -> list[BlockKey]:
    """What a delivery there ends."""
    ended = ((key, t) for key, t in known.items() if t.kind not in NEVER_WORKS)
    return [key for key, t in ended if t.region == vm.region and t.concerns(spec)]
