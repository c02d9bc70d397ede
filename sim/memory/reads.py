"""core.reads.Reads over the in-memory tables. Not for speed: lists are sorted when asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from core.access import EVERY_TENANT, Tenants
from core.changes import RegionStatus
from core.cost_report import CostQuestion, CostReport
from core.errors import NotFound
from core.job import WAITING, Job, JobStatus
from core.pages import Page, PageCursor, PageRequest, bounded
from core.queueing import goes_before
from core.reads import (
    AlertRow,
    AttemptRow,
    DeadLetterRow,
    EventRow,
    GroupRow,
    JobFilter,
    JobRow,
    Milestones,
    ServiceSummary,
    TenantCounts,
    VmCount,
    VmRow,
    Worked,
)
from core.region_blocks import RegionBlock
from core.supply import SupplyHistory
from core.vm import Vm
from core.waits import WaitRow
from sim.memory.cost import cost_report, job_costs
from sim.memory.store import MemoryStore
from sim.memory.tables import JobRecord, VmRecord

_POSITION_MAX = 10_000
T = TypeVar("T")


class MemoryReads:
    """Questions through a door of the store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._tables = store.tables
        self._clock = store.clock

    async def job(
        self, job_id: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> JobRow:
        found = await self._store.find_job(job_id, user_id, tenants)
        return self._job_row(self._tables.jobs[found.uid])

    async def jobs(
        self, where: JobFilter, size: int, token: str | None, offset: int = 0
    ) -> Page[JobRow]:
        await self._store.reach()
        asked = [(name, value) for name, value in where.fields.items() if value is not None]
        question = ("jobs", sorted(asked), where.statuses, where.cluster, where.tenants.only)
        labels = (*sorted(where.labels.items()), where.job_ids)
        found = _page(
            (record for record in self._tables.jobs.values() if where.fits(record.job)),
            lambda record: PageCursor(record.job.submitted_at, record.job.uid),
            PageRequest.of((*question, labels), size, token),
            offset,
        )
        return found.shown_as(self._job_row)

    async def group(
        self, group: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> GroupRow:
        found = await self._store.find_group(group, user_id, tenants)
        counts = Counter(job.status for job in self._store.group_jobs(found))
        return GroupRow(found, counts)

    async def events(self, uid: str, size: int, after: int) -> Sequence[EventRow]:
        await self._store.reach()
        record = self._tables.jobs.get(uid)
        rows = [row for row in record.events if row.seq > after] if record is not None else []
        return rows[: bounded(size)]

    async def waits(self, uid: str) -> Sequence[WaitRow]:
        """What it met while it waited, the first first."""
        await self._store.reach()
        record = self._tables.jobs.get(uid)
        rows = record.waits if record is not None else {}
        return [
            row for _, row in sorted(rows.items(), key=lambda item: (item[1].first_at, item[0]))
        ]

    async def attempts(self, uid: str) -> Sequence[AttemptRow]:
        await self._store.reach()
        record = self._tables.jobs.get(uid)
        return [row for _, row in sorted(record.attempts.items())] if record is not None else []

    async def milestones(self, uids: Sequence[str]) -> Mapping[str, Milestones]:
        await self._store.reach()
        records = {uid: self._tables.jobs[uid] for uid in uids if uid in self._tables.jobs}
        return {
            uid: _milestones(record)
            for uid, record in records.items()
            if record.events or record.attempts
        }

    async def running_by_region(self) -> Mapping[tuple[str, str], int]:
        await self._store.reach()
        return _running_by_region(record.job for record in self._tables.jobs.values())

    async def tenant_counts(self, tenants: Tenants) -> TenantCounts:
        await self._store.reach()
        records = self._tables.jobs.values()
        jobs = [
            record.job
            for record in records
            if record.job.spec.tenant_id in tenants and not record.job.parked
        ]
        return TenantCounts(
            Counter((job.cluster, job.status) for job in jobs),
            _running_by_region(jobs),
            _oldest_waiting_since(jobs),
        )

    async def counts_on(self, vms: Sequence[str], tenants: Tenants) -> Mapping[str, int]:
        await self._store.reach()
        jobs = (record.job for record in self._tables.jobs.values())
        return Counter(
            job.lease.vm_uid
            for job in jobs
            if job.lease is not None and job.lease.vm_uid in vms and job.spec.tenant_id in tenants
        )

    async def vms(
        self, cluster: str | None, region: str | None, gone: bool, size: int, token: str | None
    ) -> Page[VmRow]:
        await self._store.reach()
        found = (
            record
            for record in self._tables.vms.values()
            if cluster in (None, record.vm.cluster)
            and region in (None, record.vm.region)
            and (gone or record.vm.counted)
        )
        request = PageRequest.of(("vms", cluster, region, gone), size, token)
        page = _page(
            found, lambda record: PageCursor(record.vm.requested_at, record.vm.uid), request
        )
        return page.shown_as(self._vm_row)

    async def region_statuses(self) -> Sequence[RegionStatus]:
        await self._store.reach()
        return [status for _, status in sorted(self._tables.regions.items())]

    async def supply(self) -> Sequence[SupplyHistory]:
        await self._store.reach()
        return [seen for _, seen in sorted(self._tables.supply.items())]

    async def blocks(self) -> Sequence[RegionBlock]:
        await self._store.reach()
        return [block for _, block in sorted(self._tables.blocks.items())]

    async def alerts(self, open_only: bool, size: int) -> Sequence[AlertRow]:
        await self._store.reach()
        rows = [
            row for row in self._tables.alerts.values() if not open_only or row.cleared_at is None
        ]
        rows.sort(key=lambda row: (row.raised_at, row.alert_id), reverse=True)
        return rows[: bounded(size)]

    async def dead_letters(
        self, source: str | None, size: int, token: str | None
    ) -> Page[DeadLetterRow]:
        await self._store.reach()
        dead_letters = self._tables.dead_letters.values()
        return _page(
            (row for row in dead_letters if source in (None, row.dead_letter.source)),
            lambda row: PageCursor(row.dead_letter.at, row.dead_letter.message_id),
            PageRequest.of(("dead letters", source), size, token, str),
        )

    async def dead_letter(self, message_id: str) -> DeadLetterRow:
        await self._store.reach()
        row = self._tables.dead_letters.get(message_id)
        if row is None:
            raise NotFound(f"there is no dead letter {message_id}")
        return row

    async def cost(self, question: CostQuestion) -> CostReport:
        await self._store.reach()
        return cost_report(self._tables, question, self._clock.now())

    async def summary(self) -> ServiceSummary:
        await self._store.reach()
        tables = self._tables
        leader = tables.leader
        jobs = [record.job for record in tables.jobs.values() if not record.job.parked]
        active = [record.vm for record in tables.vms.values() if record.vm.counted]
        counts = Counter((vm.cluster, vm.region, vm.state, vm.busy) for vm in active)
        return ServiceSummary(
            now=self._clock.now(),
            leader=leader.holder if leader else "",
            term=leader.term if leader else 0,
            leader_until=leader.expires_at if leader else None,
            jobs=Counter((job.cluster, job.status) for job in jobs),
            vms=tuple(VmCount(*kind, count) for kind, count in sorted(counts.items())),
            oldest_waiting_since=_oldest_waiting_since(jobs),
            outbox=len(tables.outbox),
            open_alerts=Counter(kind for kind, _ in tables.open_alerts),
            burn_usd_per_hour=_burn(active),
        )

    def _job_row(self, record: JobRecord) -> JobRow:
        now = self._clock.now()
        return JobRow(
            job=record.job,
            why=record.why,
            position=self._position(record.job),
            progress=record.progress,
            checkpoint_step=record.checkpoint_step,
            costs=job_costs(self._tables, record, now),
            members_running=self._running(record.job),
            last=_worked(record),
        )

    def _running(self, job: Job) -> int | None:
        if job.gang is None or job.gang.rank > 0:
            return None
        uids = self._tables.holds.gangs[job.uid].values()
        return sum(self._tables.jobs[uid].job.status is JobStatus.RUNNING for uid in uids)

    def _position(self, job: Job) -> int | None:
        if job.status not in WAITING or job.out_of_queue:
            return None
        ahead = sum(
            other.status in WAITING
            and not other.out_of_queue
            and other.cluster == job.cluster
            and goes_before(other, job)
            for other in (record.job for record in self._tables.jobs.values())
        )
        return min(1 + ahead, _POSITION_MAX)

    def _vm_row(self, record: VmRecord) -> VmRow:
        uid = record.vm.uid
        leased = (job for job in self._tables.live.values() if job.lease is not None)
        ids = sorted(job.spec.job_id for job in leased if job.lease and job.lease.vm_uid == uid)
        return VmRow(record.vm, tuple(ids), record.readings)


def _running_by_region(jobs: Iterable[Job]) -> Mapping[tuple[str, str], int]:
    computing = (JobStatus.RUNNING, JobStatus.PREEMPTING)
    return Counter(
        (job.cluster, job.lease.region)
        for job in jobs
        if job.lease is not None and job.status in computing
    )


def _oldest_waiting_since(jobs: Iterable[Job]) -> datetime | None:
    return min((job.queued_since for job in jobs if job.status in WAITING), default=None)


def _burn(active: Iterable[Vm]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for vm in active:
        if vm.running_since is not None and vm.stopped_at is None:
            sums[vm.cluster] = sums.get(vm.cluster, 0.0) + vm.usd_per_hour
    return sums


def _worked(record: JobRecord) -> Worked | None:
    row = record.attempts.get(record.job.attempt)
    return None if row is None else Worked(row.vm_name, row.region, row.zone, row.slots)


def _milestones(record: JobRecord) -> Milestones:
    came: dict[JobStatus, datetime] = {}
    for row in record.events:
        entry = row.entry
        if entry.from_status is not entry.to_status:
            came[entry.to_status] = max(entry.at, came.get(entry.to_status, entry.at))
    if not record.attempts:
        return Milestones(came)
    last = record.attempts[max(record.attempts)]
    return Milestones(came, last.vm_name, last.region)


def _page(
    rows: Iterable[T], order: Callable[[T], PageCursor], request: PageRequest, offset: int = 0
) -> Page[T]:
    found = sorted(rows, key=order, reverse=True)
    rest = [r for r in found if order(r) < request.after] if request.after else found
    return request.page(rest[offset:], len(found), order)
