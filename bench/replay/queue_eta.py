"""How true the ETAs are: each was told when the job came, and is held against what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from bench.replay.pool import Orders, PoolJob, ReplayPool
from bench.replay.queue_product import TENANT, ProductQueue, moment_of, uid_of
from core.active import take_census
from core.forecast import Record, Told
from core.job import LEASED
from core.queueing import HeadsOf
from scheduler.forecast.eligibility import line_up
from scheduler.forecast.estimates import Played, plays_of, tell
from scheduler.forecast.pool import Seen, pool_of
from scheduler.forecast.queue_simulation import AHEAD_MAX, PLAYS, Eta, ForecastAccuracy
from scheduler.queue.fair_share import shares_of
from scheduler.queue.guaranteed_start import protected_at
from scheduler.queue.order import ranked


@dataclass(slots=True)
class Asking(ProductQueue):
    """The product's queue and forecast: every nth job that has to wait is told when it starts."""

    every: int = 3
    lessons: ForecastAccuracy = field(default_factory=ForecastAccuracy)
    told: dict[int, Eta] = field(default_factory=dict)
    outcomes: list[tuple[Eta, float]] = field(default_factory=list)
    """What a job was told, and how long it waited until its first start."""
    _asked_now: list[int] = field(default_factory=list)

    def arrived(self, job: PoolJob, now: float) -> None:
        ProductQueue.arrived(self, job, now)
        if job.index % self.every == 0:
            self._asked_now.append(job.index)

    def decide(self, pool: ReplayPool) -> Orders:
        self.lessons.look(pool.now, {f"{index}" for index in self.told})
        orders = ProductQueue.decide(self, pool)
        started = {job.index for job, _ in orders.start}
        for index in sorted(started & self.told.keys()):
            told = self.told.pop(index)
            waited = pool.now - pool.waiting[index].submit_s
            self.outcomes.append((told, waited))
            self.lessons.started(f"{index}", pool.now)
        asked = [pool.waiting[index] for index in self._asked_now if index not in started]
        for job in asked:
            if (said := self._ask(moment_of(pool.now), job)) is not None:
                times = [(at - moment_of(job.submit_s)) for at in (said.p50_at, said.p90_at)]
                eta = Eta(times[0].total_seconds(), times[1].total_seconds())
                self.told[job.index] = eta
                self.lessons.tell(
                    f"{job.index}", job.submit_s + eta.p50_s, job.submit_s + eta.p90_s
                )
        self._asked_now.clear()
        return orders

    def _ask(self, now: datetime, job: PoolJob) -> Told | None:
        """As the service tells it; None: it is too far back to be played."""
        assert self.cluster is not None, "the pool was seen before"
        cluster, tables, rules = self.cluster, self.tables, self.rules
        heads = HeadsOf(cluster.name, AHEAD_MAX, cluster.queue, (TENANT,), backing_off=True)
        queue = [tables.jobs[uid].job for uid in tables.heads_of(heads, AHEAD_MAX, now)]
        queue += [tables.active.jobs[uid] for uid in tables.active.admitted]
        leased = [one for one in tables.active.jobs.values() if one.status in LEASED]
        vms = tuple(tables.active.vms.values())
        pool = pool_of(Seen(cluster, now, leased, vms, timers=rules.timers), self.guess)
        census = take_census(leased)
        shares = shares_of(tables.tenants, tables.usage, census, now, rules.queue, 0.0)
        order = ranked(queue, cluster.queue, shares, protected_at(now, self.longest_s))
        line = line_up(cluster, order, pool, self.guess, now)
        plays = plays_of(cluster, pool, line, self.guess, {})
        for number in range(PLAYS):
            plays.play(number)
        learned = self.lessons.learned
        record = Record(p50_factor=learned.p50, p90_factor=learned.p90)
        played = Played(pool, line, plays.etas())
        said = tell(cluster.name, now, played, self.guess, record).jobs.get(uid_of(job))
        return said.told if said is not None else None


@dataclass(frozen=True, slots=True)
class Truth:
    """Of all ETAs together."""

    told: int
    p50_holds: float
    p90_holds: float
    pinball: float
    """Mean over the two quantiles, seconds."""
    pinball_global: float
    """Of the best single pair of numbers for all jobs, chosen with hindsight."""

    @property
    def ratio(self) -> float:
        return self.pinball / self.pinball_global if self.pinball_global else 1.0


def truth_of(outcomes: Sequence[tuple[Eta, float]]) -> Truth:
    waits = sorted(waited for _, waited in outcomes)
    count = len(waits)
    whole = {share: waits[min(count - 1, int(share * count))] for share in (0.5, 0.9)}
    mine = other = 0.0
    for eta, waited in outcomes:
        mine += _pinball(0.5, eta.p50_s, waited) + _pinball(0.9, eta.p90_s, waited)
        other += _pinball(0.5, whole[0.5], waited) + _pinball(0.9, whole[0.9], waited)
    return Truth(
        told=count,
        p50_holds=sum(waited <= eta.p50_s for eta, waited in outcomes) / count,
        p90_holds=sum(waited <= eta.p90_s for eta, waited in outcomes) / count,
        pinball=mine / (2 * count),
        pinball_global=other / (2 * count),
    )


def _pinball(share: float, told: float, came: float) -> float:
    return max(share * (came - told), (share - 1.0) * (came - told))
