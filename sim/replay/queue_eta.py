"""How true the ETAs are: each was told when the job came, and is held against what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.forecast.queue_simulation import (
    AHEAD_MAX,
    Behind,
    Busy,
    Eta,
    Lessons,
    Waits,
    forecast,
)
from sim.replay.pool import Orders, Pool, PoolJob
from sim.replay.queue_product import Ours, kind_of


@dataclass(slots=True)
class Asking(Ours):
    """The product's queue that tells every nth job that has to wait when it will start."""

    every: int = 3
    lessons: Lessons = field(default_factory=Lessons)
    told: dict[int, Eta] = field(default_factory=dict)
    outcomes: list[tuple[Eta, float]] = field(default_factory=list)
    """What a job was told, and how long it waited until its first start."""
    _asked_now: list[int] = field(default_factory=list)

    def arrived(self, job: PoolJob, now: float) -> None:
        Ours.arrived(self, job, now)
        if job.index % self.every == 0:
            self._asked_now.append(job.index)

    def decide(self, pool: Pool) -> Orders:
        self.lessons.look(pool.now, {f"{index}" for index in self.told})
        orders = Ours.decide(self, pool)
        started = {job.index for job, _ in orders.start}
        for index in sorted(started & self.told.keys()):
            told = self.told.pop(index)
            waited = pool.now - pool.waiting[index].submit_s
            self.outcomes.append((told, waited))
            self.lessons.started(f"{index}", pool.now)
        for index in self._asked_now:
            if index not in started and (raw := self._ask(pool, orders, index)) is not None:
                told = self.told[index] = self.lessons.learned.apply(raw)
                came = pool.waiting[index].submit_s
                self.lessons.tell(f"{index}", came + told.p50_s, came + told.p90_s)
        self._asked_now.clear()
        return orders

    def _ask(self, pool: Pool, orders: Orders, index: int) -> Eta | None:
        now = pool.now
        gone = {job.index for job in orders.stop}
        running = [
            Busy(job.size, job.done_at(now), self.book.guess(kind_of(job)))
            for job in pool.running.values()
            if job.index not in gone
        ]
        running += [Busy(size, 0.0, self.book.guess(kind_of(job))) for job, size in orders.start]
        ahead = [pool.waiting[place] for _, place in self.queue[:AHEAD_MAX]]
        if not any(job.index == index for job in ahead):
            return None
        waiting = [Waits(f"{job.index}", job.least, self.book.guess(kind_of(job))) for job in ahead]
        told = forecast(pool.gpus, running, waiting, rule=Behind.BACKFILL, only=f"{index}")
        return told.get(f"{index}")


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
