"""Report: the status of each region, and why the first jobs that wait were given no VM."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from core.actions import Action, CloudCall, NoAction
from core.changes import Change, PutRegionStatus, RegionStatus
from core.region_blocks import block_on
from core.waits import WaitKind, WaitNote, WaitNotes
from orchestrator.planning.plan_input import PlanInput
from orchestrator.reconcile.context import ClusterContext
from orchestrator.reconcile.observer import Observer
from orchestrator.reconcile.regions import WATCHED


class StatusReporter:
    """Writes what people see of one cluster's regions, as far as it is news."""

    def __init__(self, context: ClusterContext, observer: Observer) -> None:
        self._context = context
        self._observer = observer
        self._said: dict[str, RegionStatus] = {}
        self._waits = WaitNotes()
        """What the jobs that wait for this cluster meet."""

    async def report(self, inputs: PlanInput, actions: Sequence[Action], now: datetime) -> None:
        """The next leader knows by a stored status where we may have VMs: so it is stored before
        anything is asked for in a region."""
        context = self._context
        reasons = {r.region: _why(r.region, inputs, actions, now) for r in context.spec.regions}
        reasons |= dict.fromkeys(context.places.withdrawn(context.spec), WATCHED)
        statuses = [self._status(region, why) for region, why in reasons.items()]
        said = {status.region: status for status in statuses if self._is_news(status)}
        news: list[Change] = [PutRegionStatus(status) for status in said.values()]
        news += self._not_asked(actions, now)
        held = {*reasons, *(vm.region for vm in inputs.vms)}
        ended = context.complaints.others(held)  # withdrawn, and empty by now
        for region in ended:
            news += context.complaints.end(region, context.calls.mig(region).mig, now)
        if news:
            await context.write([tuple(news)])
        context.complaints.forget(ended)
        self._said |= said
        context.places.drive(context.spec.regions)

    def forget(self, region: str) -> None:
        """If it comes back, its status must be stored again."""
        self._said.pop(region, None)

    def _not_asked(self, actions: Sequence[Action], now: datetime) -> list[WaitNote]:
        """For the first jobs that found no region: why each region was not asked."""
        holds = [action for action in actions if isinstance(action, NoAction)]
        found = {(uid, hold.region): hold.reason for hold in holds for uid in hold.jobs}
        self._waits.stands(found, WaitKind.NOT_ASKED, now)
        return self._waits.take(now)

    def _status(self, region: str, why: str) -> RegionStatus:
        seen = self._observer.snapshots.get(region)
        size, at = (seen.target_size, seen.observed_at) if seen is not None else (0, None)
        return RegionStatus(self._context.spec.name, region, size, why, at)

    def _is_news(self, status: RegionStatus) -> bool:
        before = self._said.get(status.region)
        if before is None:
            return True
        return (before.why, before.target_size) != (status.why, status.target_size)


def _why(region: str, inputs: PlanInput, actions: Sequence[Action], now: datetime) -> str:
    for action in actions:
        if isinstance(action, CloudCall | NoAction) and action.region in (region, ""):
            return action.reason
    block = block_on(inputs.blocks, inputs.spec, region, now)
    return f"{block.words}: {block.message}" if block is not None else ""
