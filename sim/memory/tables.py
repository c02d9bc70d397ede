"""The rows of the in-memory store, with indexes that keep a commit's cost to what it changes and
a snapshot's cost to what lives."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Generic, TypeVar

from core.active import ActiveIndex
from core.audit_log import AuditRow
from core.changes import AtomicBatch, CloudRequest, RegionStatus, Snapshot
from core.configuration import ConfigVersion
from core.cost import Amount, CostKind, DailyKey
from core.forecast import Forecast
from core.groups import Owner
from core.job import WAITING, Job, JobStatus, owner_of
from core.messages import NOTHING_READ, OutMessage, Progress, VmReadings
from core.queueing import (
    HeadsOf,
    PriorityClass,
    QueueRule,
    arrival_key,
    class_of,
    due_key,
    each_of,
    priority_key,
)
from core.reads import AlertRow, AttemptRow, DeadLetterRow, EventRow
from core.region_blocks import RegionBlock
from core.supply import (
    ARRIVALS_HORIZON_S,
    ARRIVALS_MAX,
    Arrivals,
    SupplyHistory,
    arrivals_by_cluster,
)
from core.tenants import HOLDS, Tenant, Usage
from core.vm import Vm, heard
from core.waits import WaitRow
from core.wakes import WakeBox
from sim.memory.dependencies import Dependencies

Key = TypeVar("Key", bound=tuple[Any, ...])
Row = TypeVar("Row")


class Ordered(Generic[Key]):
    """Keys in order. Moving pointers in one array is quicker than the steps of a tree, up to far
    more keys than a simulation has."""

    def __init__(self) -> None:
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        insort(self._keys, key)

    def discard(self, key: Key) -> None:
        place = bisect_left(self._keys, key)
        if place < len(self._keys) and self._keys[place] == key:
            del self._keys[place]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def last(self, limit: int) -> Sequence[Key]:
        """The last ones, the very last first."""
        return self._keys[: -limit - 1 : -1]

    def before(self, moment: datetime, limit: int) -> list[Key]:
        """The first keys, at most `limit`, whose first part is earlier than the moment."""
        return list(takewhile(lambda key: key[0] < moment, islice(self._keys, limit)))

    def until(self, moment: datetime, limit: int) -> list[Key]:
        """The same, with the moment itself."""
        return list(takewhile(lambda key: key[0] <= moment, islice(self._keys, limit)))


class SortedRows(dict[Any, Row]):
    """Rows that are read in the order of their keys far more often than they are written."""

    def __init__(self) -> None:
        super().__init__()
        self._in_order: tuple[Row, ...] | None = None

    def __setitem__(self, key: Any, row: Row) -> None:
        super().__setitem__(key, row)
        self._in_order = None

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self._in_order = None

    def drop(self, key: Any) -> None:
        """If it is there."""
        if key in self:
            del self[key]

    @property
    def in_order(self) -> tuple[Row, ...]:
        if self._in_order is None:
            self._in_order = tuple(self[key] for key in sorted(self))
        return self._in_order


QueueKey = tuple[int, datetime, str]
FairKey = tuple[str, int, str]
"""Cluster, priority class, tenant."""
TimeKey = tuple[datetime, str]
NumberKey = tuple[datetime, int]
_TIERS = sorted(PriorityClass, reverse=True)


@dataclass(slots=True)
class JobRecord:
    """A job with what its row, its timeline and its attempts hold."""

    job: Job
    content_hash: str
    last_seq: int = 0
    why: str = ""
    progress: Progress | None = None
    checkpoint_step: float | None = None
    progress_at: datetime | None = None
    events: list[EventRow] = field(default_factory=list)
    dedup_keys: set[str] = field(default_factory=set)
    attempts: dict[int, AttemptRow] = field(default_factory=dict)
    costs: dict[tuple[date, CostKind], Amount] = field(default_factory=dict)
    """What is settled of it."""
    waits: dict[tuple[str, str, str], WaitRow] = field(default_factory=dict)
    """What it met while it waited, by kind, region and reason."""


@dataclass(slots=True)
class VmRecord:
    """A VM with its last readings."""

    vm: Vm
    readings: VmReadings = NOTHING_READ
    settled_until: datetime | None = None
    """Its bill up to here is in the daily sums."""


@dataclass(slots=True)
class Leader:
    """The lease row. An empty holder: nobody leads, but the term has been used."""

    holder: str
    term: int
    expires_at: datetime
    session: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the session has ended by which the leader shows that it lives."""


@dataclass(frozen=True, slots=True)
class Written:
    """An atomic batch that took effect."""

    at: datetime
    term: int | None
    """The term that the writer gave."""
    leading: int | None
    """The term that led at that moment."""
    batch: AtomicBatch


@dataclass(slots=True)
class Tables:
    """Everything that is stored. Only whole commits are ever visible: nothing in here waits."""

    jobs: dict[str, JobRecord] = field(default_factory=dict)
    owners: dict[str, dict[Owner, str]] = field(default_factory=lambda: defaultdict(dict))
    """job id → user → uid."""
    active: ActiveIndex = field(default_factory=ActiveIndex)
    """Leased and PROVISIONING ones, active VMs, and GONE ones that still hold leases."""
    queues: dict[str, Ordered[QueueKey]] = field(default_factory=lambda: defaultdict(Ordered))
    """cluster → QUEUED ones by priority and arrival."""
    arrived: dict[str, Ordered[TimeKey]] = field(default_factory=lambda: defaultdict(Ordered))
    """cluster → QUEUED ones by arrival."""
    fair: dict[FairKey, Ordered[TimeKey]] = field(default_factory=lambda: defaultdict(Ordered))
    """QUEUED ones by when they are due."""
    tenants: dict[str, Tenant] = field(default_factory=lambda: {"default": Tenant("default")})
    usage: dict[str, Usage] = field(default_factory=dict)
    queue_ends: Ordered[TimeKey] = field(default_factory=Ordered)
    backing_off: dict[str, datetime] = field(default_factory=dict)
    """QUEUED ones after a failed attempt → when the next one may start."""
    holds: Dependencies = field(default_factory=Dependencies)
    ended: Ordered[TimeKey] = field(default_factory=Ordered)
    """Final ones whose history has not been pruned."""
    lease_ids: dict[str, str] = field(default_factory=dict)
    """Of every attempt there was → its VM."""
    vms: dict[str, VmRecord] = field(default_factory=dict)
    vm_names: dict[str, str] = field(default_factory=dict)
    """Name → the active VM that has it."""
    vm_counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    gone: Ordered[TimeKey] = field(default_factory=Ordered)
    """Gone ones without leases."""
    unsettled: dict[str, None] = field(default_factory=dict)
    """VMs whose bill is not whole in the daily sums."""
    stays: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    """VM → (job, attempt) of all that were on it."""
    cost_daily: dict[DailyKey, Amount] = field(default_factory=dict)
    requests: dict[str, CloudRequest] = field(default_factory=dict)
    open_requests: dict[str, CloudRequest] = field(default_factory=dict)
    settled: Ordered[TimeKey] = field(default_factory=Ordered)
    blocks: SortedRows[RegionBlock] = field(default_factory=SortedRows)
    """By region, zone, machine type, spot, kind."""
    supply: SortedRows[SupplyHistory] = field(default_factory=SortedRows)
    """By place."""
    newest: Ordered[TimeKey] = field(default_factory=Ordered)
    """Submissions by age."""
    regions: dict[tuple[str, str], RegionStatus] = field(default_factory=dict)
    forecasts: dict[str, Forecast] = field(default_factory=dict)
    alerts: dict[int, AlertRow] = field(default_factory=dict)
    open_alerts: dict[tuple[str, str], int] = field(default_factory=dict)
    cleared: Ordered[NumberKey] = field(default_factory=Ordered)
    dead_letters: dict[str, DeadLetterRow] = field(default_factory=dict)
    dead_letters_by_age: Ordered[TimeKey] = field(default_factory=Ordered)
    audit_log: list[AuditRow] = field(default_factory=list)
    outbox: dict[int, OutMessage] = field(default_factory=dict)
    """Not yet confirmed, in the order of their commits."""
    sent: dict[int, tuple[datetime, OutMessage]] = field(default_factory=dict)
    sent_by_age: Ordered[NumberKey] = field(default_factory=Ordered)
    configs: list[ConfigVersion] = field(default_factory=list)
    config_files: dict[tuple[str, str], str] = field(default_factory=dict)
    """(host, path) → digest; the one that was considered last comes last."""
    """Oldest first."""
    leader: Leader | None = None
    outbox_ids: int = 0
    alert_ids: int = 0
    history: list[Written] = field(default_factory=list)
    """Every atomic batch that took effect, in order. A reader of long runs may clear what it has
    read."""
    last_snapshot: Snapshot | None = None
    """What lives, without queues: asked for far more often than anything is written."""
    last_arrivals: tuple[Sequence[TimeKey], Mapping[str, Arrivals]] | None = None
    listeners: dict[WakeBox, object] = field(default_factory=dict)
    """Who waits for news → the door that they came through."""

    @property
    def live(self) -> Mapping[str, Job]:
        return self.active.jobs

    @property
    def seen_vms(self) -> Mapping[str, Vm]:
        return self.active.vms

    @property
    def leading(self) -> int | None:
        """The term that leads; one that has run out leads until somebody replaces it."""
        return self.leader.term if self.leader is not None and self.leader.holder else None

    # --- jobs ----------------------------------------------------------------------------

    def add_job(self, job: Job, content_hash: str) -> None:
        self.jobs[job.uid] = JobRecord(job, content_hash)
        self.owners[job.spec.job_id][owner_of(job.spec)] = job.uid
        self._ensure_tenant(job.spec.tenant_id)
        self.newest.add((job.submitted_at, job.uid))
        self.last_arrivals = None
        self.holds.index(job)
        self._index_job(job)

    def _ensure_tenant(self, name: str) -> None:
        tenant = self.tenants.setdefault(name, Tenant(name))
        if tenant.deleted:
            self.tenants[name] = replace(tenant, deleted=False, version=tenant.version + 1)

    def set_job(self, job: Job) -> None:
        record = self.jobs[job.uid]
        self.holds.index(job, record.job)
        self._unindex_job(record.job)
        record.job = job
        if job.status not in WAITING:
            record.why = ""
        self._index_job(job)
        if job.status not in HOLDS:
            self.active.drop_job(job.uid)

    def _index_job(self, job: Job) -> None:
        if job.status is JobStatus.QUEUED:
            assert job.deadline_at is not None, "checked before: every waiting job has a deadline"
            self.queue_ends.add((job.deadline_at, job.uid))
            if job.retry_at is not None:
                self.backing_off[job.uid] = job.retry_at
            if job.out_of_queue:
                return
            self.queues[job.cluster].add(priority_key(job))
            self.arrived[job.cluster].add(arrival_key(job))
            self.fair[fair_key(job)].add(due_key(job))
        elif job.ended_at is not None:
            self.ended.add((job.ended_at, job.uid))
        else:
            self.active.put_job(job, self.jobs[job.uid].why)

    def _unindex_job(self, job: Job) -> None:
        self.backing_off.pop(job.uid, None)
        if job.status is JobStatus.QUEUED:
            self.queues[job.cluster].discard(priority_key(job))
            self.arrived[job.cluster].discard(arrival_key(job))
            self.fair[fair_key(job)].discard(due_key(job))
            if job.deadline_at is not None:
                self.queue_ends.discard((job.deadline_at, job.uid))
        elif job.ended_at is not None:
            self.ended.discard((job.ended_at, job.uid))

    def heads(self, wanted: Sequence[HeadsOf], limit: int, now: datetime) -> Iterator[Job]:
        """The heads that were asked for, then those past their deadline."""
        uids = dict.fromkeys(uid for heads in wanted for uid in self.heads_of(heads, limit, now))
        uids |= dict.fromkeys(uid for _, uid in self.queue_ends.until(now, limit))
        uids |= dict.fromkeys(islice(self.holds.released(limit), limit))
        uids = dict.fromkeys(uid for uid in uids if uid not in self.live)
        uids |= dict.fromkeys(self._fellows(uids, limit))
        for uid in uids:
            yield self.jobs[uid].job

    def _fellows(self, uids: Iterable[str], limit: int) -> Iterator[str]:
        """Gangs are looked at whole, wherever their members stand."""
        jobs = (self.jobs[uid].job for uid in uids)
        gangs = dict.fromkeys(job.gang.uid for job in jobs if job.gang is not None)
        for gang in {**gangs, **self.active.partial} if limit else ():
            yield from (uid for uid in self.holds.gangs[gang].values() if uid not in self.live)

    def find(self, uid: str) -> Job | None:
        record = self.jobs.get(uid)
        return None if record is None else record.job

    def heads_of(self, heads: HeadsOf, limit: int, now: datetime) -> Iterator[str]:
        """Of one queue, the next one first."""
        most, queue = min(heads.limit, limit), self.queues.get(heads.cluster)
        if queue is None or not len(queue):
            return
        if heads.rule is QueueRule.FAIR:
            each = min(most, each_of(heads))
            for tier in _TIERS:
                found = self._fair_heads(heads, tier, each, most, now)
                if len(found) < most and each < most:
                    found = self._fair_heads(heads, tier, most, most, now)
                yield from self._enough(heads, found)
        else:
            queues = self.arrived if heads.rule is QueueRule.FIFO else self.queues
            yield from self._enough(heads, self._first(queues[heads.cluster], most, heads, now))

    def _first(self, queue: Ordered[Any], most: int, heads: HeadsOf, now: datetime) -> list[str]:
        """Looks past jobs that wait for the moment of their next attempt."""
        uids: Iterator[str] = (key[-1] for key in queue)
        if not heads.backing_off:
            uids = (uid for uid in uids if self.backing_off.get(uid, now) <= now)
        if heads.room is not None:
            uids = (uid for uid in uids if self._rank(uid) == 0)
        return list(islice(uids, most))

    def _rank(self, uid: str) -> int:
        gang = self.jobs[uid].job.gang
        return gang.rank if gang is not None else 0

    def _enough(self, heads: HeadsOf, uids: Sequence[str]) -> Sequence[str]:
        gangs = (self.jobs[uid].job.gang for uid in uids)
        return uids[: heads.enough(gang.size if gang is not None else 1 for gang in gangs)]

    def _fair_heads(
        self, heads: HeadsOf, tier: int, each: int, most: int, now: datetime
    ) -> list[str]:
        found: list[str] = []
        for tenant in heads.tenants:
            queue = self.fair.get((heads.cluster, tier, tenant))
            if queue is not None:
                found += self._first(queue, min(each, most - len(found)), heads, now)
            if len(found) >= most:
                break
        return found

    def arrivals(self, now: datetime) -> Mapping[str, Arrivals]:
        """The newest submissions, by cluster."""
        since = now - timedelta(seconds=ARRIVALS_HORIZON_S)
        if self.last_arrivals is None or any(at <= since for at, _ in self.last_arrivals[0][-1:]):
            keys = [key for key in self.newest.last(ARRIVALS_MAX) if key[0] > since]
            newest = [(self.jobs[uid].job.cluster, at) for at, uid in keys]
            self.last_arrivals = (keys, arrivals_by_cluster(newest, now))
        kept, found = self.last_arrivals
        if len(kept) >= ARRIVALS_MAX:
            return found
        return {cluster: Arrivals(since, seen.times) for cluster, seen in found.items()}

    # --- VMs -----------------------------------------------------------------------------

    def set_vm(self, vm: Vm) -> None:
        """Insert or replace. The readings stay."""
        record = self.vms.get(vm.uid)
        if record is None:
            self.vms[vm.uid] = VmRecord(vm)
            self.unsettled[vm.uid] = None
        else:
            self._unindex_vm(record.vm)
            record.vm = vm
        self._index_vm(vm)

    def mark_settled(self, uid: str, until: datetime | None, *, whole: bool) -> None:
        """Its bill is in the daily sums up to `until`; all of it, if `whole`."""
        self.vms[uid].settled_until = until
        if whole:
            del self.unsettled[uid]

    def see_heartbeat(self, vm: Vm, at: datetime, seq: int) -> None:
        """The same VM with a newer heartbeat."""
        self.active.hear(vm.uid, at, seq)
        self.vms[vm.uid].vm = self.seen_vms.get(vm.uid) or heard(vm, at, seq)

    def _index_vm(self, vm: Vm) -> None:
        if vm.counted:
            self.vm_names[vm.name] = vm.uid
            self.vm_counts[vm.cluster] += 1
        elif not vm.leases:
            assert vm.gone_at is not None, "checked before: what is gone went at some time"
            self.gone.add((vm.gone_at, vm.uid))
            self.active.drop_vm(vm.uid)
            return
        self.active.put_vm(vm)

    def _unindex_vm(self, vm: Vm) -> None:
        if vm.counted:
            self.vm_names.pop(vm.name, None)
            self.vm_counts[vm.cluster] -= 1
        elif vm.gone_at is not None:
            self.gone.discard((vm.gone_at, vm.uid))

    # --- the outbox ----------------------------------------------------------------------

    def send(self, message: OutMessage) -> None:
        self.outbox_ids += 1
        self.outbox[self.outbox_ids] = message

    def confirm(self, outbox_id: int, now: datetime) -> None:
        """A repeat moves the time, as it does in PostgreSQL."""
        message = self.outbox.pop(outbox_id, None)
        if message is None:
            if outbox_id not in self.sent:
                return
            before, message = self.sent[outbox_id]
            self.sent_by_age.discard((before, outbox_id))
        self.sent[outbox_id] = (now, message)
        self.sent_by_age.add((now, outbox_id))


def fair_key(job: Job) -> FairKey:
    return (job.cluster, int(class_of(job.spec.priority)), job.spec.tenant_id)
