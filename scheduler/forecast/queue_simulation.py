"""When each waiting job will start: the queue played forward several times. Pure.

Each play draws how long every job runs from its guess, at quantiles that are spread evenly over
the plays, so the same input gives the same answer. Nobody knows who will come later and pass; that
is learned: a factor for each quantile follows what really happened, up when a job was late, down
when it was early, so that nine of ten jobs start before their p90.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from scheduler.forecast.run_times import Guess
from scheduler.queue.backfill import Backfill, Reservation, reserve

PLAYS = 12
SURE = 0.9
AHEAD_MAX = 300
"""So many waiting jobs of a cluster are played; those behind are told by the pace of these."""
_GOLDEN = 0.6180339887498949
STEP = 0.08
"""How fast a factor follows; slow enough that one late job does not double it."""
FACTOR_MAX = 1e4


@dataclass(frozen=True, slots=True)
class Busy:
    """What holds a part of the pool for a while: a running job, or a VM that is on its way."""

    gpus: int
    ran_s: float
    guess: Guess
    most_s: float = math.inf
    """It is stopped after so much more."""
    tenant: str = ""
    jobs: int = 1
    asks: float = 0.0
    """GPUs as its tenant's quota counts them."""

    def ends_s(self, share: float) -> float:
        return min(self.most_s, max(0.0, self.guess.left(self.ran_s, share)))


@dataclass(frozen=True, slots=True)
class Waits:
    """A waiting job, in the order in which they will be served."""

    uid: str
    gpus: int
    guess: Guess
    had_s: float = 0.0
    """What it ran for before it came back."""
    most_s: float = math.inf
    tenant: str = ""
    jobs: int = 1
    asks: float = 0.0
    floor: Guess | None = None
    """When there is a VM that it may use, if that is not every one of the pool. It has its place
    before."""

    @property
    def sure_s(self) -> float:
        """It ends before this nine times of ten; without any history, when it must."""
        return min(self.most_s, self.guess.at(SURE)) if self.guess.known else self.most_s

    def runs_s(self, share: float) -> float:
        runs_s = self.guess.left(self.had_s, share) if self.had_s else self.guess.at(share)
        return min(self.most_s, max(0.0, runs_s))


@dataclass(frozen=True, slots=True)
class TenantCap:
    """What a tenant's jobs in this pool may hold at once."""

    jobs: float = math.inf
    gpus: float = math.inf


@dataclass(frozen=True, slots=True)
class Eta:
    """Seconds from now until it starts."""

    p50_s: float
    p90_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factors on what the plays say, learned from jobs that have started."""

    p50: float = 1.0
    p90: float = 1.0

    def apply(self, raw: Eta) -> Eta:
        p50 = raw.p50_s * self.p50
        return Eta(p50, max(p50, raw.p90_s * self.p90))


class ForecastAccuracy:
    """What jobs were told, held against what comes. One that is late is a lesson when its moment
    has passed, not when it starts at last: under load that is much later, and until then others
    would be told the same. Times are seconds of whatever clock."""

    def __init__(self, learned: Calibration = Calibration()) -> None:  # noqa: B008  # frozen
        self.learned = learned
        self._moments: list[tuple[float, str, bool]] = []
        self._open: dict[tuple[str, bool], float] = {}

    def tell(self, uid: str, p50_at: float, p90_at: float, weight: float = 1.0) -> None:
        """`weight`: less than one for jobs that are told together, since they are late together."""
        for at, is_p90 in ((p50_at, False), (p90_at, True)):
            heapq.heappush(self._moments, (at, uid, is_p90))
            self._open[uid, is_p90] = weight

    def look(self, now: float, waiting: Container[str]) -> None:
        """`waiting`: those of whom it is known that they have not started."""
        while self._moments and self._moments[0][0] < now:
            _, uid, is_p90 = heapq.heappop(self._moments)
            weight = self._open.pop((uid, is_p90), None)
            if weight is not None and uid in waiting:
                self._learn(is_p90, True, weight)

    def started(self, uid: str, at: float) -> None:
        self.look(at, (uid,))
        for is_p90 in (False, True):
            weight = self._open.pop((uid, is_p90), None)
            if weight is not None:
                self._learn(is_p90, False, weight)

    def _learn(self, is_p90: bool, late: bool, weight: float) -> None:
        p50, p90 = self.learned.p50, self.learned.p90
        if is_p90:
            self.learned = Calibration(p50, _follow(p90, 0.9, late, weight))
        else:
            self.learned = Calibration(_follow(p50, 0.5, late, weight), p90)


def _follow(factor: float, share: float, late: bool, weight: float) -> float:
    """In balance when the part of the late ones is 1 − share."""
    moved = math.log(factor) + weight * STEP * (share if late else share - 1.0)
    return math.exp(min(math.log(FACTOR_MAX), max(-math.log(FACTOR_MAX), moved)))


class Plays:
    """The queue of one pool played forward; one play at a time, so that a caller with other work
    can do it in between."""

    def __init__(
        self,
        gpus: int,
        running: Sequence[Busy],
        waiting: Sequence[Waits],
        caps: Mapping[str, TenantCap] | None = None,
    ) -> None:
        self.gpus = gpus
        self.running = running
        self.played = waiting
        self.caps = caps or {}
        self.sure_s = [job.sure_s for job in self.played]
        self._starts: dict[str, list[float]] = {job.uid: [] for job in self.played}

    def play(self, number: int) -> None:
        """One of PLAYS."""
        for uid, at_s in _Play(self, number).run().items():
            self._starts[uid].append(at_s)

    def etas(self) -> dict[str, Eta]:
        """What came of them; a job that never started has none."""
        return {uid: _eta(sorted(starts)) for uid, starts in self._starts.items() if starts}


class _Play:
    """One of them. Jobs and VMs are known by their place: first the running ones, then the ones
    that wait."""

    def __init__(self, plays: Plays, number: int) -> None:
        self._plays = plays
        self._number = number
        self._first = len(plays.running)
        self._things: list[Busy | Waits] = [*plays.running, *plays.played]
        self._ends = [
            (job.ends_s(_draw(number, place)), place) for place, job in enumerate(plays.running)
        ]
        heapq.heapify(self._ends)
        self._free = plays.gpus - sum(job.gpus for job in plays.running)
        self._held = _Held(plays.caps, plays.running)
        self._now = 0.0
        self._starts: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        """Who starts when."""
        queue, least = list(range(self._first, len(self._things))), 0
        while queue:
            if self._free >= least:
                queue, least = self._serve(queue)
            if not self._ends:
                break  # larger than the pool, or than its quota: it has no start
            self._now, place = heapq.heappop(self._ends)
            self._free += self._things[place].gpus
            if self._held.take(self._things[place], -1):
                least = 0  # its tenant may have another one now
        return self._starts

    def _serve(self, queue: Sequence[int]) -> tuple[list[int], int]:
        """Who goes on waiting, and how much must be free before anybody of them can start."""
        rest: list[int] = []
        reserved: Backfill | None = None
        first, capped = 0, bool(self._plays.caps)
        for position, place in enumerate(queue):
            job = self._things[place]
            if capped and not self._held.allows(job):
                rest.append(place)
            elif job.gpus <= self._free and (
                reserved is None or reserved.lets(job.gpus, self._sure_s(place))
            ):
                self._start(place)
            else:
                rest.append(place)
                first = first or job.gpus
                if self._free <= 0:
                    rest += queue[position + 1 :]
                    break
                if reserved is None:
                    reserved = Backfill(self._reserve(job))
        return rest, self._least(rest, first, reserved)

    def _least(self, rest: Sequence[int], first: int, reserved: Backfill | None) -> int:
        """`first`: what the first without room needs."""
        if self._free <= 0:
            return 1
        things = self._things
        if reserved is not None:  # who may not pass now may not pass later either
            held = reserved.held
            rest = [p for p in rest if held.lets(things[p].gpus, self._sure_s(p))]
        sizes = [things[place].gpus for place in rest]
        return min([first, *sizes] if first else sizes, default=1)

    def _start(self, place: int) -> None:
        job = self._plays.played[place - self._first]
        self._free -= job.gpus
        self._held.take(job, 1)
        starts_at = self._now + self._short_s(place)
        self._starts[job.uid] = starts_at
        ends_at = starts_at + job.runs_s(_draw(self._number, place))
        heapq.heappush(self._ends, (ends_at, place))

    def _reserve(self, job: Busy | Waits) -> Reservation:
        """When the first that finds no room will have it."""
        # Each end frees one at least: no more of them are needed than are missing.
        soonest = heapq.nsmallest(job.gpus - self._free, self._ends)
        ending = [(at - self._now, self._things[place].gpus) for at, place in soonest]
        return reserve(job.gpus, self._free, ending)

    def _sure_s(self, place: int) -> float:
        return self._plays.sure_s[place - self._first] + self._short_s(place)

    def _short_s(self, place: int) -> float:
        """How long it waits for its VM once it has a place."""
        floor = self._plays.played[place - self._first].floor
        if floor is None:
            return 0.0
        return max(0.0, floor.at(_draw(self._number, place)) - self._now)


class _Held:
    """What tenants with a cap hold during a play."""

    def __init__(self, caps: Mapping[str, TenantCap], running: Sequence[Busy]) -> None:
        self._caps = caps
        self._held: dict[str, tuple[int, float]] = {}
        for job in running if caps else ():
            self.take(job, 1)

    def allows(self, job: Busy | Waits) -> bool:
        cap = self._caps.get(job.tenant)
        if cap is None:
            return True
        jobs, gpus = self._held.get(job.tenant, (0, 0.0))
        return jobs + job.jobs <= cap.jobs and gpus + job.asks <= cap.gpus + 1e-9

    def take(self, job: Busy | Waits, sign: int) -> bool:
        """Whether that counts for anything."""
        if job.tenant not in self._caps:
            return False
        jobs, gpus = self._held.get(job.tenant, (0, 0.0))
        self._held[job.tenant] = (jobs + sign * job.jobs, gpus + sign * job.asks)
        return True


def _eta(starts: Sequence[float]) -> Eta:
    middle = starts[len(starts) // 2]
    late = starts[min(len(starts) - 1, math.ceil(0.9 * len(starts)))]
    return Eta(middle, late)


def _draw(play: int, place: int) -> float:
    """Evenly spread over plays for each job, and over jobs within a play."""
    return ((play + 0.5) / PLAYS + place * _GOLDEN) % 1.0
