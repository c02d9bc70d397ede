"""Region blocks: how long each kind lasts, and what makes one longer. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from core.region_blocks import (
    BAD_LUCK_MAX,
    BlockKey,
    BlockKind,
    RegionBlock,
    first_seen,
    is_remembered,
)
from core.timers import Timers

# How often the same refusal is written down again while its block lasts.
SAME_NEWS_S = 60.0


def learn(
    before: RegionBlock | None, key: BlockKey, message: str, timers: Timers, now: datetime
) -> RegionBlock:
    """One more sighting. While the block lasts it is the same news; after it, the next in a row."""
    if before and before.blocks(now):
        return replace(before, last_seen=now, message=message)
    new = first_seen(key, now)
    in_a_row = before.count + 1 if before and is_remembered(before, timers, now) else 1
    return replace(
        new,
        since=before.since if before and in_a_row > 1 else now,
        until=now + timedelta(seconds=block_s(new.kind, in_a_row, timers)),
        count=in_a_row,
        message=message[:500],
    )


def is_same_news(before: RegionBlock, after: RegionBlock) -> bool:
    """Whether nothing but time has passed, and not much of it."""
    quiet_s = (after.last_seen - before.last_seen).total_seconds()
    same = before.until == after.until and before.message == after.message
    return same and quiet_s < SAME_NEWS_S


def block_s(kind: BlockKind, in_a_row: int, timers: Timers) -> float:
    """How long to leave a region alone: each kind heals in its own way."""
    match kind:
        case BlockKind.STOCKOUT:
            doubled = timers.stockout_block_s * 2.0 ** min(in_a_row - 1, 20)
            return min(doubled, timers.stockout_block_max_s)
        case BlockKind.QUOTA:
            return timers.quota_block_s
        case BlockKind.UNSUPPORTED:
            return timers.unsupported_block_s
        case BlockKind.ADDRESS_SPACE:
            return timers.address_block_s
        case BlockKind.UNREADY | BlockKind.UNCLAIMED:
            if in_a_row <= BAD_LUCK_MAX:
                return 0.0
            doubled = timers.boot_timeout_s * 2.0 ** min(in_a_row - BAD_LUCK_MAX - 1, 20)
            return min(doubled, timers.unready_block_max_s)
        case BlockKind.OTHER:
            doubled = timers.unknown_block_s * 2.0 ** min(in_a_row - 1, 20)
            return min(doubled, timers.permission_block_s)
        case BlockKind.PERMISSION | BlockKind.MISSING:
            return timers.permission_block_s
