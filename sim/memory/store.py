"""core.ports.Store in memory: it decides with the same pure guards as PostgreSQL does, passes the
same suite, and runs in virtual time. Each replica gets a door of its own to the same tables."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Literal

from core.access import EVERY_TENANT, Tenants
from core.active import ActiveRows
from core.changes import AtomicBatch, BatchParts, Committed, Snapshot
from core.commit import check_term, judge, wanted
from core.commit_writes import fold
from core.cost import SettledBills, Spent
from core.errors import StoreDown
from core.forecast import Forecast, PastRun, run_of
from core.groups import GroupKey, Owner, only_one
from core.job import WAITING, Job, JobKey, JobStatus
from core.messages import OutboxRow
from core.ports import Clock, LeaderStatus
from core.queueing import Ask, HeadsOf, Live
from core.reasons import CommitRefusal
from core.retention import RetentionRules
from core.tenants import Holding, TenantRow, Usage, holdings
from core.wakes import AT_ONCE, Wake, WakeBox
from sim.memory.cost import settle_costs, spent
from sim.memory.retention import prune
from sim.memory.tables import Leader, Tables, Written
from sim.memory.writes import apply, broken_constraint, known_of

Stage = Literal["before", "after"]
CommitHook = Callable[[Stage], Awaitable[None]]
Pause = Callable[[], Awaitable[None]]


async def _yield_once() -> None:
    """Lets the others run once, as any call over a wire does."""
    await asyncio.sleep(0)


class _Unstorable(Exception):
    """A constraint of the schema would refuse these writes."""


class MemoryStore:
    """A door to the tables.

    `on_commit("before")` runs before the guards look, `on_commit("after")` when the commit has
    taken effect and the caller does not know yet: an error or a cancellation there is a crash, or
    an answer that was lost. `pause` is the way to the database: it decides who comes first.
    """

    def __init__(
        self,
        clock: Clock,
        tables: Tables | None = None,
        *,
        on_commit: CommitHook | None = None,
        pause: Pause = _yield_once,
    ) -> None:
        self.tables = tables or Tables()
        self.on_commit = on_commit
        self.on_mark: CommitHook | None = None
        """As `on_commit`, around the small writes of their own: the lease, and what is sent."""
        self.pause = pause
        self.clock = clock
        self._down = False
        self._session = asyncio.Event()
        """Set when it ends; what comes next through this door has another one."""

    def door(
        self, *, on_commit: CommitHook | None = None, pause: Pause = _yield_once
    ) -> MemoryStore:
        """Another door to the same tables: one replica can be cut off or killed alone."""
        return MemoryStore(self.clock, self.tables, on_commit=on_commit, pause=pause)

    @property
    def history(self) -> list[Written]:
        """Every atomic batch that took effect, through whichever door."""
        return self.tables.history

    @property
    def down(self) -> bool:
        """While True every call through this door is StoreDown and no news comes through it."""
        return self._down

    @down.setter
    def down(self, down: bool) -> None:
        came_back = self._down and not down
        self._down = down
        if down:
            self._lose_session()
        if came_back:  # a fresh connection counts as a wake-up: some may have been missed
            self._wake(AT_ONCE, self)

    # --- core.ports.Store ----------------------------------------------------------------

    async def lead(self, holder: str, lease_s: float, gone_term: int | None = None) -> LeaderStatus:
        """On the tables' clock. The holder keeps its term, also past the expiry, as long
        as nobody else came."""
        assert holder, "an empty holder means that nobody leads"
        await self.reach()
        await self._mark("before")
        leadership = self._lead(holder, lease_s, gone_term)
        await self._mark("after")
        return leadership

    def _lead(self, holder: str, lease_s: float, gone_term: int | None) -> LeaderStatus:
        now = self.clock.now()
        known = self.tables.leader
        if known is None:
            known = self.tables.leader = Leader(holder, 1, now)
        elif known.holder != holder:
            gone = known.session.is_set()
            if known.expires_at > now and not (gone and known.term == gone_term):
                return LeaderStatus(False, known.term, known.holder, known.expires_at, now, gone)
            known.holder, known.term = holder, known.term + 1
        if self._session.is_set():
            self._session = asyncio.Event()
        known.session = self._session
        known.expires_at = now + timedelta(seconds=lease_s)
        return LeaderStatus(True, known.term, holder, known.expires_at, now)

    async def session_lost(self) -> None:
        await self._session.wait()

    async def resign(self, holder: str, term: int) -> None:
        await self.reach()
        known = self.tables.leader
        if known is not None and (known.holder, known.term) == (holder, term):
            known.holder, known.expires_at = "", self.clock.now()

    async def snapshot(self, queue_limit: int, ask: Ask | None = None) -> Snapshot:
        await self.reach()
        tables, now = self.tables, self.clock.now()
        if queue_limit == 0 and tables.last_snapshot is not None:
            return replace(tables.last_snapshot, now=now, arrivals=tables.arrivals(now))
        active = tables.active
        wanted: Sequence[HeadsOf] = [HeadsOf(name, queue_limit) for name in sorted(tables.queues)]
        if ask is not None and queue_limit:
            queues = [name for name, queue in sorted(tables.queues.items()) if len(queue)]
            live = ActiveRows(active.jobs)
            wanted = ask(Live(now, live, tables.tenants, tables.usage, queues, active.census))
        heads = tuple(tables.heads(wanted, queue_limit, now))
        snapshot = Snapshot(
            now=now,
            jobs=ActiveRows(active.jobs, heads),
            vms=ActiveRows(active.vms),
            blocks=tables.blocks.in_order,
            requests=tuple(
                sorted(tables.open_requests.values(), key=lambda r: (r.created_at, r.request_id))
            ),
            reasons=ChainMap(
                {job.uid: tables.jobs[job.uid].why for job in heads if job.status in WAITING},
                active.reasons,
            ),
            open_alerts={
                key: tables.alerts[number].raised_at for key, number in tables.open_alerts.items()
            },
            supply=tables.supply.in_order,
            arrivals=tables.arrivals(now),
            tenants=dict(tables.tenants),
            usage={name: tables.usage.get(name, Usage()) for name in tables.tenants},
            verdicts=tables.holds.verdicts(queue_limit),
            active=active,
            heads=heads,
        )
        if queue_limit == 0:
            tables.last_snapshot = snapshot
        return snapshot

    async def heads(self, wanted: Sequence[HeadsOf], limit: int) -> Sequence[Job]:
        await self.reach()
        now = self.clock.now()
        uids = (uid for heads in wanted for uid in self.tables.heads_of(heads, limit, now))
        return [self.tables.jobs[uid].job for uid in dict.fromkeys(uids)]

    async def runs(self, since: datetime, limit: int) -> Sequence[PastRun]:
        await self.reach()
        keys = (key for key in self.tables.ended.last(limit) if key[0] > since)
        jobs = (self.tables.jobs[uid].job for _, uid in keys)
        return [run for job in jobs if (run := run_of(job)) is not None]

    async def forecasts(self) -> Sequence[Forecast]:
        await self.reach()
        return [forecast for _, forecast in sorted(self.tables.forecasts.items())]

    async def driven(self) -> Sequence[tuple[str, str]]:
        await self.reach()
        return sorted(self.tables.regions)

    async def tenants(self) -> Sequence[TenantRow]:
        await self.reach()
        usage = self.tables.usage
        rows = sorted(self.tables.tenants.items())
        return [TenantRow(tenant, usage.get(name, Usage())) for name, tenant in rows]

    async def holdings(self, tenant_id: str | None = None) -> Mapping[str, Holding]:
        await self.reach()
        held = holdings(self.tables.live.values())
        return {name: each for name, each in held.items() if tenant_id in (None, name)}

    async def commit(self, batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        if not batches:
            return Committed(())
        await self.reach()
        await self._boundary("before")
        committed = self._commit(batches, term)
        await self._boundary("after")
        return committed

    async def commit_long(self, parts: BatchParts) -> CommitRefusal | None:
        return await self.write(tuple(chain.from_iterable(parts())))

    async def write(self, batch: AtomicBatch) -> CommitRefusal | None:
        """One atomic batch without a term: None if it was written, else the guard that refused
        it."""
        return (await self.commit([batch], None)).refusals.get(0)

    async def find_job(
        self, job_id: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> Job:
        await self.reach()
        uids = self.tables.owners.get(job_id, {})
        owners = [
            o for o in sorted(uids) if user_id in (None, o.user_id) and o.tenant_id in tenants
        ]
        owner = only_one("job", job_id, user_id, owners)
        return self.tables.jobs[uids[owner]].job

    async def find_group(
        self, group: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> GroupKey:
        await self.reach()
        owners = [
            Owner(key.tenant_id, key.user_id)
            for key in self.tables.holds.groups
            if key.group == group and user_id in (None, key.user_id) and key.tenant_id in tenants
        ]
        owner = only_one("group", group, user_id, owners)
        return GroupKey(owner.tenant_id, owner.user_id, group)

    def group_jobs(self, group: GroupKey) -> list[Job]:
        """The jobs of a group, in order."""
        return [self.tables.jobs[uid].job for uid in sorted(self.tables.holds.groups[group])]

    async def open_jobs(self, group: GroupKey, limit: int) -> Sequence[Job]:
        await self.reach()
        jobs = self.group_jobs(group)
        live = (j for j in jobs if not j.status.final and j.status is not JobStatus.STOPPING)
        return list(islice(live, limit))

    async def members(self, gang: str) -> Sequence[Job]:
        await self.reach()
        tables = self.tables
        return [tables.jobs[uid].job for _, uid in sorted(tables.holds.gangs[gang].items())]

    async def queued(self, cluster: str, tier: int, tenant_id: str, most: int) -> int:
        await self.reach()
        queue = self.tables.fair.get((cluster, tier, tenant_id))
        return min(len(queue), most) if queue is not None else 0

    async def content_hash(self, key: JobKey) -> tuple[str, str] | None:
        await self.reach()
        uid = self.tables.owners.get(key.job_id, {}).get(Owner(key.tenant_id, key.user_id))
        return None if uid is None else (uid, self.tables.jobs[uid].content_hash)

    async def outbox(
        self,
        limit: int,
        topics: Collection[str] = (),
        *,
        besides: bool = True,
        without: Collection[int] = (),
    ) -> Sequence[OutboxRow]:
        await self.reach()
        rows = self.tables.outbox.items()
        left_out = frozenset(without)
        wanted = (
            row
            for row in rows
            if (row[1].topic in topics) is not besides and row[0] not in left_out
        )
        return [OutboxRow(*row) for row in islice(wanted, limit)]

    async def published(self, outbox_ids: Sequence[int]) -> None:
        if not outbox_ids:
            return
        await self.reach()
        await self._mark("before")
        for outbox_id in outbox_ids:
            self.tables.confirm(outbox_id, self.clock.now())
        await self._mark("after")

    async def settle_costs(self, batch: int) -> SettledBills:
        await self.reach()
        return settle_costs(self.tables, batch, self.clock.now())

    async def spent(self) -> Mapping[str, Spent]:
        await self.reach()
        return spent(self.tables, self.clock.now())

    async def prune(self, rules: RetentionRules, batch: int) -> Mapping[str, int]:
        await self.reach()
        self.tables.last_snapshot = None
        return prune(self.tables, rules, batch, self.clock.now())

    # --- what the listener does ----------------------------------------------------------

    async def wakeups(self) -> AsyncIterator[Wake]:
        """One item for any number of commits since the last; the first one at once."""
        news = WakeBox()
        self.tables.listeners[news] = self
        if not self._down:
            news.put(AT_ONCE)
        try:
            while True:
                yield await news.take()
        finally:
            self.tables.listeners.pop(news, None)

    def hang_up(self) -> None:
        """The process behind this door is dead: the database drops its connections."""
        self._lose_session()
        for news in [n for n, door in self.tables.listeners.items() if door is self]:
            del self.tables.listeners[news]

    def _lose_session(self) -> None:
        leader = self.tables.leader
        if leader is not None and leader.session is self._session:
            self._session.set()

    def _wake(self, wake: Wake, only: MemoryStore | None = None) -> None:
        for news, door in self.tables.listeners.items():
            assert isinstance(door, MemoryStore)
            if not door.down and only in (None, door):
                news.put(wake)

    # --- the commit itself ---------------------------------------------------------------

    def _commit(self, batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        """All at once, except when an atomic batch holds what cannot be stored at all: then each
        goes alone, so that the others are not held up by it."""
        try:
            return self._write(batches, term)
        except _Unstorable as fault:
            if len(batches) == 1:
                return Committed.unstorable(fault)
        return Committed.joined([self._commit([batch], term) for batch in batches])

    def _write(self, batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        tables = self.tables
        if term is not None:
            check_term(tables.leading, term)
        locked = known_of(tables, wanted(batches))
        refusals = judge(batches, locked.known)
        accepted = [batch for index, batch in enumerate(batches) if index not in refusals]
        writes = fold(accepted)
        broken = broken_constraint(tables, writes)
        if broken is not None:
            raise _Unstorable(broken)
        apply(tables, writes, locked)
        tables.last_snapshot = None
        now = self.clock.now()
        tables.history.extend(Written(now, term, tables.leading, batch) for batch in accepted)
        if writes.wake is not None:
            self._wake(writes.wake)
        return Committed.of(len(batches), refusals)

    async def _boundary(self, stage: Stage) -> None:
        if self.on_commit is not None:
            await self.on_commit(stage)
            if stage == "before":
                self._check_up()

    async def _mark(self, stage: Stage) -> None:
        if self.on_mark is not None:
            await self.on_mark(stage)

    async def reach(self) -> None:
        """The way to the tables; StoreDown while this door is shut."""
        self._check_up()
        await self.pause()
        self._check_up()

    def _check_up(self) -> None:
        if self._down:
            raise StoreDown("the database does not answer: it is down")
