"""Where VMs came up and never got to work, one is tried before all others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from operator import attrgetter

from core.region_blocks import Trouble
from core.timers import Timers
from core.vm import VmState
from orchestrator.planning.plan_input import Picture

V = VmState


def on_trial(picture: Picture, timers: Timers, now: datetime) -> dict[str, int]:
    """Regions whose block is over and where nothing has worked since → VMs there that are to show
    whether it does now. One that is READY and waits for others of its gang keeps nobody."""
    faults = sorted(_faults(picture, timers, now), key=attrgetter("until"))
    ends = {t.region: t.until for t in faults if not t.blocks(now)}
    if not ends:
        return {}
    new = [
        vm
        for vm in picture.vms
        if vm.region in ends and vm.requested_at >= ends[vm.region] and vm.state is not V.DELETING
    ]
    waits = {vm.region for vm in new if vm.idle}
    tried = Counter(vm.region for vm in new)
    return {region: tried[region] for region in ends if region not in waits}


def trial_ends(picture: Picture, timers: Timers, now: datetime) -> Iterator[datetime]:
    """When what is known is forgotten."""
    memory = timedelta(seconds=timers.stockout_memory_s)
    faults = _faults(picture, timers, now)
    return (max(trouble.last_seen, trouble.until) + memory for trouble in faults)


def _faults(picture: Picture, timers: Timers, now: datetime) -> list[Trouble]:
    return [
        trouble
        for trouble in picture.troubles
        if trouble.is_fault
        and trouble.concerns(picture.spec)
        and is_remembered(trouble, timers, now)
    ]


def is_remembered(trouble: Trouble, timers: Timers, now: datetime) -> bool:
    """Whether what comes next is the next in a row. Nothing can come while a block stands."""
    last = max(trouble.last_seen, trouble.until) if trouble.is_fault else trouble.last_seen
    return now - last < timedelta(seconds=timers.stockout_memory_s)
