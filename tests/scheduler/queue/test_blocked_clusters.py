"""Which clusters have nothing to give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.errors import StoreDown
from core.job_fields import JobSpec
from core.region_blocks import BlockKind, RegionBlock
from scheduler.queue.blocked_clusters import FRESH_S, KnownRegionBlocks, block_of, blocked_clusters
from tests.builders import NOW, REGIONS, at, cluster

SPEC = cluster()


def stockout(region: str, until_s: float = 900) -> RegionBlock:
    kind, now = BlockKind.STOCKOUT, NOW
    return RegionBlock(region, "", SPEC.machine_type, False, kind, now, now, at(until_s), 1, "")


def test_blocked_only_when_every_allowed_region_is() -> None:
    """What the job does not allow is not looked at; the words name the first end."""
    some = [stockout(REGIONS[0]), stockout(REGIONS[1], 600)]
    assert block_of(JobSpec("j"), SPEC, some, NOW) == ""
    choosy = JobSpec("j", regions_denied=(REGIONS[2],))
    words = "stockout in all its 2 regions, until 12:10 UTC at least"
    assert block_of(choosy, SPEC, some, NOW) == words
    assert blocked_clusters(choosy, (SPEC,), some, NOW) == {SPEC.name: words}
    assert block_of(choosy, SPEC, some, at(601)) == ""
    assert blocked_clusters(choosy, (SPEC,), (), NOW) == {}


def test_a_group_that_is_not_made_yet_has_no_end() -> None:
    """A cluster that was just configured is new, not blocked until some hour; beside other blocks
    these have theirs."""
    kind = BlockKind.MISSING
    absent = [replace(stockout(region), kind=kind) for region in REGIONS]
    words = "no group yet in all its 3 regions, new, or still to be made"
    assert block_of(JobSpec("j"), SPEC, absent, NOW) == words
    mixed = [*absent[:2], stockout(REGIONS[2], 600)]
    words = "no group yet or stockout in all its 3 regions, until 12:10 UTC at least"
    assert block_of(JobSpec("j"), SPEC, mixed, NOW) == words


class Clock:
    """Stands still until it is told."""

    seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> object:
        raise AssertionError("not asked for")


async def test_region_blocks_are_read_now_and_then() -> None:
    """A door that is used a thousand times a second asks once; without the database it goes on
    with what it knew."""
    asked: list[float] = []
    clock = Clock()

    async def read() -> Sequence[RegionBlock]:
        asked.append(clock.seconds)
        if len(asked) == 2:
            raise StoreDown("away")
        return [stockout(REGIONS[0])]

    known = KnownRegionBlocks(read, clock)  # type: ignore[arg-type]  # half a clock is enough
    assert len(await known.now()) == len(await known.now()) == 1
    clock.seconds += FRESH_S
    assert len(await known.now()) == 1
    assert asked == [100.0, 100.0 + FRESH_S]
