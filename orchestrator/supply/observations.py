"""What an observation means for the VMs we know and for what we know of a region. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from core.changes import Change, DropRegionBlock, PutRegionBlock, VmMove
from core.cluster import ClusterSpec
from core.mig import GroupError, MachineState, MigSnapshot, Queued, QueueState, Refusal
from core.region_blocks import (
    EVERYWHERE,
    NEVER_WORKS,
    BlockKey,
    BlockKind,
    RegionBlock,
    block_key,
    block_on,
)
from core.supply import RECLAIMED_SHARE, CapacityPolicy, SupplyHistory, SupplyOutcome
from core.timers import Timers
from core.vm import Vm
from core.waits import WaitKind, WaitNote
from orchestrator.supply.blocks import is_same_news, learn
from orchestrator.supply.learning import SupplyUpdates
from orchestrator.supply.members import (
    GroupObservation,
    after_failed_request,
    failed_requests,
    missing,
    present,
    still_waits,
)


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """A cluster as configured, at one moment."""

    spec: ClusterSpec
    timers: Timers
    policy: CapacityPolicy
    now: datetime

    def lessons(self, known: Iterable[SupplyHistory]) -> SupplyUpdates:
        return SupplyUpdates(self.spec, known, self.policy, self.now)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What is known of a cluster, and what of it is still to be written."""

    vms: tuple[Vm, ...]
    blocks: tuple[RegionBlock, ...]
    supply: tuple[SupplyHistory, ...] = ()
    changes: tuple[Change, ...] = ()

    def with_changes(self, changes: Iterable[Change]) -> ClusterState:
        """These are to be written as well."""
        return replace(self, changes=(*self.changes, *changes))


class _Blocks:
    """Region blocks as an observation changes them."""

    def __init__(self, blocks: Iterable[RegionBlock], rules: ClusterRules) -> None:
        self._known = {block.key: block for block in blocks}
        self._rules = rules
        self.changes: list[Change] = []

    @property
    def known(self) -> Mapping[BlockKey, RegionBlock]:
        return self._known

    def put(self, block: RegionBlock) -> None:
        self._known[block.key] = block
        self.changes.append(PutRegionBlock(block))

    def group_seen(self, region: str) -> None:
        """A group that is observed is not missing any more."""
        self._end(region, lambda t: t.kind is BlockKind.MISSING)

    def delivered(self, vm: Vm) -> None:
        """A delivery ends what blocks its region, but for VMs that never get to work."""
        self._end(vm.region, lambda t: t.kind not in NEVER_WORKS)

    def refused(self, region: str, refusal: Refusal, lessons: SupplyUpdates) -> None:
        """The next VM would meet it as well. The same news again is written only now and then."""
        spec, kind = self._rules.spec, refusal.kind
        key = block_key(spec.supply_key(region), kind)
        before = self._known.get(key)
        block = learn(before, key, refusal.message, self._rules.timers, self._rules.now)
        if before is not None and is_same_news(before, block):
            return
        self.put(block)
        if refusal.everywhere:  # the other regions share what is spent: none is asked in vain
            for other in (r.region for r in spec.regions if r.region != region):
                self.put(replace(block, region=other, zone=EVERYWHERE))
        if kind is BlockKind.STOCKOUT and (before is None or before.until != block.until):
            lessons.miss(region, refusal.zone)
            lessons.hints(region, refusal.zones_available)

    def _end(self, region: str, ends: Callable[[RegionBlock], bool]) -> None:
        """Blocks of the cluster in the region that this ends."""
        here = [t for t in self._known.values() if t.region == region]
        for block in here:
            if block.concerns(self._rules.spec) and ends(block):
                del self._known[block.key]
                self.changes.append(DropRegionBlock(block.key))


def fold(seen: GroupObservation, before: ClusterState, rules: ClusterRules) -> ClusterState:
    """Compare one group with our rows for its region."""
    observed, now = seen.observed, rules.now
    members = {member.name: member for member in observed.members}
    blocks = _Blocks(before.blocks, rules)
    lessons = rules.lessons(before.supply)
    blocks.group_seen(observed.region)
    here = [vm for vm in before.vms if vm.region == observed.region]
    failed = failed_requests(observed, here)
    refusals = _refusals(observed, here) | {name: _final(failed[name]) for name in failed}
    refusals[""] = tuple(line.refusal for line in _untold(observed, here, blocks, before, rules))
    after: list[Vm] = []
    for vm in before.vms:
        # Two looks at a slow region may come together: what the first found gone stays so.
        if vm.region != observed.region or vm.state.gone:
            after.append(vm)
            continue
        member = members.get(vm.name)
        if vm.queued and vm.together in failed:
            known = after_failed_request(vm, failed[vm.together], member, now)
        elif vm.queued and still_waits(vm, member, observed):
            known = vm
        elif member is None:
            known = missing(vm, seen, now)
        else:
            known = present(vm, member, refusals.get(vm.name, ()), now)
        if known.running_since is not None and vm.running_since is None:
            lessons.hit(known)
            blocks.delivered(known)
        if known.state.gone:
            lessons.gone(known)
        if known is not vm:
            blocks.changes.append(VmMove(vm, known))
        after.append(known)
    # After the deliveries: a region that gave some and refused others has no more to give.
    told = len(blocks.changes)
    for refusal in _one_of_each_kind(refusals):
        blocks.refused(observed.region, refusal, lessons)
    if rules.spec.spot:
        _learn_shortage(observed.region, before.vms, after, blocks.changes[told:], lessons)
    changes = (*before.changes, *blocks.changes, *lessons.changes)
    return ClusterState(tuple(after), tuple(blocks.known.values()), lessons.supply, changes)


def delivered(awaited: Iterable[Vm], before: ClusterState, rules: ClusterRules) -> ClusterState:
    """Of VMs that were awaited: those whose worker spoke before anybody saw them run. Their places
    have delivered, too."""
    blocks, lessons = _Blocks(before.blocks, rules), rules.lessons(before.supply)
    for vm in (vm for vm in awaited if vm.running_since is not None):
        lessons.hit(vm)
        blocks.delivered(vm)
    changes = (*before.changes, *blocks.changes, *lessons.changes)
    return ClusterState(before.vms, tuple(blocks.known.values()), lessons.supply, changes)


def _one_of_each_kind(refusals: Mapping[str, Sequence[Refusal]]) -> Iterable[Refusal]:
    """There is one block per kind, however many members met it."""
    heard: dict[BlockKind, Refusal] = {}
    for refusal in (refusal for group in refusals.values() for refusal in group):
        heard.setdefault(refusal.kind, refusal)
    return heard.values()


def _learn_shortage(
    region: str,
    before: Sequence[Vm],
    after: Sequence[Vm],
    heard: Iterable[Change],
    lessons: SupplyUpdates,
) -> None:
    """The place took VMs back, or refused one more."""
    taken = _reclaimed(before, after)
    kept = _kept(after, region)
    if taken and len(taken) >= RECLAIMED_SHARE * (len(taken) + kept):
        lessons.took(region, max(taken))
    if taken or _is_stockout(heard):
        lessons.short(region, kept)


def _is_stockout(heard: Iterable[Change]) -> bool:
    """Whether one was heard of that is news."""
    blocks = [change.block for change in heard if isinstance(change, PutRegionBlock)]
    return any(t.kind is BlockKind.STOCKOUT for t in blocks)


def _reclaimed(before: Iterable[Vm], after: Iterable[Vm]) -> list[datetime]:
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
    vms: Iterable[Vm],
    blocks: _Blocks,
    before: ClusterState,
    rules: ClusterRules,
) -> list[GroupError]:
    """What the group remembers of members that are gone and could not be made, without what has
    been heard before, or was overtaken by a delivery: a new leader reads the whole past."""
    if not observed.errors:
        return []
    place = rules.spec.supply_key(observed.region)
    heard = {t.kind: t.last_seen for t in blocks.known.values() if t.place == place}
    bad = (SupplyOutcome.MISS, SupplyOutcome.RECLAIMED)
    good = [e.last_at for e in before.supply if e.place == place and e.last not in bad]
    good += [vm.running_since for vm in vms]
    since = max((at for at in good if at is not None), default=None)
    return [
        line
        for line in observed.errors
        if (since is None or line.at > since)
        and ((last := heard.get(line.refusal.kind)) is None or line.at > last)
    ]


def _final(request: Queued) -> tuple[Refusal, ...]:
    """Why it failed."""
    if request.state is not QueueState.FAILED:
        return ()
    unknown = Refusal(BlockKind.OTHER, "the request failed, the cloud gives no reason")
    return request.refusals or (unknown,)


def _placed(refusal: Refusal, zone: str) -> Refusal:
    return refusal if refusal.zone else replace(refusal, zone=zone)


def refusals_met(
    before: Sequence[Vm],
    after: Sequence[Vm],
    spec: ClusterSpec,
    blocks: Sequence[RegionBlock],
    now: datetime,
) -> Iterator[WaitNote]:
    """One for each VM that a job asked for and that was refused, or went before it ran."""
    for old, new in zip(before, after, strict=True):
        if old is new or new.caused_by is None or not old.state.in_flight:
            continue
        gone = new.state.gone and old.running_since is None
        if not gone and (old.refused or not new.refused):
            continue
        block = block_on(blocks, spec, new.region, now)
        words = f"{block.kind}: {block.message}" if block is not None else new.reason
        yield WaitNote(new.caused_by, WaitKind.REFUSAL, new.region, words, now)
