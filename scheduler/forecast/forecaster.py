"""Tells waiting jobs when they will start, while we lead: in a task of its own beside the loop, at
its own pace. The loop hands over its snapshot and what moved, and waits for nothing."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from config.live import LiveSettings
from core.active import take_census
from core.changes import PutForecast, Snapshot
from core.cluster import ClusterSpec
from core.errors import TermPassed
from core.forecast import Forecast, Record, Told
from core.job import LEASED, Job, S
from core.ports import Clock, Store
from core.queueing import HeadsOf
from core.tenants import Holding, machines_of
from scheduler.forecast.eligibility import line_up
from scheduler.forecast.estimates import Played, held, plays_of, tell
from scheduler.forecast.pool import Guesses, Seen, cap_of, pool_of
from scheduler.forecast.queue_simulation import (
    AHEAD_MAX,
    PLAYS,
    Calibration,
    ForecastAccuracy,
    TenantCap,
)
from scheduler.operations.metrics import Metrics
from scheduler.queue.budgets import BudgetStatus
from scheduler.queue.fair_share import Shares, shares_of
from scheduler.queue.guaranteed_start import protected_at
from scheduler.queue.order import ranked

log = structlog.get_logger("forecasts")
EVERY_CYCLES = 10
"""After as many cycles of an idle loop."""
SAME_S = 60.0
"""When nothing has moved, the clock has: what runs is older."""
SLICE_S, BREATH_S = 0.004, 0.02
"""The loop is in the same thread. Without pauses the plays would be played while a cycle waits for
the database, one at each of its steps: the cycle would take as long as all of them."""
TOLD_MAX = 20_000
LESSONS = 4
"""A thousand jobs of an array that are told together are late together, or none is: that is a few
lessons, not a thousand."""

Moves = Iterable[tuple[Job, Job]]


@dataclass(frozen=True, slots=True)
class _First:
    """What a job was told first."""

    cluster: str
    told: Told


@dataclass(slots=True)
class _Memory:
    """What jobs were told first, and how true that was."""

    records: dict[str, Record] = field(default_factory=dict)
    told: OrderedDict[str, _First] = field(default_factory=OrderedDict)
    """By job."""
    published: dict[str, Forecast] = field(default_factory=dict)
    lessons: dict[str, ForecastAccuracy] = field(default_factory=dict)
    """By cluster."""

    def learning(self, cluster: str) -> ForecastAccuracy:
        if cluster not in self.lessons:
            record = self.records.get(cluster, Record())
            self.lessons[cluster] = ForecastAccuracy(
                Calibration(record.p50_factor, record.p90_factor)
            )
        return self.lessons[cluster]

    def first(self, uid: str, cluster: str) -> Told | None:
        """What the job was told first about this cluster."""
        known = self.told.get(uid)
        return known.told if known is not None and known.cluster == cluster else None

    def unsaid(self, cluster: str) -> bool:
        """Whether what was said last is not true any more, though nobody waits."""
        last, record = self.published.get(cluster), self.records.get(cluster, Record())
        return last is not None and (bool(last.jobs) or last.record != record)

    def keep(self, forecast: Forecast) -> None:
        self.published[forecast.cluster] = forecast
        told = {uid: said.first for uid, said in forecast.jobs.items() if said.first is not None}
        together = Counter(first.at for first in told.values())
        for uid, first in told.items():
            if uid not in self.told:
                weight = min(1.0, LESSONS / together[first.at])
                self.told[uid] = _First(forecast.cluster, first)
                moments = (first.p50_at.timestamp(), first.p90_at.timestamp())
                self.learning(forecast.cluster).tell(uid, *moments, weight)
        while len(self.told) > TOLD_MAX:
            self.told.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _House:
    """What concerns all clusters."""

    snapshot: Snapshot
    """Its `active` goes on: what is read of it later is newer, never torn."""
    shares: Shares
    holding: Mapping[str, Holding]
    admitted: Sequence[Job]


class Forecaster:
    """Plays each cluster's queue forward and writes down what comes of it."""

    def __init__(
        self,
        store: Store,
        guess: Guesses,
        term: Callable[[], int],
        metrics: Metrics,
        clock: Clock,
        settings: LiveSettings,
        budgets: Callable[[], BudgetStatus],
    ) -> None:
        self._store = store
        self._guess = guess
        self._term = term
        self._metrics = metrics
        self._clock = clock
        self._live, self._budgets = settings, budgets
        self._settings = settings.current
        """Of the pass under way."""
        self._memory = _Memory()
        self._snapshot: Snapshot | None = None
        self._since = clock.monotonic()
        """When it breathed last."""
        self._marks: dict[str, tuple[int, float]] = {}
        """Cluster → what its last forecast was made of, and when."""

    def seen(self, snapshot: Snapshot, moves: Moves) -> None:
        """Called by the loop after each cycle: costs what moved."""
        self._snapshot = snapshot
        for before, after in moves:
            if after.status is S.RUNNING and before.status is not S.RUNNING:
                self._started(after)

    async def run(self) -> None:
        """For ever, while we lead."""
        await self.restore()
        while True:
            try:
                await self.look()
            except TermPassed as error:
                log.warning("not written: another leads", why=str(error))
            await asyncio.sleep(EVERY_CYCLES * self._live.current.timers.loop_interval_s)

    async def restore(self) -> None:
        """What the leader before us said and learned."""
        for forecast in await self._store.forecasts():
            self._memory.records.setdefault(forecast.cluster, forecast.record)
            self._memory.keep(forecast)

    async def look(self) -> None:
        if self._snapshot is None:
            return
        self._settings = self._live.current
        house = self._house(self._snapshot)
        queues = await self._queues(house)
        for name, spec in self._settings.by_name.items():
            queue = queues.get(name, ())
            if queue or self._memory.unsaid(name):
                await self._tell(spec, house, queue)

    def _house(self, snapshot: Snapshot) -> _House:
        settings, active = self._settings, snapshot.active
        census = take_census(snapshot.jobs) if active is None else active.census.after(())
        shares = shares_of(
            snapshot.tenants,
            snapshot.usage,
            census,
            snapshot.now,
            settings.queue,
            settings.capacity.typical_run_s,
        )
        if active is not None:
            admitted = [active.jobs[uid] for uid in active.admitted]
        else:
            admitted = [job for job in snapshot.jobs if job.status is S.PROVISIONING]
        return _House(snapshot, shares, dict(census.holding), admitted)

    async def _queues(self, house: _House) -> dict[str, list[Job]]:
        """By cluster the waiting jobs, as far as they are simulated; without those whose tenant may
        start nothing: when the budget allows it again is known, when they are next is not."""
        held = self._budgets().held
        tenants = tuple(name for name in house.shares.in_order() if name not in held)
        specs = self._settings.clusters
        wanted = [HeadsOf(spec.name, AHEAD_MAX, spec.queue, tenants, True) for spec in specs]
        found = {job.uid: job for job in await self._store.heads(wanted, AHEAD_MAX)}
        found.update((job.uid, job) for job in house.admitted)
        queues: dict[str, list[Job]] = {}
        for job in found.values():
            if job.spec.tenant_id not in held:
                queues.setdefault(job.cluster, []).append(job)
        return queues

    async def _tell(self, spec: ClusterSpec, house: _House, queue: Sequence[Job]) -> None:
        guess, memory, mine = self._guess, self._memory, house.snapshot.only(spec.name)
        if not self._news(spec, mine, queue):
            return
        await self._breathe()
        pool = pool_of(self._seen(spec, mine), guess)
        await self._breathe()
        longest_s = self._settings.timers.max_runtime_s
        protected = protected_at(mine.now, longest_s)
        order = ranked(queue, spec.queue, house.shares, protected)
        line = line_up(spec, order, pool, guess, mine.now)
        plays = plays_of(spec, pool, line, guess, self._caps(spec, house, queue))
        for number in range(PLAYS if line.playable else 0):
            await self._breathe()
            plays.play(number)
        await self._breathe()
        lessons = memory.learning(spec.name)
        lessons.look(mine.now.timestamp(), {job.gang_uid for job in queue})
        record = replace(
            memory.records.get(spec.name, Record()),
            p50_factor=lessons.learned.p50,
            p90_factor=lessons.learned.p90,
        )
        memory.records[spec.name] = record
        played = Played(pool, line, plays.etas())
        said = tell(spec.name, mine.now, played, guess, record, memory.first)
        await self._breathe()
        await self._put(said)

    async def _breathe(self) -> None:
        """If it is time to."""
        if self._clock.monotonic() - self._since >= SLICE_S:
            await asyncio.sleep(BREATH_S)
            self._since = self._clock.monotonic()

    def _seen(self, spec: ClusterSpec, mine: Snapshot) -> Seen:
        return Seen(
            spec,
            mine.now,
            mine.jobs_in(*LEASED),
            [vm for vm in mine.vms if vm.counted],
            mine.blocks,
            mine.supply,
            self._settings.timers,
            self._settings.capacity,
        )

    def _news(self, spec: ClusterSpec, mine: Snapshot, queue: Sequence[Job]) -> bool:
        """Whether a pass would say anything else than the last one did."""
        marks = (
            spec,
            self._memory.records.get(spec.name),
            tuple((vm.uid, vm.version) for vm in mine.vms),
            tuple((job.uid, job.version) for job in (*mine.jobs, *queue)),
            tuple((block.key, block.until) for block in mine.blocks),
        )
        mark, now = hash(marks), self._clock.monotonic()
        last = self._marks.get(spec.name)
        if last is not None and last[0] == mark and now - last[1] < SAME_S:
            return False
        self._marks[spec.name] = (mark, now)
        return True

    def _caps(self, spec: ClusterSpec, house: _House, queue: Sequence[Job]) -> dict[str, TenantCap]:
        machines = machines_of(self._settings.clusters)
        found = {}
        for name in {job.spec.tenant_id for job in queue}:
            tenant = house.snapshot.tenants.get(name)
            holding = house.holding.get(name, {})
            cap = cap_of(tenant, holding, spec.name, machines) if tenant is not None else None
            if cap is not None:
                found[name] = cap
        return found

    async def _put(self, forecast: Forecast) -> None:
        had = self._memory.published.get(forecast.cluster)
        if had is None or replace(had, computed_at=forecast.computed_at) != forecast:
            await self._store.commit([(PutForecast(forecast),)], self._term())
        self._memory.keep(forecast)

    def _started(self, job: Job) -> None:
        memory, at = self._memory, job.started_at
        first = memory.told.pop(job.gang_uid, None)
        if first is None or at is None:
            return
        cluster, told = first.cluster, first.told
        lessons = memory.learning(cluster)
        lessons.started(job.gang_uid, at.timestamp())
        record = memory.records.get(cluster, Record())
        memory.records[cluster] = held(record, told, at, lessons.learned)
        self._metrics.eta(cluster, p50=at <= told.p50_at, p90=at <= told.p90_at)
