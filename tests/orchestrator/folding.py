"""fold() with what most tests leave out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from core.cluster import ClusterSpec
from core.mig import MigSnapshot
from core.region_blocks import RegionBlock
from core.supply import CapacityPolicy, SupplyHistory
from core.timers import Timers
from core.vm import Vm
from orchestrator.supply.members import GroupObservation
from orchestrator.supply.observations import ClusterRules, ClusterState, fold


def rules(spec: ClusterSpec, now: datetime) -> ClusterRules:
    """With the usual timers and policy."""
    return ClusterRules(spec, Timers(), CapacityPolicy(), now)


def fold_in(
    seen: MigSnapshot,
    spec: ClusterSpec,
    vms: Sequence[Vm],
    now: datetime,
    *,
    blocks: tuple[RegionBlock, ...] = (),
    supply: tuple[SupplyHistory, ...] = (),
    unsettled: frozenset[str] = frozenset(),
) -> ClusterState:
    """What is known after one look at one group."""
    before = ClusterState(tuple(vms), blocks, supply)
    return fold(GroupObservation(seen, unsettled), before, rules(spec, now))
