"""What the parts of a manager share: the configuration, the rows, the way to the cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from config.live import LiveSettings
from core.changes import AtomicBatch, PutRegionBlock, Snapshot
from core.cluster import ClusterSpec
from core.errors import Forbidden, MigMissing, ZenError
from core.job import Job
from core.names import Names
from core.ports import CapacityAdvice, Clock, Ids, Store
from core.region_blocks import BlockKind, block_key
from core.remaining import nothing_predicted
from core.timers import Timers
from migs.manager import MigManager
from orchestrator.reconcile.calls import CloudCalls
from orchestrator.reconcile.group_alerts import BLOCK_ALERTS, Complaints
from orchestrator.reconcile.region_tasks import Lanes
from orchestrator.reconcile.regions import ClusterRegions
from orchestrator.supply.blocks import learn

log = structlog.get_logger("orchestrator")
_BLOCKED_BY: dict[type[ZenError], BlockKind] = {
    Forbidden: BlockKind.PERMISSION,
    MigMissing: BlockKind.MISSING,
}


@dataclass(frozen=True, slots=True)
class Wiring:
    """What every manager shares."""

    store: Store
    names: Names
    settings: LiveSettings
    ids: Ids
    clock: Clock
    term: Callable[[], int]
    """The term we lead under; raises TermPassed when we do not lead."""
    mig_of: Callable[[str, str], MigManager]
    """The group of (cluster, region)."""
    on_cloud_call: Callable[[str, str], None]
    predicted: Callable[[Job], float | None] = nothing_predicted
    """What jobs like it run for; None: none like it has ended."""
    advice_of: Callable[[ClusterSpec], CapacityAdvice | None] = lambda _: None
    """What a cluster's cloud says about its own chances; None: nothing."""
    hears: Callable[[], bool] = lambda: True
    """Whether workers can be heard: a VM that is silent while they cannot is not at fault."""


class ClusterContext:
    """One cluster as the reconcile under way sees it."""

    def __init__(self, spec: ClusterSpec, wiring: Wiring, driven: Iterable[str]) -> None:
        """`driven`: regions that a former leader may have left something in."""
        self.spec = spec
        self.wiring = wiring
        self.settings = wiring.settings.current
        """Of the reconcile under way."""
        self.admitted: Sequence[str] = ()
        """Uids of jobs in the order of the last admission."""
        name = spec.name
        self.calls = CloudCalls(
            lambda region: wiring.mig_of(name, region), wiring.clock, wiring.on_cloud_call
        )
        self.lanes = Lanes(name)
        self.places = ClusterRegions(wiring.names, driven)
        self.complaints = Complaints()

    def adopt_configuration(self) -> list[str]:
        """Regions that the newest configuration withdraws."""
        before = self.places.withdrawn(self.spec)
        self.spec, self.settings = self.newest_spec, self.wiring.settings.current
        return [region for region in self.places.withdrawn(self.spec) if region not in before]

    @property
    def newest_spec(self) -> ClusterSpec:
        """As configured at this moment: a limit may have been lowered since the plan was made. A
        cluster that left the configuration gets nothing more: what it still has is drained."""
        for spec in self.wiring.settings.current.clusters:
            if spec.name == self.spec.name:
                return spec
        return replace(self.spec, vm_max=0, vm_min=0, regions=())

    @property
    def timers(self) -> Timers:
        """The spans of time that fit the workers of this cluster."""
        return self.settings.timers.of_worker(self.spec.worker)

    async def snapshot(self) -> Snapshot:
        """What lives of this cluster."""
        return (await self.wiring.store.snapshot(queue_limit=0)).only(self.spec.name)

    async def write(self, batches: Sequence[AtomicBatch]) -> bool:
        """Whether everything was applied."""
        outcome = await self.wiring.store.commit(batches, self.wiring.term())
        for index, guard in outcome.refusals.items():
            log.info("write refused", cluster=self.spec.name, guard=str(guard), batch=index)
        return outcome.all_applied

    async def block_region(self, region: str, error: ZenError, now: datetime) -> None:
        """A region whose cloud refused a call is left alone for a while; people are told, if it is
        news."""
        kind = _BLOCKED_BY.get(type(error), BlockKind.OTHER)
        key = block_key(self.spec.supply_key(region), kind)
        before = None  # one that is seen at each look is renewed by each
        if kind is BlockKind.OTHER:
            before = next((t for t in (await self.snapshot()).blocks if t.key == key), None)
        block = PutRegionBlock(learn(before, key, str(error), self.timers, now))
        mig = self.calls.mig(region).mig
        alert = BLOCK_ALERTS[kind].raised(mig, now, error=error)
        told = self.complaints.with_refusal(region, mig, alert.kind, alert.message)
        await self.write([(block,) if told is None else (block, alert)])
        if told is not None:
            self.complaints.told({region: told})

    def names_in(self, snapshot: Snapshot, *kinds: str) -> frozenset[str]:
        """VMs of calls of these kinds that have no answer yet."""
        asked = (r for r in snapshot.requests if r.kind in kinds and r.cluster == self.spec.name)
        return frozenset(name for request in asked for name in request.names)
