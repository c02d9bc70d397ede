"""What each tenant has had beside its weight. Pure.

A share is decayed: what was used counts half after a half-life. Keyed on what runs at the moment
alone it would flip with every start and end. What a running job will cost is not known, so it is
charged ahead for a typical run: a tenant that has just been served goes behind at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.job import LEASED, Job
from core.queueing import QueuePolicy
from core.tenants import Holding, Tally, Tenant, Usage


@dataclass(slots=True)
class Census:
    """All jobs that hold a VM, in sums: one that comes or goes costs a few additions."""

    leased: Counter[str] = field(default_factory=Counter)
    """Cluster → jobs with a VM."""
    gpus: Counter[str] = field(default_factory=Counter)
    """Tenant → GPUs at work."""
    began: dict[str, float] = field(default_factory=dict)
    """Tenant → sum of GPUs × the moment since which they work."""
    holding: dict[str, Holding] = field(default_factory=dict)
    """Tenant → cluster → what its leased jobs hold."""

    def count(self, job: Job, sign: int = 1) -> None:
        """The job gets a VM, or loses it."""
        tenant, gpus = job.spec.tenant_id, job.spec.gpu_count * sign
        since = (job.started_at or job.status_since).timestamp()
        self.leased[job.cluster] += sign
        self.gpus[tenant] += gpus
        self.began[tenant] = self.began.get(tenant, 0.0) + gpus * since
        mine = self.holding.get(tenant, {})
        tally = mine.get(job.cluster, Tally()).plus(Tally.of(job.spec), sign)
        self.holding[tenant] = {**mine, job.cluster: tally}

    def after(self, moves: Iterable[tuple[Job, Job]]) -> Census:
        """The same after the steps of a turn."""
        copy = Census(
            Counter(self.leased), Counter(self.gpus), dict(self.began), dict(self.holding)
        )
        for before, after in moves:
            if before.status in LEASED:
                copy.count(before, -1)
            if after.status in LEASED:
                copy.count(after)
        return copy

    def gpu_s(self, tenant: str, now: datetime, ahead_s: float) -> float:
        """What its jobs that run have used, and will."""
        gpus = self.gpus[tenant]
        return gpus * (now.timestamp() + ahead_s) - self.began[tenant] if gpus else 0.0


def take_census(jobs: Iterable[Job]) -> Census:
    """One look at all jobs."""
    found = Census()
    for job in jobs:
        if job.status in LEASED:
            found.count(job)
    return found


class CensusKeeper:
    """A census from turn to turn. A job at a version is the same value each time, so only those
    that moved are counted anew: a turn costs what has changed, not what runs."""

    def __init__(self) -> None:
        self.census = Census()
        self._seen: dict[str, Job] = {}

    def look(self, jobs: Sequence[Job]) -> Census:
        """`jobs`: all that hold a VM or await one."""
        seen, now = self._seen, {job.uid: job for job in jobs}
        moves = [job for uid, job in now.items() if seen.get(uid) is not job]
        gone = [seen[uid] for uid in seen.keys() - now.keys()]
        gone += [seen[job.uid] for job in moves if job.uid in seen]
        # In a new one: whoever still has the last is not surprised.
        census = self.census.after(())
        for job in gone:
            if job.status in LEASED:
                census.count(job, -1)
        for job in moves:
            if job.status in LEASED:
                census.count(job)
        self.census, self._seen = census, now
        return census


@dataclass(frozen=True, slots=True)
class Shares:
    """Who has had how much."""

    used: Mapping[str, float]
    """Tenant → (decayed GPU-seconds + what runs) ÷ weight."""
    weights: Mapping[str, float]
    ahead_s: float
    hysteresis: float

    def used_by(self, tenant: str) -> float:
        return self.used.get(tenant, 0.0)

    def cost(self, job: Job) -> float:
        """What one more job adds to its tenant's share."""
        weight = self.weights.get(job.spec.tenant_id, 1.0)
        return job.spec.gpu_count * self.ahead_s / weight

    def in_order(self) -> list[str]:
        """Tenants, those first that have had least."""
        return sorted(self.weights, key=lambda tenant: (self.used_by(tenant), tenant))


def shares_of(
    tenants: Mapping[str, Tenant],
    usage: Mapping[str, Usage],
    census: Census,
    now: datetime,
    policy: QueuePolicy,
    ahead_s: float,
) -> Shares:
    """For this turn."""
    weights = {name: tenant.weight for name, tenant in tenants.items()}
    used: dict[str, float] = {}
    for name in {*weights, *census.gpus}:
        past = usage[name].decayed(now, policy.half_life_s) if name in usage else 0.0
        used[name] = (past + census.gpu_s(name, now, ahead_s)) / weights.get(name, 1.0)
    return Shares(used, weights, ahead_s, policy.hysteresis)
