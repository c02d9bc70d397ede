"""One tenant with a hundred thousand jobs beside fifty small ones, in virtual time, with the
queue's own order: nobody small waits for the whale."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime

from core.job import Job, JobSpec, S, new_job
from core.queueing import QueuePolicy, QueueRule
from core.tenants import Tenant, Usage
from scheduler.queue.order import ranked
from scheduler.queue.shares import Census, shares_of
from tests.builders import NOW, at

VMS = 40
RUN_S = 600.0
COLD_S = 46.0 + 90.0
"""What a cloud takes to give a VM, and its boot."""
IDLE_S = 300.0
SMALL = [f"small-{n}" for n in range(50)]
POLICY = QueuePolicy()


def run_s(job: Job) -> float:
    """Of each job its own: else all VMs would become free at the same moments."""
    return random.Random(job.uid).uniform(0.2, 1.8) * RUN_S


@dataclass
class Pool:
    """VMs that each run one job; one that is free takes who is next by the queue's order. A VM
    that nobody needs is given back, and a new one takes its time to come."""

    queues: dict[str, deque[Job]]
    news: list[tuple[float, str, Job | None]] = field(default_factory=list)
    """When a VM becomes free: of a job, or new."""
    idle: list[float] = field(default_factory=list)
    """Since when, the longest first."""
    vms: int = 0
    usage: dict[str, Usage] = field(default_factory=dict)
    census: Census = field(default_factory=Census)
    waits: dict[str, list[float]] = field(default_factory=dict)

    def advance(self, until: float) -> None:
        while self.news and self.news[0][0] <= until:
            moment, _, job = heapq.heappop(self.news)
            if job is not None:
                self._ended(job, moment)
            self.idle.append(moment)
            self.serve(moment)

    def serve(self, now: float) -> None:
        kept = [since for since in self.idle if now - since < IDLE_S]
        self.vms -= len(self.idle) - len(kept)
        self.idle = kept
        while self.idle and (job := self._next(now)) is not None:
            self.idle.pop()
            self._start(job, now)
        waiting = sum(min(len(queue), VMS) for queue in self.queues.values())
        coming = sum(job is None for _, _, job in self.news)
        for number in range(min(VMS - self.vms, waiting - coming)):
            self.vms += 1
            heapq.heappush(self.news, (now + COLD_S, f"vm-{now}-{number}", None))

    def _next(self, now: float) -> Job | None:
        heads = [queue[0] for queue in self.queues.values() if len(queue)]
        if not heads:
            return None
        tenants = {name: Tenant(name) for name in self.queues}
        shares = shares_of(tenants, self.usage, self.census, at(now), POLICY, RUN_S)
        return next(ranked(heads, QueueRule.FAIR, shares))

    def _start(self, job: Job, now: float) -> None:
        self.queues[job.spec.tenant_id].popleft()
        started = replace(job, status=S.RUNNING, started_at=at(now))
        self.census.count(started)
        heapq.heappush(self.news, (now + run_s(job), job.uid, started))
        waited = (at(now) - job.queued_since).total_seconds()
        self.waits.setdefault(job.spec.tenant_id, []).append(waited)

    def _ended(self, job: Job, moment: float) -> None:
        self.census.count(job, -1)
        used = self.usage.get(job.spec.tenant_id, Usage())
        charged = used.plus(run_s(job), at(moment), POLICY.half_life_s)
        self.usage[job.spec.tenant_id] = charged


class Whale(deque[Job]):
    """A hundred thousand jobs that were all submitted at once, made as they are looked at."""

    left = 100_000

    def __len__(self) -> int:
        return self.left

    def __getitem__(self, _: object) -> Job:  # type: ignore[override]
        return _job("whale", self.left, NOW)

    def popleft(self) -> Job:
        self.left -= 1
        return self[0]


def _job(tenant: str, number: int, moment: datetime) -> Job:
    spec = JobSpec(f"{tenant}-{number}", tenant_id=tenant)
    return new_job(f"{tenant}-{number:06}", spec, "1xl4", moment)


def p95_of_the_small(*, whale: bool) -> float:
    """Fifty tenants that submit in bursts, that would use more than half of the pool alone."""
    dice = random.Random(5)
    arrivals = sorted((dice.uniform(1800, 6 * 3600), tenant) for tenant in SMALL for _ in range(5))
    queues: dict[str, deque[Job]] = {tenant: deque() for tenant in SMALL}
    if whale:
        queues["whale"] = Whale()
    pool = Pool(queues)
    pool.serve(0.0)
    for number, (moment, tenant) in enumerate(arrivals):
        for copy in range(3):  # a burst
            pool.advance(moment)
            queues[tenant].append(_job(tenant, number * 3 + copy, at(moment)))
            pool.serve(moment)
    pool.advance(10 * 3600)
    waits = sorted(wait for tenant in SMALL for wait in pool.waits[tenant])
    assert len(waits) == 750
    return waits[int(len(waits) * 0.95)]


def test_small_tenants_hardly_notice_a_whale() -> None:
    """Their 95th percentile of waiting is at most twice what they have alone."""
    alone, beside = p95_of_the_small(whale=False), p95_of_the_small(whale=True)
    assert alone > 0
    assert beside <= 2 * alone
