"""Which clusters have nothing to give right now, by what is known about their regions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime

from core.cluster import ClusterSpec
from core.errors import StoreDown
from core.job_fields import JobSpec
from core.ports import Clock
from core.region_blocks import BlockKind, RegionBlock, block_on

FRESH_S = 5.0
"""Blocks last from half a minute to an hour: a door that looks this often knows enough."""


def block_of(
    spec: JobSpec, cluster: ClusterSpec, blocks: Sequence[RegionBlock], now: datetime
) -> str:
    """Why no region of the cluster that the job allows can deliver; empty: one may."""
    allowed = [r.region for r in cluster.regions if spec.allows_region(r.region)]
    by_region = [block_on(blocks, cluster, region, now) for region in allowed]
    known = [block for block in by_region if block is not None]
    if not known or len(known) < len(by_region):
        return ""
    # A group that is not there is no matter of time: right after an edit it may not be made yet.
    absent = BlockKind.MISSING
    kinds = {block.noun for block in known}
    where = "its region" if len(known) == 1 else f"all its {len(known)} regions"
    ends = [block.until for block in known if block.kind is not absent]
    until = f"until {min(ends):%H:%M} UTC at least" if ends else "new, or still to be made"
    return f"{' or '.join(sorted(kinds))} in {where}, {until}"


def blocked_clusters(
    spec: JobSpec, clusters: Iterable[ClusterSpec], blocks: Sequence[RegionBlock], now: datetime
) -> dict[str, str]:
    """Cluster → why it has nothing to give."""
    if not blocks:
        return {}
    found = {cluster.name: block_of(spec, cluster, blocks, now) for cluster in clusters}
    return {name: words for name, words in found.items() if words}


class KnownRegionBlocks:
    """The region blocks as a replica knows them: read now and then by every replica."""

    def __init__(self, read: Callable[[], Awaitable[Sequence[RegionBlock]]], clock: Clock) -> None:
        self._read, self._clock = read, clock
        self._known: Sequence[RegionBlock] = ()
        self._read_at = -FRESH_S

    async def now(self) -> Sequence[RegionBlock]:
        """At most a few seconds old; older if the database is away."""
        at = self._clock.monotonic()
        if at - self._read_at >= FRESH_S:
            self._read_at = at  # before the wait: others go on with what is known
            try:
                self._known = await self._read()
            except StoreDown:
                return self._known  # the write of the submission will tell
        return self._known
