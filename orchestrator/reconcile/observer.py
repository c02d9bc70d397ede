"""Observe: which regions are due, what they show, and what was known when they were asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from core.changes import Snapshot
from core.errors import MigMissing, ZenError
from core.mig import GroupError, MigSnapshot, Refusal
from core.vm import Vm
from orchestrator.reconcile.context import ClusterContext
from orchestrator.supply.advice import Hints
from orchestrator.supply.members import UNLISTED_AFTER_S


@dataclass(frozen=True, slots=True)
class FailedCreate:
    """A create call that the cloud accepted and then failed."""

    names: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    reason: str

    def lines(self, now: datetime) -> Iterator[GroupError]:
        """As the group itself would tell of its members."""
        return (GroupError(now, self.names[0], refusal) for refusal in self.refusals)


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation, with what we knew when it was asked for: it may be answered much later."""

    observed: MigSnapshot
    known: frozenset[str]
    """VMs that were written down by then; the absence of any other means nothing."""
    ran: frozenset[str]
    """VMs that were known to run by then. Of one that has begun to since, it is the older news."""
    unsure: frozenset[str]
    """VMs whose create call had no answer by then, or only just: their absence neither."""
    abandoned: bool = False
    """The region was withdrawn by then, with nothing of ours known there."""
    failed: tuple[FailedCreate, ...] = ()
    """Create calls that had failed by then after they were accepted."""

    def is_outdated(self, vm: Vm) -> bool:
        return vm.running_since is not None and vm.name not in self.ran


class Observer:
    """Looks at the regions of one cluster, each as often as it is worth."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self.hints = Hints(context.wiring.advice_of(context.spec))
        self._looks: list[Observation] = []
        self._observed: dict[str, MigSnapshot] = {}
        self._observed_at: dict[str, float] = {}
        self._accepted_at: dict[str, float] = {}
        self._failed_creates: dict[str, tuple[FailedCreate, ...]] = {}
        """By region: the ones that the next look there makes final."""

    @property
    def snapshots(self) -> Mapping[str, MigSnapshot]:
        """Region → the newest observation."""
        return self._observed

    @property
    def awaits_answers(self) -> bool:
        """A region has not answered within the reconcile, or has since: the next one hears it."""
        return bool(self._looks) or bool(self._context.lanes.busy())

    async def observe_due(self, snapshot: Snapshot) -> list[Observation]:
        """All regions at once; a slow one holds only itself, and is heard when it has answered."""
        context = self._context
        context.complaints.remember(snapshot.open_alerts)
        busy = context.lanes.busy()
        abandoned = context.places.abandoned(context.spec, snapshot)
        for region in context.places.watched(context.spec, snapshot):
            if region not in busy and self._is_due(region, snapshot):
                look = self._look(region, snapshot, abandoned=region in abandoned)
                context.lanes.start(region, look)
                self._ask_advice(region, busy)
        await context.lanes.settle()
        fresh, self._looks = self._looks, []
        self._observed.update({look.observed.region: look.observed for look in fresh})
        return fresh

    def unsure_names(self, snapshot: Snapshot) -> frozenset[str]:
        """VMs that may not be listed yet: their create call has no answer, or only just. One whose
        zone or machine was seen has been listed: if it is missing now, it is gone. A refused one
        that was reclaimed must not hold the limit."""
        since = self._context.wiring.clock.monotonic() - UNLISTED_AFTER_S
        self._accepted_at = {n: at for n, at in self._accepted_at.items() if at > since}
        seen = {vm.name for vm in snapshot.vms if vm.zone or vm.instance_id}
        lately = self._accepted_at.keys() - seen
        return self._context.names_in(snapshot, "create", "queue") | lately

    def look_again(self, regions: Iterable[str]) -> None:
        """They are due at once."""
        for region in regions:
            self._observed_at.pop(region, None)

    def accepted(self, names: Iterable[str]) -> None:
        """The cloud has accepted to create them."""
        self._accepted_at.update(dict.fromkeys(names, self._context.wiring.clock.monotonic()))

    def failed(self, region: str, create: FailedCreate) -> None:
        """The next look at the region makes it final."""
        self._failed_creates[region] = (*self._failed_creates.get(region, ()), create)

    def recorded(self, looks: Sequence[Observation]) -> None:
        """What these looks made final is stored."""
        for look in looks:
            region = look.observed.region
            left = [f for f in self._failed_creates.get(region, ()) if f not in look.failed]
            self._failed_creates[region] = tuple(left)

    def forget(self, region: str) -> None:
        """Nothing of ours is left there."""
        self._observed.pop(region, None)

    def _ask_advice(self, region: str, busy: frozenset[str]) -> None:
        """In a lane of its own: a cloud that is slow to advise can still be asked for VMs."""
        lane, spec = f"advice on {region}", self._context.spec
        if lane not in busy and self.hints.wanted(spec, region):
            self._context.lanes.start(lane, self.hints.ask(spec, region))

    async def _look(self, region: str, snapshot: Snapshot, *, abandoned: bool) -> None:
        known = frozenset(vm.name for vm in snapshot.vms)
        ran = frozenset(vm.name for vm in snapshot.vms if vm.running_since is not None)
        unsure = self.unsure_names(snapshot)
        failed = self._failed_creates.get(region, ())
        observed = await self._observe(region, snapshot, abandoned=abandoned)
        if observed is not None:
            self._looks.append(Observation(observed, known, ran, unsure, abandoned, failed))

    def _is_due(self, region: str, snapshot: Snapshot) -> bool:
        last = self._observed_at.get(region)
        if last is None:
            return True
        timers = self._context.timers
        in_motion = any(vm.region == region for vm in snapshot.vms)
        pace = timers.observe_s if in_motion else timers.observe_idle_s
        return self._context.wiring.clock.monotonic() - last >= pace

    async def _observe(
        self, region: str, snapshot: Snapshot, *, abandoned: bool
    ) -> MigSnapshot | None:
        context, now = self._context, snapshot.now
        # Requests for several VMs at once are asked after only while one is open.
        requests = any(vm.queued and vm.region == region for vm in snapshot.vms)
        seen = await context.calls.observe(region, requests=requests)
        if abandoned and isinstance(seen, MigMissing):
            mig = context.calls.mig(region).mig  # deleted once nobody needed it: it holds nothing
            return MigSnapshot(mig, context.spec.name, region, 0, True, (), now)
        if seen is not None:
            self._observed_at[region] = context.wiring.clock.monotonic()
        if isinstance(seen, ZenError):
            await context.block_region(region, seen, now)
            return None
        return seen
