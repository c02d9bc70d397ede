"""When each waiting job will start: the queue played forward several times. Pure.

Each play draws how long every job runs from its guess, at quantiles that are spread evenly over
the plays, so the same input gives the same answer. Nobody knows who will come later and pass; that
is learned: a factor for each quantile follows what really happened, up when a job was late, down
when it was early, so that nine of ten jobs start before their p90.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.queue.predict import NO_HISTORY, Guess

PLAYS = 12
AHEAD_MAX = 300
"""Waiting jobs that are played; those behind are extrapolated from them."""
_GOLDEN = 0.6180339887498949
STEP = 0.08
"""How fast a factor follows; slow enough that one late job does not double it."""
FACTOR_MAX = 1e4


@dataclass(frozen=True, slots=True)
class Busy:
    """A running job: what it holds and how long it has run."""

    gpus: int
    ran_s: float
    guess: Guess


@dataclass(frozen=True, slots=True)
class Waits:
    """A waiting job, in the order in which they will be served."""

    uid: str
    gpus: int
    guess: Guess


@dataclass(frozen=True, slots=True)
class Eta:
    """Seconds from now until it starts."""

    p50_s: float
    p90_s: float
    note: str = ""
    """Why it is wide, if it is."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factors on what the plays say, learned from jobs that have started."""

    p50: float = 1.0
    p90: float = 1.0

    def apply(self, raw: Eta) -> Eta:
        p50 = raw.p50_s * self.p50
        return Eta(p50, max(p50, raw.p90_s * self.p90), raw.note)

    def learn(self, told: Eta, waited_s: float) -> Calibration:
        """`told`: what the job was told; `waited_s`: what came of it."""
        return Calibration(
            _follow(self.p50, 0.5, waited_s > told.p50_s),
            _follow(self.p90, 0.9, waited_s > told.p90_s),
        )


def _follow(factor: float, share: float, late: bool) -> float:
    """In balance when the part of the late ones is 1 − share."""
    moved = math.log(factor) + STEP * (share if late else share - 1.0)
    return math.exp(min(math.log(FACTOR_MAX), max(-math.log(FACTOR_MAX), moved)))


def forecast(
    gpus: int,
    running: Sequence[Busy],
    waiting: Sequence[Waits],
    *,
    strict: bool = False,
    only: str | None = None,
) -> dict[str, Eta]:
    """For every waiting job, or for `only` one. `strict`: a job that does not fit holds up those
    behind it; else whatever fits starts."""
    played = waiting[:AHEAD_MAX]
    starts: dict[str, list[float]] = {job.uid: [] for job in played}
    for play in range(PLAYS):
        for uid, at_s in _play(play, gpus, running, played, strict, only).items():
            starts[uid].append(at_s)
    found = {job.uid: _eta(sorted(starts[job.uid]), job.guess) for job in played if starts[job.uid]}
    if len(waiting) > len(played) and only is None:
        found |= _beyond(waiting, played, found)
    return found


def _eta(starts: Sequence[float], guess: Guess) -> Eta:
    middle = starts[len(starts) // 2]
    late = starts[min(len(starts) - 1, math.ceil(0.9 * len(starts)))]
    return Eta(middle, late, "" if guess.known else NO_HISTORY)


def _draw(play: int, place: int) -> float:
    """Evenly spread over plays for each job, and over jobs within a play."""
    return ((play + 0.5) / PLAYS + place * _GOLDEN) % 1.0


def _play(
    play: int,
    gpus: int,
    running: Sequence[Busy],
    waiting: Sequence[Waits],
    strict: bool,
    only: str | None,
) -> dict[str, float]:
    ends = [
        (max(0.0, job.guess.left(job.ran_s, _draw(play, place))), job.gpus)
        for place, job in enumerate(running)
    ]
    heapq.heapify(ends)
    free = gpus - sum(job.gpus for job in running)
    queue = [(job, place) for place, job in enumerate(waiting, start=len(running))]
    starts: dict[str, float] = {}
    now = 0.0
    while queue:
        rest: list[tuple[Waits, int]] = []
        for position, (job, place) in enumerate(queue):
            if job.gpus <= free:
                free -= job.gpus
                starts[job.uid] = now
                heapq.heappush(ends, (now + job.guess.at(_draw(play, place)), job.gpus))
                if job.uid == only:
                    return starts
                continue
            rest.append((job, place))
            if strict or not free:
                rest += queue[position + 1 :]
                break
        queue = rest
        if not ends:
            break  # larger than the pool: it has no start
        now, freed = heapq.heappop(ends)
        free += freed
    return starts


def _beyond(
    waiting: Sequence[Waits], played: Sequence[Waits], found: dict[str, Eta]
) -> dict[str, Eta]:
    """Those behind go on at the pace of those that were played, by the GPUs ahead of them."""
    known = [found[job.uid] for job in played if job.uid in found]
    if not known:
        return {}
    ahead = sum(job.gpus for job in played)
    p50, p90 = max(eta.p50_s for eta in known), max(eta.p90_s for eta in known)
    total, more = ahead, dict[str, Eta]()
    for job in waiting[len(played) :]:
        total += job.gpus
        stretch = total / ahead
        more[job.uid] = Eta(p50 * stretch, p90 * stretch, "far back: extrapolated")
    return more
