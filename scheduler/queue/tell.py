"""What waiting jobs are told: from plays of the queue to moments and words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter

from core.capacity import ClusterSpec
from core.forecast import Forecast, JobForecast, Pace, Record, Told
from core.job import Job
from core.queueing import class_of
from scheduler.queue.eta import AHEAD_MAX, Behind, Calibration, Cap, Eta, Plays
from scheduler.queue.pool import Guesses, Pool, gang_uid, waits_of
from scheduler.queue.predict import NOTHING_LIKE_IT

HANDOVER_S = 3.0
"""Between the end of one job and the start of the next on the same VM: the end is heard of, the
next turn decides, the worker claims and starts."""


@dataclass(frozen=True, slots=True)
class Line:
    """Who waits for one cluster, the next one first; a gang stands in it once."""

    playable: tuple[Job, ...]
    stuck: Mapping[str, str] = field(default_factory=dict)
    """By uid: those of whom nothing can be said, and why."""


def line_up(ranked: Iterable[Job], pool: Pool) -> Line:
    """`ranked`: as the queue serves them."""
    playable: dict[str, Job] = {}
    stuck: dict[str, str] = {}
    for job in ranked:
        uid = gang_uid(job)
        if uid in playable or uid in stuck or job.blocked is not None:
            continue
        if any(job.spec.allows_region(region) for region in pool.open):
            playable[uid] = job
        else:
            stuck[uid] = _blocks(job, pool)
    return Line(tuple(playable.values()), stuck)


def _blocks(job: Job, pool: Pool) -> str:
    blocks = [
        outlook.block
        for outlook in pool.regions.values()
        if outlook.block is not None and job.spec.allows_region(outlook.region)
    ]
    blocks.sort(key=attrgetter("region"))
    if not blocks:
        return "no region of its cluster may serve it"
    words = "; ".join(f"{block.region} {block.kind}" for block in blocks)
    first = min(block.until for block in blocks)
    return f"{words}, next try {first:%H:%M:%S} UTC"


def plays_of(
    spec: ClusterSpec, pool: Pool, line: Line, guess: Guesses, caps: Mapping[str, Cap]
) -> Plays:
    """Ready to be played: the first that finds no room gets a reservation, as in the queue
    itself."""
    waiting = [waits_of(spec, job, guess) for job in line.playable]
    return Plays(pool.units, pool.busy, waiting[:AHEAD_MAX], rule=Behind.BACKFILL, caps=caps)


def tell(
    cluster: str,
    now: datetime,
    pool: Pool,
    line: Line,
    etas: Mapping[str, Eta],
    guess: Guesses,
    record: Record,
    first: Callable[[str, str], Told | None],
) -> Forecast:
    """`first`: what a job (uid) was told first about a cluster."""
    jobs = {uid: JobForecast(None, why) for uid, why in line.stuck.items()}
    learned = Calibration(record.p50_factor, record.p90_factor)
    paces: dict[tuple[str, int], Pace] = {}
    dark = sum(not busy.guess.known for busy in pool.busy[: pool.jobs])
    for place, (job, position) in enumerate(_positions(line.playable[:AHEAD_MAX])):
        uid, own = gang_uid(job), guess(job)
        eta = etas.get(uid)
        told = None
        if eta is not None:
            seconds = learned.apply(Eta(eta.p50_s + HANDOVER_S, eta.p90_s + HANDOVER_S))
            told = _told(now, seconds)
            key = (job.spec.tenant_id, int(class_of(job.spec.priority)))
            paces[key] = Pace(*key, position, seconds.p50_s, seconds.p90_s)
        words = _basis(pool.jobs + place, dark) if told else ""
        said = JobForecast(
            told, words, run_based_on=NOTHING_LIKE_IT, first=first(uid, cluster) or told
        )
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
    """Each with its place behind those that certainly go first, as people are told it."""
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
