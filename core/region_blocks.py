"""Region blocks: what keeps a region from delivering VMs, and until when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from core.cluster import ClusterSpec, SupplyKey
from core.timers import Timers


class BlockKind(StrEnum):
    """What keeps a region from delivering; each has its own waiting time."""

    STOCKOUT = "stockout"
    QUOTA = "quota"
    UNSUPPORTED = "unsupported"
    ADDRESS_SPACE = "address_space"
    PERMISSION = "permission"
    MISSING = "missing"
    """The group does not exist: a configuration fault."""
    UNREADY = "unready"
    """VMs come up, are paid for, and their workers never say READY."""
    UNCLAIMED = "unclaimed"
    """Workers say READY, are given a job, and never claim it."""
    OTHER = "other"


EVERYWHERE = "global"

NEVER_WORKS = frozenset({BlockKind.UNREADY, BlockKind.UNCLAIMED})
"""The cloud has delivered, in vain: that a VM runs does not end these, that one works does."""

BAD_LUCK_MAX = 2
"""So many VMs in a row that never get to work are bad luck; the next one is a fault of the place as
it is set up, and blocks it."""


class BlockKey(NamedTuple):
    """A supply key and a kind: there is one block for each."""

    region: str
    zone: str
    offering: str
    spot: bool
    kind: str


@dataclass(frozen=True, slots=True)
class RegionBlock:
    """Typed, durable, decaying knowledge about one (region, zone, machine type, spot)."""

    region: str
    zone: str
    """Empty: the whole region. EVERYWHERE: it was met in another region, and holds for all."""
    machine_type: str
    spot: bool
    kind: BlockKind
    since: datetime
    last_seen: datetime
    until: datetime
    count: int
    """How many times in a row; the block doubles with it."""
    message: str

    @property
    def place(self) -> SupplyKey:
        return SupplyKey(self.region, self.zone, self.machine_type, self.spot)

    @property
    def key(self) -> BlockKey:
        return BlockKey(self.region, self.zone, self.machine_type, self.spot, str(self.kind))

    def blocks(self, now: datetime) -> bool:
        return now < self.until

    def concerns(self, spec: ClusterSpec) -> bool:
        """Whether it was met with VMs of the cluster's kind."""
        return (self.machine_type, self.spot) == (spec.offering, spec.spot)

    @property
    def holds_region(self) -> bool:
        """Whether it concerns the whole region, and not one of its zones."""
        return self.zone in ("", EVERYWHERE)

    @property
    def is_fault(self) -> bool:
        """Of VMs that never get to work: more than bad luck."""
        return self.kind in NEVER_WORKS and self.count > BAD_LUCK_MAX

    @property
    def words(self) -> str:
        """What stands in the way. A group that is not there has no moment to wait for: it is looked
        at again and again, and right after an edit it may just not be made yet."""
        if self.kind is BlockKind.MISSING:
            return "has no group yet (new, or still to be made: zen infra gcloud)"
        if self.kind in NEVER_WORKS:
            again = f"{self.until:%H:%M:%S} UTC"
            return f"brings up VMs that do not get to work, tried again at {again} (zen alerts)"
        return f"{self.noun} until {self.until:%H:%M:%S} UTC"

    @property
    def noun(self) -> str:
        """Its kind, as people are told of it."""
        if self.kind is BlockKind.MISSING:
            return "no group yet"
        if self.kind is BlockKind.OTHER:
            return "refused by the cloud"
        return f"{self.kind} of all regions" if self.zone == EVERYWHERE else str(self.kind)


def block_key(place: SupplyKey, kind: BlockKind) -> BlockKey:
    """The key of the block of that kind there."""
    return BlockKey(place.region, place.zone, place.offering, place.spot, str(kind))


def first_seen(key: BlockKey, at: datetime) -> RegionBlock:
    """A block that nothing has been counted for yet."""
    return RegionBlock(
        region=key.region,
        zone=key.zone,
        machine_type=key.offering,
        spot=key.spot,
        kind=BlockKind(key.kind),
        since=at,
        last_seen=at,
        until=at,
        count=0,
        message="",
    )


def is_remembered(block: RegionBlock, timers: Timers, now: datetime) -> bool:
    """Whether what comes next is the next in a row. Nothing can come while a block stands."""
    last = max(block.last_seen, block.until) if block.is_fault else block.last_seen
    return now - last < timedelta(seconds=timers.stockout_memory_s)


def block_on(
    blocks: Iterable[RegionBlock], spec: ClusterSpec, region: str, now: datetime
) -> RegionBlock | None:
    """What blocks the cluster in a region now: the block that ends last."""
    here = (t for t in blocks if t.region == region and t.concerns(spec))
    active = [t for t in here if t.blocks(now)]
    return max(active, key=attrgetter("until"), default=None)
