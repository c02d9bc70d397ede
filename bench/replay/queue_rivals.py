"""What others do with a queue, and what could be done by one who knows all run times."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from heapq import merge
from itertools import accumulate
from statistics import median

from bench.replay.pool import Orders, PoolJob, ReplayPool

HOUR_S = 3600.0
LAS_GPU_S = tuple(hours * HOUR_S for hours in (0.5, 2, 8, 32, 128))
REMEMBERED = 30


class Fifo:
    """Strictly in the order of arrival: a job that does not fit holds up all behind it."""

    def arrived(self, job: PoolJob, now: float) -> None:
        del job, now

    def ended(self, job: PoolJob, now: float) -> None:
        del job, now

    def decide(self, pool: ReplayPool) -> Orders:
        orders, free = Orders(), pool.free
        for job in pool.waiting.values():
            if job.gpus > free:
                break
            orders.start.append((job, job.gpus))
            free -= job.gpus
        return orders


class Easy(Fifo):
    """First come, first served; the first that does not fit has a reservation, and others pass
    only if they do not delay it. Knows run times exactly."""

    def decide(self, pool: ReplayPool) -> Orders:
        orders = super().decide(pool)
        free = pool.free - sum(size for _, size in orders.start)
        rest = list(pool.waiting.values())[len(orders.start) :]
        if not rest or not free:
            return orders
        head = rest[0]
        ends = [(job.since + job.work_s - job.done_s, job.gpus) for job in pool.running.values()]
        ends += [(pool.now + job.work_s, size) for job, size in orders.start]
        ends.sort()
        then = list(accumulate((gpus for _, gpus in ends), initial=free))
        first = bisect_left(then, head.gpus)  # how many must end
        at, spare = ends[first - 1][0], then[first] - head.gpus
        for job in rest[1:]:
            if job.gpus > free:
                continue
            if pool.now + job.work_s > at:
                if job.gpus > spare:
                    continue
                spare -= job.gpus
            orders.start.append((job, job.gpus))
            free -= job.gpus
            if not free:
                break
        return orders


class Fill:
    """In the order of a key that is fixed at arrival; whatever fits may start."""

    def __init__(self, key: Callable[[PoolJob], float] = lambda job: job.submit_s) -> None:
        self._key = key
        self._queue: list[tuple[float, int]] = []

    def arrived(self, job: PoolJob, now: float) -> None:
        del now
        insort(self._queue, (self._key(job), job.index))

    def ended(self, job: PoolJob, now: float) -> None:
        del job, now

    def decide(self, pool: ReplayPool) -> Orders:
        orders, free = Orders(), pool.free
        if not free:
            return orders
        for _, index in self._queue:
            job = pool.waiting[index]
            if job.gpus <= free:
                orders.start.append((job, job.gpus))
                free -= job.gpus
                if not free:
                    break
        started = {job.index for job, _ in orders.start}
        self._queue = [entry for entry in self._queue if entry[1] not in started]
        return orders


class ShortestPredicted(Fill):
    """Fewest predicted GPU-seconds first: the median of the last 30 of the same tenant and size."""

    def __init__(self) -> None:
        super().__init__(self._predicted)
        self._ran: dict[tuple[str, int], list[float]] = {}
        self._any: list[float] = []

    def _predicted(self, job: PoolJob) -> float:
        seen = self._ran.get((job.tenant, job.gpus)) or self._any
        return job.gpus * (median(seen) if seen else HOUR_S)

    def ended(self, job: PoolJob, now: float) -> None:
        del now
        for seen in (self._ran.setdefault((job.tenant, job.gpus), []), self._any):
            seen.append(job.work_s)
            del seen[:-REMEMBERED]


def shortest_known() -> Fill:
    """Fewest GPU-seconds first, known beforehand; nobody is preempted."""
    return Fill(lambda job: job.gpus * job.work_s)


class Preemptive:
    """At each moment the first jobs in the order of a key run, and no others; jobs that do not fit
    are skipped. Waiting does not change a key, running does."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, float, int]] = []
        self._keys: dict[int, tuple[float, float, int]] = {}

    def key(self, job: PoolJob, now: float) -> tuple[float, float]:
        raise NotImplementedError

    def changes_at(self, job: PoolJob, now: float) -> float:
        """When the key of a running job moves by itself."""
        del job, now
        return math.inf

    def arrived(self, job: PoolJob, now: float) -> None:
        entry = (*self.key(job, now), job.index)
        self._keys[job.index] = entry
        insort(self._queue, entry)

    def ended(self, job: PoolJob, now: float) -> None:
        del job, now

    def decide(self, pool: ReplayPool) -> Orders:
        now, orders = pool.now, Orders()
        running = sorted((*self.key(job, now), job.index) for job in pool.running.values())
        free, kept = pool.gpus, set[int]()
        # Lazily: of thousands that wait, those behind the last GPU need not be looked at.
        for entry in merge(running, self._queue):
            job = pool.running.get(entry[2]) or pool.waiting[entry[2]]
            if job.gpus > free:
                continue
            free -= job.gpus
            kept.add(job.index)
            if not job.runs:
                orders.start.append((job, job.gpus))
            orders.look_at = min(orders.look_at, self.changes_at(job, now))
            if not free:
                break
        orders.stop = [job for job in pool.running.values() if job.index not in kept]
        for job, _ in orders.start:
            del self._queue[bisect_left(self._queue, self._keys.pop(job.index))]
        for job in orders.stop:
            self.arrived(job, now)
        return orders


class Las(Preemptive):
    """Least attained service in queues (2D-LAS): by GPU-seconds had, in steps, then arrival."""

    def key(self, job: PoolJob, now: float) -> tuple[float, float]:
        return self._level(job.done_at(now) * job.gpus), job.submit_s

    @staticmethod
    def _level(had: float) -> int:
        # A hair more: a job that has just reached a step must not be asked about it again.
        return bisect_right(LAS_GPU_S, had + 0.5)

    def changes_at(self, job: PoolJob, now: float) -> float:
        done = job.done_at(now)
        level = self._level(done * job.gpus)
        if level == len(LAS_GPU_S):
            return math.inf
        begins = max(now, job.since) if job.runs else now
        return begins + LAS_GPU_S[level] / job.gpus - done


class Oracle(Preemptive):
    """Fewest remaining GPU-seconds first, known exactly: what no policy without a crystal ball can
    be expected to reach."""

    def key(self, job: PoolJob, now: float) -> tuple[float, float]:
        return (job.work_s - job.done_at(now)) * job.gpus, job.submit_s
