"""What an observation means for the jobs whose VMs a region could not give. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from core.cluster import ClusterSpec
from core.region_blocks import RegionBlock, block_on
from core.vm import Vm
from core.waits import WaitKind, WaitNote


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
