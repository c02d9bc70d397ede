"""Recorded jobs on a fixed pool of GPUs, in virtual time: who runs when is a policy's to say.

The pool is one place: any free GPUs serve any job, so that policies differ and packing does not.
A job runs at its recorded size, all GPUs or none; an elastic one between a quarter and twice that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scheduler.placement.elastic_growth import speed
from sim.replay.workload import TraceJob

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Costs:
    """What a preemption costs, the same for every policy."""

    checkpoint_s: float = 0.0
    """Work since the last multiple of this is lost; 0: nothing is lost."""
    restart_s: float = 0.0
    """GPUs that are held without work after each start but the first."""


class PoolJob:
    """One job in the pool."""

    __slots__ = (
        "done_s",
        "elastic",
        "ended_at",
        "first_at",
        "gpus",
        "held_gpu_s",
        "index",
        "lost_gpu_s",
        "placed_at",
        "preemptions",
        "since",
        "size",
        "started_at",
        "submit_s",
        "tenant",
        "work_s",
    )  # fmt: skip

    def __init__(self, index: int, job: TraceJob, elastic: bool) -> None:
        self.index = index
        self.submit_s = job.submit_s
        self.work_s = max(job.duration_s, 1.0)
        self.gpus = job.gpus
        self.tenant = job.group
        self.elastic = elastic
        self.size = 0
        """GPUs held now; 0: it waits."""
        self.done_s = 0.0
        """Work that is done at `since`, in seconds at its usual size."""
        self.since = 0.0
        """Up to when `done_s` counts; later than now while it restarts."""
        self.started_at = 0.0
        """Of the attempt that runs."""
        self.placed_at = 0.0
        """Since when it has this size."""
        self.first_at = math.inf
        self.ended_at = math.inf
        self.preemptions = 0
        self.held_gpu_s = 0.0
        self.lost_gpu_s = 0.0

    @property
    def runs(self) -> bool:
        return self.size > 0

    @property
    def least(self) -> int:
        return -(-self.gpus // 4) if self.elastic else self.gpus

    @property
    def most(self) -> int:
        return 2 * self.gpus if self.elastic else self.gpus

    @property
    def rate(self) -> float:
        return 1.0 if self.size == self.gpus else speed(self.size, self.gpus)

    def done_at(self, now: float) -> float:
        """Work done by now."""
        if not self.size or now <= self.since:
            return self.done_s
        return self.done_s + (now - self.since) * self.rate

    def unsaved_s(self, now: float, costs: Costs) -> float:
        """Work that a preemption would lose."""
        return self.done_at(now) % costs.checkpoint_s if costs.checkpoint_s else 0.0

    @property
    def completion_s(self) -> float:
        return self.ended_at - self.submit_s

    @property
    def wait_s(self) -> float:
        """Time without work: in the queue, at first and after each preemption."""
        return self.completion_s - self.work_s


@dataclass(slots=True)
class Orders:
    """What a policy wants now. Stops come first, then sizes, then starts."""

    start: list[tuple[PoolJob, int]] = field(default_factory=list)
    stop: list[PoolJob] = field(default_factory=list)
    resize: list[tuple[PoolJob, int]] = field(default_factory=list)
    look_at: float = math.inf
    """When to ask again if nothing happens before."""


class ReplayPool:
    """What a policy sees."""

    def __init__(self, gpus: int, costs: Costs) -> None:
        self.gpus = gpus
        self.costs = costs
        self.free = gpus
        self.now = 0.0
        self.waiting: dict[int, PoolJob] = {}
        """In the order in which they began to wait."""
        self.running: dict[int, PoolJob] = {}


class PoolPolicy(Protocol):
    """Who runs. It may keep state; it is asked at each arrival, at each end and at the moments it
    names."""

    def arrived(self, job: PoolJob, now: float) -> None: ...

    def ended(self, job: PoolJob, now: float) -> None: ...

    def decide(self, pool: ReplayPool) -> Orders: ...


def replay(
    trace: Sequence[TraceJob],
    gpus: int,
    policy: PoolPolicy,
    costs: Costs = Costs(),  # noqa: B008 - frozen
    elastic: Iterable[int] = (),
) -> list[PoolJob]:
    """All jobs, ended. `elastic`: places in the trace of jobs that may change their size."""
    bends = frozenset(elastic)
    jobs = [PoolJob(i, job, i in bends) for i, job in enumerate(trace)]
    too_big = next((job for job in jobs if job.gpus > gpus), None)
    if too_big is not None:
        raise ValueError(f"a job of {too_big.gpus} GPUs in a pool of {gpus} would wait for ever")
    run = _Run(ReplayPool(gpus, costs), policy)
    run.through(jobs)
    _balance(jobs)
    return jobs


class _Run:
    def __init__(self, pool: ReplayPool, policy: PoolPolicy) -> None:
        self.pool = pool
        self.policy = policy
        self.ends: list[tuple[float, int, float]] = []
        """(when, which, its `since` at that time): stale if the job moved meanwhile."""
        self.jobs: Sequence[PoolJob] = ()

    def through(self, jobs: Sequence[PoolJob]) -> None:
        self.jobs = jobs
        pool, policy, ends = self.pool, self.policy, self.ends
        arrived = finished = 0
        look_at = math.inf
        while finished < len(jobs):
            while ends and self._stale(ends[0]):
                heapq.heappop(ends)
            coming = jobs[arrived].submit_s if arrived < len(jobs) else math.inf
            now = min(coming, ends[0][0] if ends else math.inf, look_at)
            assert math.isfinite(now), "jobs wait, and nothing will ever happen"
            pool.now = now
            while arrived < len(jobs) and jobs[arrived].submit_s <= now:
                job = jobs[arrived]
                arrived += 1
                pool.waiting[job.index] = job
                policy.arrived(job, now)
            while ends and ends[0][0] <= now:
                entry = heapq.heappop(ends)
                if not self._stale(entry):
                    self._end(jobs[entry[1]])
                    finished += 1
            look_at = self._obey(policy.decide(pool))

    def _stale(self, entry: tuple[float, int, float]) -> bool:
        job = self.jobs[entry[1]]
        return not job.runs or job.since != entry[2]

    def _end(self, job: PoolJob) -> None:
        pool = self.pool
        job.done_s = job.work_s
        self._release(job)
        job.ended_at = pool.now
        self.policy.ended(job, pool.now)

    def _release(self, job: PoolJob) -> None:
        pool = self.pool
        job.held_gpu_s += job.size * (pool.now - job.placed_at)
        pool.free += job.size
        job.size = 0
        del pool.running[job.index]

    def _obey(self, orders: Orders) -> float:
        pool = self.pool
        for job in orders.stop:
            unsaved = job.unsaved_s(pool.now, pool.costs)
            job.done_s = job.done_at(pool.now) - unsaved
            job.lost_gpu_s += unsaved * job.gpus
            job.preemptions += 1
            self._release(job)
            pool.waiting[job.index] = job
        for job, size in sorted(orders.resize, key=lambda pair: pair[1] - pair[0].size):
            self._resize(job, size)
        for job, size in orders.start:
            self._start(job, size)
        return orders.look_at

    def _start(self, job: PoolJob, size: int) -> None:
        pool = self.pool
        assert job.least <= size <= min(job.most, pool.free), "more than there is, or a part of it"
        del pool.waiting[job.index]
        pool.running[job.index] = job
        pool.free -= size
        job.size = size
        job.first_at = min(job.first_at, pool.now)
        job.started_at = job.placed_at = pool.now
        job.since = pool.now + (pool.costs.restart_s if job.preemptions else 0.0)
        self._expect(job)

    def _resize(self, job: PoolJob, size: int) -> None:
        pool = self.pool
        assert job.least <= size <= min(job.most, pool.free + job.size)
        job.done_s = job.done_at(pool.now)
        job.held_gpu_s += job.size * (pool.now - job.placed_at)
        pool.free += job.size - size
        job.size = size
        job.placed_at = pool.now
        job.since = max(job.since, pool.now)
        self._expect(job)

    def _expect(self, job: PoolJob) -> None:
        left = (job.work_s - job.done_s) / job.rate
        heapq.heappush(self.ends, (job.since + left, job.index, job.since))


def _balance(jobs: Sequence[PoolJob]) -> None:
    """Every job ended, and no GPU-second of a rigid one is unaccounted for."""
    for job in jobs:
        assert math.isfinite(job.ended_at), "a job never ended"
        if not job.elastic:
            useful = job.work_s * job.gpus + job.lost_gpu_s
            assert job.held_gpu_s >= useful - _ROUNDING * max(1.0, useful), "work out of nothing"
