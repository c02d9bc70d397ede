"""The product's own queue on the pool: its order, its trials, its reservations, its growth.

Nothing is decided here: `core.queueing` says when a job is due, `scheduler.queue.preempt` who
yields, `scheduler.queue.reserve` who may pass, `scheduler.queue.growth` who grows and
`scheduler.queue.predict` how long jobs run. This file keeps what the store would keep.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

from core.job import JobSpec
from core.queueing import LEVELS_S, WEIGHT, QueuePolicy, level_of, patience_s
from scheduler.queue.growth import Stretch, grow
from scheduler.queue.predict import EXPECTED_SHARE, Book, Kind
from scheduler.queue.preempt import LEAST_RUN_S, Runs, Wants, run_on_s, trial
from scheduler.queue.promise import LIKELY, SURE
from scheduler.queue.reserve import Reservation, may_pass, passed, reserve
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
    bounds: dict[int, float] = field(default_factory=dict)
    """Which → for how long it was told at most to wait for its first start."""
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
        # Without evictions what runs must end first.
        ends_s = 0.0 if self.preempts else spec_of(job.gpus).max_runtime_s
        self.bounds[job.index] = self._due(job, 0.0) - job.submit_s + ends_s

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

    def decide(self, pool: Pool) -> Orders:
        orders = Orders()
        if self.queue:
            self._serve(pool, _Room(pool), orders)
            started = {job.index for job, _ in orders.start}
            self.queue = [entry for entry in self.queue if entry[1] not in started]
            for job in orders.stop:
                self._enqueue(job, job.done_at(pool.now), pool.now)
        _stretch(pool, orders)
        if self.queue and self.preempts:
            orders.look_at = pool.now + min(TURN_S, self._soon_s)
        return orders

    def _serve(self, pool: Pool, room: _Room, orders: Orders) -> None:
        """In the order of the queue: whoever fits starts. Others yield to one that does not, or it
        has a reservation, and those behind pass only if they do not delay it."""
        running = self._evictable(pool)
        behind = _Behind(running)
        held: Reservation | None = None
        self._soon_s = math.inf
        for due, index in self.queue:
            job = pool.waiting[index]
            need = job.least - room.free
            able = need > 0 and held is None and behind.gpus(due) >= need
            if able and self._may_ask(job, pool.now):
                self._make_room(pool, job, due, running, room, orders)
                behind = _Behind(running)
            if job.least > room.free:
                if not room.free and (held is not None or not behind.gpus(due)):
                    break
                held = held or self._reserve(pool, job, room, orders)
                continue
            if held is not None:
                ends_in = self.book.guess(kind_of(job)).at(SURE)
                if not may_pass(held, job.least, ends_in):
                    continue
                held = passed(held, job.least, ends_in)
            room.free -= job.least
            orders.start.append((job, job.least))

    def _evictable(self, pool: Pool) -> dict[int, Runs]:
        if not self.preempts:
            return {}
        return {index: self._runs(pool, job) for index, job in pool.running.items()}

    def _may_ask(self, job: PoolJob, now: float) -> bool:
        """A trial that failed is not made again at once: a minute later things may differ."""
        if now < self._asked.get(job.index, -math.inf) + ASK_S:
            return False
        self._asked[job.index] = now
        return True

    def _runs(self, pool: Pool, job: PoolJob) -> Runs:
        now = pool.now
        return Runs(
            uid=f"{job.index:07}",
            gpus=job.least,
            due_s=self._due_running(job, now),
            ran_s=now - job.started_at,
            unsaved_s=job.unsaved_s(now, pool.costs),
            evictions=job.evictions,
        )

    def _due_running(self, job: PoolJob, now: float) -> float:
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
        running: dict[int, Runs],
        room: _Room,
        orders: Orders,
    ) -> None:
        need = job.least - room.free
        waited_s = pool.now - self._since[job.index]
        found = trial(
            Wants(f"{job.index:07}", job.least, due, waited_s),
            running.values(),
            lambda gone: sum(runs.gpus for runs in gone) >= need,
        )
        if not found.victims:
            self._soon_s = min(self._soon_s, max(ASK_S, found.wait_s))
        for runs in found.victims:
            index = int(runs.uid)
            orders.stop.append(pool.running[index])
            del running[index]
            room.free += runs.gpus

    def _reserve(self, pool: Pool, job: PoolJob, room: _Room, orders: Orders) -> Reservation:
        ending = [
            (self.book.guess(kind_of(other)).left(other.done_at(pool.now), LIKELY), other.least)
            for other in pool.running.values()
        ]
        ending += [(self.book.guess(kind_of(o)).at(LIKELY), size) for o, size in orders.start]
        return reserve(job.least, room.free, ending)


class _Behind:
    """GPUs of those that could yield to a job that is due at some moment: most jobs that wait need
    no trial to know that it would fail."""

    __slots__ = ("_dues", "_gpus")

    def __init__(self, running: Mapping[int, Runs]) -> None:
        able = sorted(
            (-job.due_s, job.gpus)
            for job in running.values()
            if job.ran_s >= run_on_s(job, LEAST_RUN_S)
        )
        self._dues = [due for due, _ in able]
        self._gpus = list(accumulate((gpus for _, gpus in able), initial=0))

    def gpus(self, due: float) -> int:
        return self._gpus[bisect_left(self._dues, -due)]


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
