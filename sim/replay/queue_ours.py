"""The product's own queue on the pool: its order, its trials, its reservations, its growth.

Nothing is decided here: `core.queueing` says when a job is due, `scheduler.queue.preempt` who
yields, `scheduler.queue.reserve` who may pass, `scheduler.queue.growth` who grows and
`scheduler.queue.predict` how long jobs run. This file keeps what the store would keep.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

from core.job import JobSpec
from core.queueing import LEVELS_S, WEIGHT, QueuePolicy, level_of, patience_s
from scheduler.queue.growth import Stretch, grow
from scheduler.queue.predict import EXPECTED_SHARE, Book, Kind
from scheduler.queue.preempt import LEAST_RUN_S, Runs, Wants, trial
from scheduler.queue.reserve import Reservation, may_pass, passed, reserve
from sim.replay.pool import Orders, Pool, PoolJob

TURN_S = 600.0
"""While jobs wait, the policy looks again after this long: what ran meanwhile has had more."""


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
    _running: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """Which → (its `since`, until when this holds, when it would be due)."""

    def arrived(self, job: PoolJob, now: float) -> None:
        del now
        guess = self.book.guess(kind_of(job))
        self._expected[job.index] = guess.at(EXPECTED_SHARE) if guess.known else None
        self._enqueue(job, 0.0)
        self.bounds[job.index] = self._due(job, 0.0) - job.submit_s

    def ended(self, job: PoolJob, now: float) -> None:
        del now
        self.book.add(kind_of(job), job.work_s)
        del self._expected[job.index]
        self._running.pop(job.index, None)

    def _enqueue(self, job: PoolJob, had_s: float) -> None:
        insort(self.queue, (self._due(job, had_s), job.index))

    def _due(self, job: PoolJob, had_s: float) -> float:
        """Measured from the submission: one that was evicted must not begin to age anew."""
        expected = self._expected[job.index]
        return job.submit_s + patience_s(spec_of(job.gpus), had_s * job.gpus, self.rules, expected)

    def decide(self, pool: Pool) -> Orders:
        orders = Orders()
        if self.queue:
            room = _Room(pool)
            if self.preempts:
                self._serve(pool, room, orders)
            else:
                self._backfill(pool, room, orders)
            started = {job.index for job, _ in orders.start}
            self.queue = [entry for entry in self.queue if entry[1] not in started]
            for job in orders.stop:
                self._enqueue(job, job.done_at(pool.now))
        _stretch(pool, orders)
        if self.queue and self.preempts:
            orders.look_at = pool.now + TURN_S
        return orders

    # --- with evictions

    def _serve(self, pool: Pool, room: _Room, orders: Orders) -> None:
        """In the order of the queue: whoever fits starts; one that does not may find others that
        yield to it."""
        now = pool.now
        running = {
            index: (self._due_running(job, now), job)
            for index, job in pool.running.items()
            if now - job.started_at >= LEAST_RUN_S
        }
        evictable = _Evictable(running)
        for due, index in self.queue:
            job = pool.waiting[index]
            if job.least > room.free and evictable.behind(due) >= job.least - room.free:
                self._make_room(pool, job, due, running, room, orders)
                evictable = _Evictable(running)
            if job.least <= room.free:
                room.free -= job.least
                orders.start.append((job, job.least))
            elif not room.free and not evictable.behind(due):
                break

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

    @staticmethod
    def _make_room(
        pool: Pool, job: PoolJob, due: float, running: _Running, room: _Room, orders: Orders
    ) -> None:
        now, need = pool.now, job.least - room.free
        found = trial(
            Wants(f"{job.index:07}", job.least, due),
            (
                Runs(
                    uid=f"{other.index:07}",
                    gpus=other.least,
                    due_s=later,
                    ran_s=now - other.started_at,
                    unsaved_s=other.unsaved_s(now, pool.costs),
                )
                for later, other in running.values()
            ),
            lambda gone: sum(runs.gpus for runs in gone) >= need,
        )
        for runs in found.victims:
            index = int(runs.uid)
            orders.stop.append(pool.running[index])
            del running[index]
            room.free += runs.gpus

    # --- without

    def _backfill(self, pool: Pool, room: _Room, orders: Orders) -> None:
        """Whoever fits starts. The first that does not, once it is due, has a reservation."""
        held: Reservation | None = None
        for due, index in self.queue:
            if not room.free:
                break
            job = pool.waiting[index]
            if job.least > room.free:
                if held is None and due <= pool.now:
                    held = self._reserve(pool, job, room, orders)
                continue
            if held is not None:
                ends_in = self.book.guess(kind_of(job)).at(0.9)
                if not may_pass(held, job.least, ends_in):
                    continue
                held = passed(held, job.least, ends_in)
            room.free -= job.least
            orders.start.append((job, job.least))

    def _reserve(self, pool: Pool, job: PoolJob, room: _Room, orders: Orders) -> Reservation:
        ending = [
            (self.book.guess(kind_of(other)).left(other.done_at(pool.now), 0.5), other.least)
            for other in pool.running.values()
        ]
        ending += [(self.book.guess(kind_of(o)).at(0.5), size) for o, size in orders.start]
        return reserve(job.least, room.free, ending)


_Running = dict[int, tuple[float, PoolJob]]
"""When each would be due, of those that have run long enough to be evicted."""


class _Evictable:
    """GPUs of those that could yield to a job that is due at some moment: most jobs that wait need
    no trial to know that it would fail."""

    __slots__ = ("_dues", "_gpus")

    def __init__(self, running: _Running) -> None:
        able = sorted((-due, job.least) for due, job in running.values())
        self._dues = [due for due, _ in able]
        self._gpus = list(accumulate((gpus for _, gpus in able), initial=0))

    def behind(self, due: float) -> int:
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
