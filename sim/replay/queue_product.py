"""The product's own queue on the pool: its order, its trials, its reservations, its growth.

Nothing is decided here: `core.queueing` says when a job is due, `scheduler.preemption.policy` who
yields, `scheduler.queue.backfill` who may pass, `scheduler.placement.elastic_growth` who grows and
`scheduler.forecast.run_times` how long jobs run. This file keeps what the store would keep.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate

from core.job import JobSpec
from core.queueing import LEVELS_S, WEIGHT, QueuePolicy, level_of, patience_s
from scheduler.forecast.run_times import EXPECTED_SHARE, Book, Guess, Kind
from scheduler.placement.elastic_growth import Stretch, grow
from scheduler.placement.reservation import LIKELY, SURE
from scheduler.preemption.policy import LEAST_RUN_S, Runs, Wants, run_on_s, trial
from scheduler.queue.backfill import Reservation, may_pass, passed, reserve
from scheduler.queue.guaranteed_start import bound_s, grace_s, is_protected
from sim.replay.pool import Orders, Pool, PoolJob

TURN_S = 600.0
"""While jobs wait, the policy looks again after this long: what ran meanwhile has had more."""
ASK_S = 60.0
"""A job that found nobody to yield asks again after this long."""


@lru_cache(maxsize=1024)
def spec_of(gpus: int) -> JobSpec:
    """What the order reads of a job's specification."""
    return JobSpec("replayed", gpu_count=gpus)


def kind_of(job: PoolJob) -> Kind:
    """Traces have no names of programs: the size stands for it."""
    return Kind(job.tenant, "", f"{job.gpus}")


@dataclass(slots=True)
class Ours:
    """The queue of one tenant. `preempts`: jobs may be evicted."""

    preempts: bool = True
    rules: QueuePolicy = field(default_factory=QueuePolicy)
    book: Book = field(default_factory=Book)
    queue: list[tuple[float, int]] = field(default_factory=list)
    """(due, which) of those that wait."""
    longest_s: float = spec_of(1).max_runtime_s
    """No run lasts longer: what bounds rest on."""
    bounds: dict[int, float] = field(default_factory=dict)
    """Which → for how long it was told at most to wait for its first start."""
    _new: list[PoolJob] = field(default_factory=list)
    """Those that came since the last look."""
    _ahead: int = 0
    """GPUs for those that wait and never ran."""
    _expected: dict[int, float | None] = field(default_factory=dict)
    _since: dict[int, float] = field(default_factory=dict)
    """Which → since when it waits."""
    _asked: dict[int, float] = field(default_factory=dict)
    """Which → when others were last asked to yield to it."""
    _soon_s: float = math.inf
    """After this long an eviction may be worth it that is not yet."""
    _running: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """Which → (its `since`, until when this holds, when it would be due)."""

    def arrived(self, job: PoolJob, now: float) -> None:
        del now
        guess = self.book.guess(kind_of(job))
        self._expected[job.index] = guess.at(EXPECTED_SHARE) if guess.known else None
        self._enqueue(job, 0.0, job.submit_s)
        self._new.append(job)

    def ended(self, job: PoolJob, now: float) -> None:
        del now
        self.book.add(kind_of(job), job.work_s)
        del self._expected[job.index], self._since[job.index]
        self._asked.pop(job.index, None)
        self._running.pop(job.index, None)

    def _enqueue(self, job: PoolJob, had_s: float, now: float) -> None:
        self._since[job.index] = now
        insort(self.queue, (self._due(job, had_s), job.index))

    def _due(self, job: PoolJob, had_s: float) -> float:
        """Measured from the submission: one that was evicted must not begin to age anew."""
        expected = self._expected[job.index]
        return job.submit_s + patience_s(spec_of(job.gpus), had_s * job.gpus, self.rules, expected)

    def _tell_bounds(self, pool: Pool) -> None:
        """As at submission: by the aging rule, those that wait, and the pool."""
        for job in self._new:
            patience = self._due(job, 0.0) - job.submit_s
            self.bounds[job.index] = bound_s(patience, self.longest_s, self._ahead, pool.gpus)
            self._ahead += job.least
        self._new.clear()

    def _in_order(self, pool: Pool) -> list[tuple[float, int]]:
        """As they are due; those first that are protected, as they came."""
        since = pool.now - grace_s(self.longest_s)
        if not self.queue or self.queue[0][0] > since:
            return self.queue
        overdue = self.queue[: bisect_right(self.queue, (since, math.inf))]
        safe = sorted((entry for entry in overdue if self._protected(pool, *entry)), key=_index)
        rest = [entry for entry in self.queue if not self._protected(pool, *entry)]
        return [*safe, *rest]

    def _protected(self, pool: Pool, due: float, index: int) -> bool:
        fresh = math.isinf(pool.waiting[index].first_at)
        return fresh and is_protected(due, pool.now, self.longest_s)

    def decide(self, pool: Pool) -> Orders:
        self._tell_bounds(pool)
        orders = Orders()
        if self.queue:
            self._serve(pool, _Room(pool), orders)
            if started := {job.index for job, _ in orders.start}:
                self.queue = [entry for entry in self.queue if entry[1] not in started]
                fresh = (job.least for job, _ in orders.start if math.isinf(job.first_at))
                self._ahead -= sum(fresh)
            for job in orders.stop:
                self._enqueue(job, job.done_at(pool.now), pool.now)
        _stretch(pool, orders)
        if self.queue and self.preempts:
            orders.look_at = pool.now + min(TURN_S, self._soon_s)
        return orders

    def _serve(self, pool: Pool, room: _Room, orders: Orders) -> None:
        """In the order of the queue: whoever fits starts. Others yield to one that does not, or it
        has a reservation, and those behind pass only if they do not delay it."""
        evictable = _Evictable(self, pool)
        stuck: PoolJob | None = None
        held: Reservation | None = None
        sure, guesses = False, _Guesses(self.book)
        self._soon_s = math.inf
        for due, index in self._in_order(pool):
            job = pool.waiting[index]
            need = job.least - room.free
            able = need > 0 and stuck is None and evictable.gpus(due) >= need
            if able and self._may_ask(job, pool.now):
                self._make_room(pool, job, due, evictable, room, orders)
            if job.least > room.free:
                if not room.free and (stuck is not None or not evictable.gpus(due)):
                    break
                if stuck is None:
                    stuck, sure = job, self._protected(pool, due, index)
                continue
            if stuck is not None:
                if held is None:  # only now: often nobody behind fits anyway
                    held = self._reserve(pool, stuck, room, orders, None if sure else guesses)
                ends_in = self.longest_s if sure else guesses.of(job).at(SURE)
                if not may_pass(held, job.least, ends_in):
                    continue
                held = passed(held, job.least, ends_in)
            room.free -= job.least
            orders.start.append((job, job.least))

    def _may_ask(self, job: PoolJob, now: float) -> bool:
        """A trial that failed is not made again at once: a minute later things may differ."""
        if now < self._asked.get(job.index, -math.inf) + ASK_S:
            return False
        self._asked[job.index] = now
        return True

    def runs(self, pool: Pool, job: PoolJob) -> Runs:
        """What an eviction of it would mean."""
        now = pool.now
        return Runs(
            uid=f"{job.index:07}",
            gpus=job.least,
            due_s=self.due_running(job, now),
            ran_s=now - job.started_at,
            unsaved_s=job.unsaved_s(now, pool.costs),
            evictions=job.evictions,
        )

    def due_running(self, job: PoolJob, now: float) -> float:
        """As if it waited now; kept until it reaches its next level."""
        since, until, due = self._running.get(job.index, (0.0, 0.0, 0.0))
        if since == job.since and now < until:
            return due
        done = job.done_at(now)
        due = self._due(job, done)
        level = level_of(spec_of(job.gpus), done * job.gpus)
        ends = LEVELS_S[level] / job.gpus**WEIGHT if level < len(LEVELS_S) - 1 else math.inf
        self._running[job.index] = (job.since, now + (ends - done) / job.rate, due)
        return due

    def _make_room(
        self,
        pool: Pool,
        job: PoolJob,
        due: float,
        evictable: _Evictable,
        room: _Room,
        orders: Orders,
    ) -> None:
        need = job.least - room.free
        waited_s = pool.now - self._since[job.index]
        found = trial(
            Wants(f"{job.index:07}", job.least, due, waited_s),
            evictable.runs(),
            lambda gone: sum(runs.gpus for runs in gone) >= need,
        )
        if not found.victims:
            self._soon_s = min(self._soon_s, max(ASK_S, found.wait_s))
        for runs in found.victims:
            index = int(runs.uid)
            orders.stop.append(pool.running[index])
            evictable.drop(index)
            room.free += runs.gpus

    def _reserve(
        self, pool: Pool, job: PoolJob, room: _Room, orders: Orders, guesses: _Guesses | None
    ) -> Reservation:
        """`guesses`: None for one that is protected, since predictions do not count for it."""
        now, running = pool.now, pool.running.values()
        if guesses is None:
            ending = [(self.longest_s - (now - other.started_at), other.least) for other in running]
            ending += [(self.longest_s, size) for _, size in orders.start]
            return replace(reserve(job.least, room.free, ending), spare=0)
        ending = [
            (guesses.of(other).left(other.done_at(now), LIKELY), other.least) for other in running
        ]
        ending += [(guesses.of(other).at(LIKELY), size) for other, size in orders.start]
        return reserve(job.least, room.free, ending)


class _Guesses:
    """Of one look: those that run are many, and of few kinds."""

    __slots__ = ("_book", "_of")

    def __init__(self, book: Book) -> None:
        self._book = book
        self._of: dict[tuple[str, int], Guess] = {}

    def of(self, job: PoolJob) -> Guess:
        key = (job.tenant, job.gpus)
        found = self._of.get(key)
        if found is None:
            found = self._of[key] = self._book.guess(kind_of(job))
        return found


def _index(entry: tuple[float, int]) -> int:
    return entry[1]


class _Evictable:
    """Those that run, as far as they may yield. Worked out when somebody asks: most that wait need
    no trial to know that it would fail."""

    __slots__ = ("_dues", "_gpus", "_ours", "_pool", "_running", "_runs")

    def __init__(self, ours: Ours, pool: Pool) -> None:
        self._ours, self._pool = ours, pool
        self._running = dict(pool.running) if ours.preempts else {}
        self._runs: dict[int, Runs] | None = None
        self._dues: list[float] | None = None
        self._gpus: list[int] = [0]

    def gpus(self, due: float) -> int:
        """Of those that could yield to a job that is due then."""
        if self._dues is None:
            self._dues = self._sum_up()
        return self._gpus[bisect_left(self._dues, -due)]

    def _sum_up(self) -> list[float]:
        now, ours = self._pool.now, self._ours
        able = sorted(
            (-ours.due_running(job, now), job.least)
            for job in self._running.values()
            if now - job.started_at >= run_on_s(job.evictions, LEAST_RUN_S)
        )
        self._gpus = list(accumulate((gpus for _, gpus in able), initial=0))
        return [due for due, _ in able]

    def runs(self) -> Collection[Runs]:
        if self._runs is None:
            self._runs = {i: self._ours.runs(self._pool, job) for i, job in self._running.items()}
        return self._runs.values()

    def drop(self, index: int) -> None:
        """It yields."""
        del self._running[index]
        if self._runs is not None:
            del self._runs[index]
        self._dues = None


class _Room:
    """GPUs that can be had without evicting: free ones, and what elastic jobs hold beyond their
    least."""

    __slots__ = ("free",)

    def __init__(self, pool: Pool) -> None:
        self.free = pool.free + sum(
            job.size - job.least for job in pool.running.values() if job.elastic
        )


def _stretch(pool: Pool, orders: Orders) -> None:
    """What is spare goes to the elastic jobs that gain most by it; they are all resized at once."""
    gone = {job.index for job in orders.stop}
    stay = [job for job in pool.running.values() if job.index not in gone]
    rigid = sum(job.size for job in stay if not job.elastic)
    rigid += sum(size for job, size in orders.start if not job.elastic)
    bending = [job for job in stay if job.elastic]
    bending += [job for job, _ in orders.start if job.elastic]
    if not bending:
        return
    spare = pool.gpus - rigid - sum(job.least for job in bending)
    wishes = [
        Stretch(f"{job.index}", job.least, job.gpus, job.most, max(600.0, job.done_at(pool.now)))
        for job in bending
    ]
    sizes = grow(wishes, spare)
    orders.resize = [
        (job, sizes[f"{job.index}"])
        for job in stay
        if job.elastic and sizes[f"{job.index}"] != job.size
    ]
    orders.start = [(job, sizes.get(f"{job.index}", size)) for job, size in orders.start]
