"""ClusterManager: one cluster over all its regions. Observe, record, plan, report, act."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.cluster import ClusterSpec
from orchestrator.planning.plan import plan_cluster
from orchestrator.reconcile.applier import Applier
from orchestrator.reconcile.context import ClusterContext, Wiring
from orchestrator.reconcile.observer import Observer
from orchestrator.reconcile.recorder import Recorder
from orchestrator.reconcile.reporter import StatusReporter


class ClusterManager:
    """Owns one cluster. `reconcile()` is never run twice at once (the orchestrator sees to it).
    It takes over new settings before it plans; one that has planned already ends its actions, but
    grows no further than the new limit."""

    def __init__(self, spec: ClusterSpec, wiring: Wiring, driven: Iterable[str] = ()) -> None:
        """`driven`: regions that a former leader may have left something in."""
        self._context = ClusterContext(spec, wiring, driven)
        self._observer = Observer(self._context)
        self._reporter = StatusReporter(self._context, self._observer)
        self._recorder = Recorder(self._context, self._observer, self._reporter)
        self._applier = Applier(self._context, self._observer, self._recorder)

    @property
    def spec(self) -> ClusterSpec:
        """As the last reconcile knew it."""
        return self._context.spec

    @property
    def awaits_answers(self) -> bool:
        """A region has not answered within the reconcile, or has since: the next one hears it."""
        return self._observer.awaits_answers

    def set_admission_order(self, uids: Sequence[str]) -> None:
        """The order in which the scheduler admitted the cluster's jobs: the order of its demand."""
        self._context.admitted = uids

    async def reconcile(self) -> None:
        """The next one repeats whatever did not come through."""
        self._adopt_configuration()
        snapshot = await self._context.snapshot()
        await self._applier.repeat_unsettled(snapshot)
        fresh = await self._observer.observe_due(snapshot)
        self._adopt_configuration()
        snapshot = await self._context.snapshot()
        inputs = await self._recorder.record(snapshot, fresh)
        names, ids = self._context.wiring.names, self._context.wiring.ids
        actions = plan_cluster(inputs, names, self._context.timers, ids, snapshot.now)
        await self._reporter.report(inputs, actions, snapshot.now)
        await self._applier.apply(actions, inputs, snapshot.now)

    async def close(self) -> None:
        """End what is still under way in slow regions."""
        await self._context.lanes.close()

    def _adopt_configuration(self) -> None:
        self._observer.look_again(self._context.adopt_configuration())
