"""A region whose cloud refused a call is left alone for a while, and people are told."""

from __future__ import annotations

from datetime import datetime

from core.changes import PutRegionBlock
from core.errors import Forbidden, MigMissing, ZenError
from core.region_blocks import BlockKind, block_key
from orchestrator.reconcile.context import ClusterContext
from orchestrator.reconcile.group_alerts import BLOCK_ALERTS
from orchestrator.supply.blocks import learn

_KINDS: dict[type[ZenError], BlockKind] = {
    Forbidden: BlockKind.PERMISSION,
    MigMissing: BlockKind.MISSING,
}


async def block_region(
    context: ClusterContext, region: str, error: ZenError, now: datetime
) -> None:
    """Store the block, and the alert if it is news."""
    spec, kind = context.spec, _KINDS.get(type(error), BlockKind.OTHER)
    key = block_key(spec.supply_key(region), kind)
    before = None  # one that is seen at each look is renewed by each
    if kind is BlockKind.OTHER:
        before = next((t for t in (await context.snapshot()).blocks if t.key == key), None)
    block = learn(before, key, str(error), context.timers, now)
    mig = context.calls.mig(region).mig
    alert = BLOCK_ALERTS[kind].raised(mig, now, error=error)
    told = context.complaints.with_refusal(region, mig, alert.kind, alert.message)
    await context.write(
        [(PutRegionBlock(block),) if told is None else (PutRegionBlock(block), alert)]
    )
    if told is not None:
        context.complaints.told({region: told})
