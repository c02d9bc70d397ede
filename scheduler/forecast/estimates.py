"""What waiting jobs are told: from plays of the queue to moments and words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from core.cluster import ClusterSpec
from core.forecast import Forecast, JobForecast, Pace, Record, Told
from core.job import Job
from core.queueing import class_of
from core.region_blocks import RegionBlock
from scheduler.forecast.eligibility import ClusterBacklog
from scheduler.forecast.pool import Guesses, Pool, waits_of
from scheduler.forecast.queue_simulation import AHEAD_MAX, Calibration, Eta, Plays, TenantCap
from scheduler.forecast.run_times import NOTHING_LIKE_IT

HANDOVER_S = 3.0
"""Between the end of one job and the start of the next on the same VM: the end is heard of, the
next cycle decides, the worker claims and starts."""


def plays_of(
    spec: ClusterSpec,
    pool: Pool,
    line: ClusterBacklog,
    guess: Guesses,
    caps: Mapping[str, TenantCap],
) -> Plays:
    """Ready to be played: the first that finds no room gets a reservation, as in the queue
    itself."""
    waiting = [
        replace(waits_of(spec, job, guess), floor=line.floors.get(job.gang_uid))
        for job in line.playable[:AHEAD_MAX]
    ]
    return Plays(pool.units, pool.busy, waiting, caps)


@dataclass(frozen=True, slots=True)
class Played:
    """A queue that has been played forward."""

    pool: Pool
    line: ClusterBacklog
    etas: Mapping[str, Eta]
    """By uid: when each job starts, before anything that was learned is applied."""


def never_told(uid: str, cluster: str) -> Told | None:
    """Where nobody remembers what jobs were told."""
    del uid, cluster
    return None


def tell(
    cluster: str,
    now: datetime,
    played: Played,
    guess: Guesses,
    record: Record,
    first: Callable[[str, str], Told | None] = never_told,
) -> Forecast:
    """`first`: what a job (uid) was told first about a cluster."""
    pool, line, etas = played.pool, played.line, played.etas
    jobs = {uid: JobForecast(None, why) for uid, why in line.stuck.items()}
    learned = Calibration(record.p50_factor, record.p90_factor)
    paces: dict[tuple[str, int], Pace] = {}
    dark = sum(not busy.guess.known for busy in pool.busy[: pool.jobs])
    for place, (job, position) in enumerate(_positions(line.playable[:AHEAD_MAX])):
        uid, own = job.gang_uid, guess(job)
        eta = etas.get(uid)
        told, words, known = None, "", first(uid, cluster)
        if eta is not None and (block := _awaited(line.blocks.get(uid), eta, pool)) is not None:
            # Nobody can know what a region has when its block ends: no lesson for the others, whose
            # pace is another one too.
            told, words = _told(now, _after(block, eta, learned, now)), _block_basis(block)
        elif eta is not None:
            seconds = learned.apply(Eta(eta.p50_s + HANDOVER_S, eta.p90_s + HANDOVER_S))
            told, words = _told(now, seconds), _basis(pool.jobs + place, dark)
            known = known or told
            key = (job.spec.tenant_id, int(class_of(job.spec.priority)))
            paces[key] = Pace(*key, position, seconds.p50_s, seconds.p90_s)
        said = JobForecast(told, words, run_based_on=NOTHING_LIKE_IT, first=known)
        if own.known:
            most_s = job.spec.max_runtime_s
            said = replace(
                said,
                run_p50_s=min(most_s, own.at(0.5)),
                run_p90_s=min(most_s, own.at(0.9)),
                run_based_on=own.basis,
            )
        jobs[uid] = said
        dark += not own.known
    return Forecast(cluster, now, jobs, tuple(paces.values()), record)


def _positions(line: Sequence[Job]) -> Iterator[tuple[Job, int]]:
    """Each with its place behind the jobs that certainly go first, as people are told it."""
    own: dict[tuple[str, int], int] = {}
    tiers: dict[int, int] = {}
    for job in line:
        tier = int(class_of(job.spec.priority))
        higher = sum(count for other, count in tiers.items() if other > tier)
        key = (job.spec.tenant_id, tier)
        own[key] = own.get(key, 0) + 1
        tiers[tier] = tiers.get(tier, 0) + 1
        yield job, higher + own[key]


def _told(now: datetime, eta: Eta) -> Told:
    return Told(now, now + timedelta(seconds=eta.p50_s), now + timedelta(seconds=eta.p90_s))


def _awaited(block: RegionBlock | None, eta: Eta, pool: Pool) -> RegionBlock | None:
    """The block that it waits for. None: what is there is free before a new VM could come."""
    if block is None or eta.p50_s < pool.heals[block.region].at(0.0):
        return None
    return block


def _after(block: RegionBlock, eta: Eta, learned: Calibration, now: datetime) -> Eta:
    """What was learned is about what comes after the block; the block itself lasts as it does."""
    wait_s = (block.until - now).total_seconds()
    more_s = HANDOVER_S - wait_s
    rest = learned.apply(Eta(eta.p50_s + more_s, eta.p90_s + more_s))
    return Eta(wait_s + rest.p50_s, wait_s + rest.p90_s)


def _block_basis(block: RegionBlock) -> str:
    return f"{block.region} {block.words}: then as soon as VMs usually come there, if it has any"


def _basis(jobs: int, dark: int) -> str:
    """What a moment rests on. `dark`: jobs of which nobody knows how long they run."""
    if not jobs:
        return "nobody is ahead: as soon as a VM is ready"
    who = "the job that runs or is" if jobs == 1 else f"the {jobs} jobs that run or are"
    if not dark:
        return f"past runs like those of {who} ahead"
    which = who if dark == jobs else f"{dark} of {who}"
    return f"wide: nothing like {which} ahead has ended yet"


def held(record: Record, told: Told, started_at: datetime, learned: Calibration) -> Record:
    """With one more that has started."""
    return Record(
        record.told + 1,
        record.p50_held + (started_at <= told.p50_at),
        record.p90_held + (started_at <= told.p90_at),
        learned.p50,
        learned.p90,
    )
