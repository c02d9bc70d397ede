"""Record: what was seen and heard is folded into the rows and stored. The plan input follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from core.changes import Change, ForgetRegion, Snapshot
from core.demand import Demand
from core.mig import Leaving, MigSnapshot
from core.region_blocks import RegionBlock
from core.remaining import RunTimes
from core.vm import Vm
from orchestrator.planning.packing import packed
from orchestrator.planning.plan_input import BUSY, NO_ANSWER, PlanInput, at_work, demand_of
from orchestrator.reconcile.context import ClusterContext
from orchestrator.reconcile.group_alerts import Told, complaints, for_humans
from orchestrator.reconcile.observer import Observation, Observer
from orchestrator.reconcile.orphans import Orphans
from orchestrator.reconcile.reporter import StatusReporter
from orchestrator.supply.failed_boots import Evidence, heed, proofs
from orchestrator.supply.members import GroupObservation, failed_requests
from orchestrator.supply.observations import (
    ClusterRules,
    ClusterState,
    delivered,
    fold,
    refusals_met,
)

log = structlog.get_logger("orchestrator")


class Recorder:
    """Keeps the rows of one cluster true to what its groups show."""

    def __init__(
        self, context: ClusterContext, observer: Observer, reporter: StatusReporter
    ) -> None:
        self._context = context
        self._observer = observer
        self._reporter = reporter
        self._awaited: frozenset[str] = frozenset()
        """VMs that did not run yet when we looked last."""
        self._proofs: Mapping[str, datetime] = {}
        """Region → when the newest VM that has been READY there was asked for."""

    def awaits(self, uids: Iterable[str]) -> None:
        """VMs that were asked for just now."""
        self._awaited |= frozenset(uids)

    async def record(self, snapshot: Snapshot, fresh: Sequence[Observation]) -> PlanInput:
        """What was seen and heard, written down; then what to plan on."""
        found = self._news(snapshot, fresh)
        told, alerts = self._alerts(fresh, found.blocks, snapshot.now)
        changes = [*found.changes, *alerts, *self._forgotten(fresh, snapshot)]
        self._awaited = frozenset(vm.uid for vm in found.vms if vm.running_since is None)
        if not changes or await self._context.write([(change,) for change in changes]):
            self._context.complaints.told(told)
            self._observer.recorded(fresh)
        else:
            # Somebody was faster. What we folded is not what is stored, though its version may be
            # the same number: plan on the rows as they are, the next observation folds again.
            snapshot = await self._context.snapshot()
            found = ClusterState(
                tuple(snapshot.vms), tuple(snapshot.blocks), tuple(snapshot.supply)
            )
        return self._inputs(snapshot, found)

    def _rules(self, snapshot: Snapshot) -> ClusterRules:
        context = self._context
        return ClusterRules(context.spec, context.timers, context.settings.capacity, snapshot.now)

    def _news(self, snapshot: Snapshot, fresh: Sequence[Observation]) -> ClusterState:
        """Each look is folded once, over what the one before it left."""
        rules = self._rules(snapshot)
        vms = tuple(vm for vm in snapshot.vms if vm.counted)
        self._proofs = proofs(self._proofs, vms)
        unsure = self._observer.unsure_names(snapshot)
        found = ClusterState(vms, snapshot.blocks, snapshot.supply)
        found = self._observer.hints.heed(found, rules)
        found = delivered([vm for vm in vms if vm.uid in self._awaited], found, rules)
        for look in fresh:
            found = self._folded(look, found, unsure, snapshot)
        return heed(
            found, Evidence(snapshot.jobs, self._context.wiring.hears(), self._proofs), rules
        )

    def _folded(
        self, look: Observation, before: ClusterState, unsure: frozenset[str], snapshot: Snapshot
    ) -> ClusterState:
        """Only over what was written down before the look was taken: no clocks are compared. So
        the absence of a newer VM means nothing, nor that of the machine of one whose worker has
        spoken since."""
        context, known = self._context, look.known
        lines = [line for failed in look.failed for line in failed.lines(snapshot.now)]
        observed = replace(look.observed, errors=(*look.observed.errors, *lines))
        failed = {name: f.reason for f in look.failed for name in f.names}
        older = tuple(vm for vm in before.vms if vm.name in known and not look.is_outdated(vm))
        newer = tuple(vm for vm in before.vms if vm.name not in known or look.is_outdated(vm))
        seen = GroupObservation(observed, unsure | look.unsure, failed)
        folded = fold(seen, replace(before, vms=older), self._rules(snapshot))
        self._note_requests(observed, older, folded.vms)
        orphans = Orphans(context.spec, context.wiring.names, context.timers)
        adopted = orphans.adopt(observed, known, snapshot, context.wiring.ids)
        refusals = refusals_met(older, folded.vms, context.spec, folded.blocks, snapshot.now)
        return replace(folded, vms=(*folded.vms, *newer)).with_changes((*adopted, *refusals))

    def _note_requests(self, observed: MigSnapshot, vms: Sequence[Vm], after: Sequence[Vm]) -> None:
        """Where a request for several VMs at once has failed, or one came."""
        region, calls = observed.region, self._context.calls
        here = [vm for vm in vms if vm.region == region]
        for request in failed_requests(observed, here).values():
            why = "; ".join(refusal.message for refusal in request.refusals)
            calls.failed_together(region, f"{request.name} {request.state.lower()}: {why}")
        came = (b for a, b in zip(vms, after, strict=True) if a.running_since is None)
        if any(vm.together and vm.running_since and vm.region == region for vm in came):
            calls.came_together(region)

    def _alerts(
        self, fresh: Sequence[Observation], blocks: Sequence[RegionBlock], now: datetime
    ) -> tuple[dict[str, Told], list[Change]]:
        """By region what people are to know of it, and what of that is news."""
        context = self._context
        told: dict[str, Told] = {}
        news: list[Change] = []
        for look in {look.observed.region: look for look in fresh}.values():  # the newest of each
            observed = look.observed
            here = [t for t in blocks if t.region == observed.region and t.concerns(context.spec)]
            open_ = for_humans(here, context.timers, now)
            told[observed.region] = complaints(observed, look.known, open_)
            news += context.complaints.news(observed, told[observed.region], now)
        return told, news

    def _forgotten(self, fresh: Sequence[Observation], snapshot: Snapshot) -> list[Change]:
        """Withdrawn regions where nothing of ours was known, and nothing was seen either."""
        spec, places = self._context.spec, self._context.places
        still = places.abandoned(spec, snapshot)
        looks = (look.observed for look in fresh if look.abandoned)
        clear = [s.region for s in looks if s.region in still and places.is_clear(s)]
        for region in clear:
            log.info("withdrawn region is empty", cluster=spec.name, region=region)
            self._reporter.forget(region)
            places.forget(region)
            self._observer.forget(region)
        return [ForgetRegion(spec.name, region) for region in clear]

    def _inputs(self, snapshot: Snapshot, found: ClusterState) -> PlanInput:
        context, spec = self._context, self._context.spec
        snapshots = self._observer.snapshots.values()
        leaving = frozenset(
            member.name
            for observed in snapshots
            for member in observed.members
            if member.leaving is Leaving.DELETING
        )
        return PlanInput(
            spec=spec,
            demand=self._demand(snapshot),
            vms=tuple(vm for vm in found.vms if vm.counted),
            blocks=tuple(t for t in found.blocks if t.concerns(spec)),
            asked=leaving | context.names_in(snapshot, "delete", "unqueue"),
            quiet=dict.fromkeys(context.lanes.busy(), BUSY)
            | dict.fromkeys(context.calls.quiet(context.places.watched(spec, snapshot)), NO_ANSWER),
            refused={s.region: "; ".join(s.deadly) for s in snapshots if s.deadly},
            spurned=context.calls.spurned(region.region for region in spec.regions),
            supply=found.supply,
            arrivals=snapshot.arrivals.get(spec.name),
            policy=context.settings.capacity,
            at_work=at_work(snapshot.jobs, spec),
        )

    def _demand(self, snapshot: Snapshot) -> Demand:
        context = self._context
        spec, settings = context.spec, context.settings
        longest_s, typical_s = settings.timers.max_runtime_s, settings.capacity.typical_run_s
        runs = RunTimes(longest_s, typical_s, context.wiring.predicted)
        demand = demand_of(spec.name, snapshot.jobs, runs, context.admitted)
        return packed(demand, spec, snapshot.vms, snapshot.jobs) if spec.share else demand
