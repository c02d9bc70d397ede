"""Who waits for a cluster, and what each may use of it: its regions, within its price cap. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from core.cluster import ClusterSpec
from core.job import Job
from core.job_fields import JobSpec
from core.region_blocks import BlockKind, RegionBlock
from orchestrator.planning.region_estimates import Outlook
from scheduler.forecast.pool import Guesses, Pool, waits_of
from scheduler.forecast.queue_simulation import Waits
from scheduler.forecast.run_times import Guess
from scheduler.queue.price_caps import price_words, size_words

_NEEDS = {
    BlockKind.MISSING: "needs its group (zen infra gcloud prints how to make it)",
    BlockKind.PERMISSION: "needs a permission for the scheduler",
    BlockKind.UNSUPPORTED: "does not have this machine: needs another region or cluster",
}
"""What ends a block that no wait ends; of other kinds their own words name it."""


@dataclass(frozen=True, slots=True)
class ClusterBacklog:
    """Who waits for one cluster, the next one first; a gang stands in it once."""

    playable: tuple[Job, ...]
    stuck: Mapping[str, str] = field(default_factory=dict)
    """By uid: those of whom nothing can be said, and why."""
    floors: Mapping[str, Guess] = field(default_factory=dict)
    """By uid: when there is a VM for one that may not use every one of the pool."""
    blocks: Mapping[str, RegionBlock] = field(default_factory=dict)
    """By uid: of those whose regions are all blocked, the block after which a VM may come first."""


def line_up(
    spec: ClusterSpec,
    ranked: Iterable[Job],
    pool: Pool,
    guess: Guesses,
    now: datetime | None = None,
) -> ClusterBacklog:
    """`ranked`: as the queue serves them. Without the time nobody waits for a next attempt."""
    ranked = list(ranked)
    retries = _retries_in_s(ranked, now)
    playable: dict[str, Job] = {}
    stuck: dict[str, str] = {}
    floors: dict[str, Guess] = {}
    blocks: dict[str, RegionBlock] = {}
    reach = _Reach(pool)
    for job in ranked:
        uid = job.gang_uid
        if uid in playable or uid in stuck or job.out_of_queue:
            continue
        if large := size_words(job.spec, spec):
            stuck[uid] = large
            continue
        mine = reach.of(job.spec)
        if any(outlook.block is None for outlook in mine):
            playable[uid] = job
            if uid in retries:
                floors[uid] = Guess((retries[uid],), "the moment of its next attempt")
            continue
        narrow = reach.is_narrow(mine)
        floor = reach.take(mine, waits_of(spec, job, guess)) if narrow else None
        if floor is None and (narrow or not reach.gives(mine)):
            stuck[uid] = _needs(job.spec, spec, mine)
            continue
        playable[uid] = job
        if uid in retries:
            moments = floor.runs if floor is not None else (0.0,)
            floor = Guess(
                tuple(max(at_s, retries[uid]) for at_s in moments), "the moment of its next attempt"
            )
        if floor is not None:
            floors[uid] = floor
        if (block := reach.first_block(mine)) is not None:
            blocks[uid] = block
    return ClusterBacklog(tuple(playable.values()), stuck, floors, blocks)


def _retries_in_s(jobs: Sequence[Job], now: datetime | None) -> dict[str, float]:
    """By uid, of a gang by its first member's: when the next attempt may start."""
    found: dict[str, float] = {}
    for job in jobs:
        if now is not None and job.retry_at is not None and job.is_backing_off(now):
            wait_s = (job.retry_at - now).total_seconds()
            found[job.gang_uid] = max(wait_s, found.get(job.gang_uid, 0.0))
    return found


class _Reach:
    """What a pool has for jobs that may not use all of it. The plays know no regions: what one job
    is expected to take of a blocked region, the next one does not have."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._ready = {region: list(moments) for region, moments in pool.ready.items()}
        self._of: dict[object, list[Outlook]] = {}
        """Many jobs ask for the same."""

    def of(self, request: JobSpec) -> list[Outlook]:
        """The regions that may serve it."""
        kind = (request.regions, request.regions_denied, request.max_usd_per_hour)
        if kind not in self._of:
            known = self._pool.regions.values()
            allowed = (o for o in known if request.allows_region(o.region))
            self._of[kind] = [o for o in allowed if request.affords(o.usd_per_hour)]
        return self._of[kind]

    def is_narrow(self, mine: Sequence[Outlook]) -> bool:
        """Whether a part of the pool is not for it."""
        names = {outlook.region for outlook in mine}
        return not names.issuperset(self._pool.open) or not names.issuperset(self._pool.heals)

    def gives(self, mine: Sequence[Outlook]) -> bool:
        """Whether there is a VM for it, or will be without anybody's help."""
        pool = self._pool
        return any(o.region in pool.open or o.region in pool.heals for o in mine)

    def take(self, mine: Sequence[Outlook], job: Waits) -> Guess | None:
        """When its regions have what it needs, on VMs that are there or on new ones after a block;
        what it takes is free again when it has run. None: never."""
        heals = [self._pool.heals[o.region] for o in mine if o.region in self._pool.heals]
        new = min(heals, key=lambda start: start.at(0.5), default=None)
        there = [self._ready[o.region] for o in mine if len(self._ready[o.region]) >= job.gpus]
        used = min(there, key=lambda moments: moments[job.gpus - 1], default=None)
        if used is None or (new is not None and new.at(0.5) < used[job.gpus - 1]):
            return new
        at_s = used[job.gpus - 1]
        used[: job.gpus] = [at_s + job.runs_s(0.5)] * job.gpus
        used.sort()
        return Guess((at_s,), "the end of what runs there")

    def first_block(self, mine: Sequence[Outlook]) -> RegionBlock | None:
        heals = self._pool.heals
        healing = [o for o in mine if o.region in heals]
        first = min(healing, key=lambda o: heals[o.region].at(0.5), default=None)
        return first.block if first is not None else None


def _needs(request: JobSpec, spec: ClusterSpec, mine: Sequence[Outlook]) -> str:
    """Of one that nobody serves before somebody has done something."""
    if not mine:
        return price_words(request, spec) or "no region of its cluster may serve it"
    blocks = sorted((o.block for o in mine if o.block is not None), key=attrgetter("region"))
    words = "; ".join(f"{block.region} {_NEEDS.get(block.kind, block.words)}" for block in blocks)
    return f"needs somebody to act: {words}"
