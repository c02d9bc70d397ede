"""Where VMs came up and never got to work, one is tried before all others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from operator import attrgetter

from core.region_blocks import RegionBlock, is_remembered
from core.timers import Timers
from orchestrator.planning.plan_input import PlanInput


def unproven(inputs: PlanInput, timers: Timers, now: datetime) -> dict[str, int]:
    """Regions whose block is over and where nothing has worked since → VMs there that are to show
    whether it does now. One that is READY and waits for others of its gang keeps nobody."""
    faults = sorted(_faults(inputs, timers, now), key=attrgetter("until"))
    ends = {t.region: t.until for t in faults if not t.blocks(now)}
    if not ends:
        return {}
    new = [
        vm
        for vm in inputs.vms
        if vm.region in ends and vm.requested_at >= ends[vm.region] and not vm.state.deleting
    ]
    waits = {vm.region for vm in new if vm.idle}
    tried = Counter(vm.region for vm in new)
    return {region: tried[region] for region in ends if region not in waits}


def proof_ends(inputs: PlanInput, timers: Timers, now: datetime) -> Iterator[datetime]:
    """When what is known is forgotten."""
    memory = timedelta(seconds=timers.stockout_memory_s)
    faults = _faults(inputs, timers, now)
    return (max(block.last_seen, block.until) + memory for block in faults)


def _faults(inputs: PlanInput, timers: Timers, now: datetime) -> list[RegionBlock]:
    return [
        block
        for block in inputs.blocks
        if block.is_fault and block.concerns(inputs.spec) and is_remembered(block, timers, now)
    ]
