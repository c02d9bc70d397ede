"""PostgreSQL behind core.reads.Reads: what people and metrics ask."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from core.access import EVERY_TENANT, Tenants
from core.changes import DeadLetter, RegionStatus
from core.cost_report import CostQuestion, CostReport
from core.errors import NotFound
from core.groups import only_one
from core.job import WAITING, JobStatus, owner_of
from core.job_fields import JobSpec
from core.pages import COUNTED_MAX, Page, PageCursor, PageRequest, bounded
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
from core.vm import VmState
from core.waits import WaitRow
from db import waits
from db.cost import JOB_COSTS, cost_report, job_costs_of
from db.groups import ONE_JOB, find_group, group_counts, one_job
from db.job_counts import BY_STATUS
from db.job_pages import JobList
from db.milestones import milestones, running_by_region
from db.positions import positions
from db.rows import (
    JOB_SELECT,
    JOB_WIDTH,
    REGION_BLOCK_SELECT,
    STATUS,
    SUPPLY_HISTORY_SELECT,
    VM_SELECT,
    VM_WIDTH,
    Row,
    block_of,
    job_of,
    mapping_of,
    numbers_of,
    progress_of,
    readings_of,
    supply_of,
    vm_of,
)
from db.store import Connection, PostgresStore
from db.tenant_counts import OLDEST, counts_on, tenant_counts
from db.timelines import EVENTS, PACKED_EVENTS, event_rows
from db.vm_states import COUNTED

_RUNNING = """
CASE WHEN j.gang = j.uid THEN (
    SELECT count(*) FROM jobs AS m WHERE m.gang = j.uid AND m.status = 'RUNNING') END
"""
_LAST = """
(SELECT jsonb_build_array(a.vm_name, a.region, a.zone, a.slots)::text FROM attempts AS a
    WHERE a.uid = j.uid AND a.attempt = j.attempt)
"""
# Costs are looked up per row of the page, after the limit: never over the whole table.
JOB_ROW = (
    f"{JOB_SELECT}, j.why, j.progress_step, j.progress_total, "
    f"j.checkpoint_step, {_RUNNING}, {_LAST}, {JOB_COSTS}"
)


_VM_CONDITIONS = {
    "cluster": "v.cluster = %(cluster)s",
    "region": "v.region = %(region)s",
    "living": f"v.{COUNTED}",
}
_DEAD_LETTER_SELECT = """
SELECT d.message_id, d.source, d.body, d.attributes::text, d.reason, d.at, d.ordering_key,
    d.replayed_at FROM dead_letters AS d
"""
_ATTEMPTS = """
SELECT attempt, lease_id, vm_name, region, zone, slots::text, assigned_at, started_at, ended_at,
    outcome, exit_code, usd_per_hour, checkpoint_at
FROM attempts WHERE uid = %s ORDER BY attempt
"""
_VM_JOBS = """
ARRAY(SELECT j.job_id FROM jobs AS j WHERE j.vm_uid = v.uid ORDER BY j.job_id)
"""
_ALERTS = """
SELECT alert_id, kind, subject, severity, message, raised_at, last_seen_at, cleared_at, count
FROM alerts WHERE NOT %s OR cleared_at IS NULL ORDER BY raised_at DESC, alert_id DESC LIMIT %s
"""
_SUMMARY = f"""
SELECT now(), l.holder, l.term, l.expires_at,
    ({OLDEST}),
    (SELECT count(*) FROM outbox WHERE published_at IS NULL),
    (SELECT array_agg(kind) FROM alerts WHERE cleared_at IS NULL)
FROM (VALUES (1)) AS one LEFT JOIN leader AS l ON true
"""
_VM_COUNTS = f"""
SELECT cluster, region, state, leases <> '[]'::jsonb, count(*) FROM vms WHERE {COUNTED}
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
"""
_BURN = f"""
SELECT cluster, sum(usd_per_hour) FROM vms
WHERE {COUNTED} AND running_since IS NOT NULL AND stopped_at IS NULL GROUP BY 1 ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class _List:
    """A list that is read in pages: its rows, what orders them, what it can be asked for."""

    select: str
    at: str
    uid: str
    conditions: Mapping[str, str]


_JOBS_BY_UID = f"SELECT {JOB_ROW} FROM jobs AS j WHERE j.uid = ANY(%s::uuid[])"
_VMS = _List(
    f"SELECT {VM_SELECT}, {_VM_JOBS}, v.readings::text FROM vms AS v",
    "v.requested_at",
    "v.uid",
    _VM_CONDITIONS,
)
_DEAD_LETTERS = _List(
    _DEAD_LETTER_SELECT, "d.at", "d.message_id", {"source": "d.source = %(source)s"}
)


class Connections(Protocol):
    """Where questions about jobs are asked."""

    def connection(self) -> AbstractAsyncContextManager[Connection]: ...


class PostgresReads:
    """Questions over the store's connections; each is one snapshot."""

    def __init__(self, store: PostgresStore, seen: Connections | None = None) -> None:
        """`seen`: connections that show the rows of the caller's tenants alone. What is asked of
        jobs is found there; what belongs to a job that was found (its place among others, its part
        of the price of a VM) is then read with the store's."""
        self._store = store
        self._seen = seen or store

    async def job(
        self, job_id: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> JobRow:
        query = f"SELECT j.uid FROM jobs AS j WHERE {ONE_JOB}"
        rows = await self._see(query, one_job(job_id, user_id, tenants))
        found = await self._job_rows(rows)
        only_one("job", job_id, user_id, [owner_of(row.job.spec) for row in found])
        return found[0]

    async def jobs(
        self, where: JobFilter, size: int, token: str | None, offset: int = 0
    ) -> Page[JobRow]:
        asked = JobList.of(where)
        request = PageRequest.of(asked.question, size, token)
        # Not prepared: planned each time for the values that are meant.
        rows, counts = await self._ask_both(
            asked.page(request, offset), (asked.count(), asked.words)
        )
        found = await self._job_rows(rows)
        page = request.page(
            found, counts[0][0], lambda row: PageCursor(row.job.submitted_at, row.job.uid)
        )
        return page if asked.counts_are_kept else page.bounded()

    async def group(
        self, group: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> GroupRow:
        async with self._seen.connection() as connection:
            found = await find_group(connection, group, user_id, tenants)
            return GroupRow(found, await group_counts(connection, found))

    async def events(self, uid: str, size: int, after: int) -> Sequence[EventRow]:
        """Oldest first, beginning behind `after`."""
        words = {"uid": uid, "after": after, "size": bounded(size)}
        old, packed = await self._see(EVENTS, words), await self._see(PACKED_EVENTS, words)
        return event_rows(old, packed, after, bounded(size))

    async def waits(self, uid: str) -> Sequence[WaitRow]:
        """What it met while it waited, the first first."""
        return waits.waits_of(await self._see(waits.SELECT, (uid,)))

    async def attempts(self, uid: str) -> Sequence[AttemptRow]:
        rows = await self._see(_ATTEMPTS, (uid,))
        return [AttemptRow(*_with(row, 5, numbers_of(row[5]))) for row in rows]

    async def milestones(self, uids: Sequence[str]) -> Mapping[str, Milestones]:
        async with self._seen.connection() as connection:
            return await milestones(connection, uids)

    async def running_by_region(self) -> Mapping[tuple[str, str], int]:
        async with self._store.connection() as connection:
            return await running_by_region(connection)

    async def vms(
        self, cluster: str | None, region: str | None, gone: bool, size: int, token: str | None
    ) -> Page[VmRow]:
        words = {"cluster": cluster, "region": region, "living": None if gone else True}
        request = PageRequest.of(("vms", *words.values()), size, token)
        rows, total = await self._page(_VMS, words, request)
        found = [_vm_row(row) for row in rows]
        page = request.page(found, total, lambda row: PageCursor(row.vm.requested_at, row.vm.uid))
        return page.bounded()

    async def region_statuses(self) -> Sequence[RegionStatus]:
        query = "SELECT cluster, region, target_size, why, observed_at FROM region_status"
        return [RegionStatus(*row) for row in await self._ask(f"{query} ORDER BY 1, 2", ())]

    async def supply(self) -> Sequence[SupplyHistory]:
        query = f"SELECT {SUPPLY_HISTORY_SELECT} FROM experience ORDER BY 1, 2, 3, 4"
        return [supply_of(row) for row in await self._ask(query, ())]

    async def blocks(self) -> Sequence[RegionBlock]:
        query = f"SELECT {REGION_BLOCK_SELECT} FROM troubles ORDER BY 1, 2, 3, 4, 5"
        return [block_of(row) for row in await self._ask(query, ())]

    async def alerts(self, open_only: bool, size: int) -> Sequence[AlertRow]:
        rows = await self._ask(_ALERTS, (open_only, bounded(size)))
        return [AlertRow(*row) for row in rows]

    async def dead_letters(
        self, source: str | None, size: int, token: str | None
    ) -> Page[DeadLetterRow]:
        request = PageRequest.of(("dead letters", source), size, token, str)
        rows, total = await self._page(_DEAD_LETTERS, {"source": source}, request)
        found = [_dead_letter_row(row) for row in rows]
        page = request.page(
            found, total, lambda row: PageCursor(row.dead_letter.at, row.dead_letter.message_id)
        )
        return page.bounded()

    async def dead_letter(self, message_id: str) -> DeadLetterRow:
        rows = await self._ask(f"{_DEAD_LETTER_SELECT} WHERE d.message_id = %s", (message_id,))
        if not rows:
            raise NotFound(f"there is no dead letter {message_id}")
        return _dead_letter_row(rows[0])

    async def cost(self, question: CostQuestion) -> CostReport:
        async with self._store.connection() as connection:
            return await cost_report(connection, question)

    async def tenant_counts(self, tenants: Tenants) -> TenantCounts:
        async with self._seen.connection() as connection:
            return await tenant_counts(connection, tenants)

    async def counts_on(self, vms: Sequence[str], tenants: Tenants) -> Mapping[str, int]:
        async with self._seen.connection() as connection:
            return await counts_on(connection, vms, tenants)

    async def summary(self) -> ServiceSummary:
        heads, counts = await self._ask_both((_SUMMARY, {}), (BY_STATUS, {}))
        vms = await self._ask(_VM_COUNTS, ())
        burn = await self._ask(_BURN, ())
        now, holder, term, until, oldest, outbox, alerts = heads[0]
        return ServiceSummary(
            now=now,
            leader=holder or "",
            term=term or 0,
            leader_until=until,
            jobs={(row[0], JobStatus(row[1])): row[2] for row in counts},
            vms=tuple(VmCount(*_with(row, 2, VmState(row[2]))) for row in vms),
            oldest_waiting_since=oldest,
            outbox=outbox,
            open_alerts=Counter(alerts or ()),
            burn_usd_per_hour=dict(burn),
        )

    async def _job_rows(self, seen: Sequence[Row]) -> list[JobRow]:
        """Of jobs that were seen, in that order."""
        if not seen:
            return []
        uids = [row[0] for row in seen]
        async with self._store.connection() as connection:
            cursor = await connection.execute(_JOBS_BY_UID, (uids,), binary=True)
            by_uid = {row[0]: row for row in await cursor.fetchall()}
            rows = [by_uid[str(uid)] for uid in uids if str(uid) in by_uid]
            waiting = [row[0] for row in rows if row[STATUS] in WAITING]
            places = await positions(connection, waiting) if waiting else {}
            specs = await self._store.specs.of_rows(connection, rows)
        return [_job_row(row, specs, places.get(row[0])) for row in rows]

    async def _see(
        self, query: str, arguments: Sequence[object] | Mapping[str, object]
    ) -> list[Row]:
        """What the caller's tenants have."""
        async with self._seen.connection() as connection:
            return await (await connection.execute(query, arguments, binary=True)).fetchall()

    async def _ask(self, query: str, arguments: Sequence[object]) -> list[Row]:
        async with self._store.connection() as connection:
            return await (await connection.execute(query, arguments, binary=True)).fetchall()

    async def _page(
        self, of: _List, words: Mapping[str, Any], request: PageRequest
    ) -> tuple[list[Row], int]:
        """A page, with one row more if there is more, and how many there are: no more are counted
        than `Page.bounded` tells."""
        # Only what is asked for stands in the text, so that each question finds its index.
        asked = [text for name, text in of.conditions.items() if words[name] is not None]
        where = " AND ".join(asked or ["true"])
        at, uid, place = of.at, of.uid, request.after
        after = "" if place is None else f"AND ({at}, {uid}) < (%(at)s, %(uid)s)"
        ends = {"at": place and place.at, "uid": place and place.uid, "size": request.size + 1}
        order_by = f"ORDER BY {at} DESC, {uid} DESC LIMIT %(size)s"
        page = f"{of.select} WHERE {where} {after} {order_by}"
        table = of.select.rpartition(" FROM ")[2]
        some = f"SELECT 1 FROM {table} WHERE {where} LIMIT {COUNTED_MAX + 1}"
        total = f"SELECT count(*) FROM ({some}) AS x"
        rows, counts = await self._ask_both((page, {**words, **ends}), (total, words))
        return rows, counts[0][0]

    async def _ask_both(
        self, first: tuple[str, Mapping[str, Any]], second: tuple[str, Mapping[str, Any]]
    ) -> tuple[list[Row], list[Row]]:
        """Two questions in one snapshot and one round trip: a total must fit its page."""
        async with (
            self._seen.connection() as connection,
            connection.pipeline(),
            connection.transaction(),
        ):
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            one = await connection.execute(*first, binary=True, prepare=False)
            two = await connection.execute(*second, binary=True, prepare=False)
            return await one.fetchall(), await two.fetchall()


def _with(row: Row, index: int, value: object) -> list[Any]:
    values = list(row)
    values[index] = value
    return values


def _job_row(row: Row, specs: Mapping[str, JobSpec], position: int | None) -> JobRow:
    why, step, total, checkpoint, running, last, *costs = row[JOB_WIDTH:]
    job = job_of(row, specs)
    waits = job.status in WAITING
    spent = job_costs_of(job.uid, costs)
    progress = progress_of(step, total)
    why = why if waits else ""
    worked = _worked(last)
    return JobRow(job, why, position, progress, checkpoint, spent, running, worked)


def _worked(text: str | None) -> Worked | None:
    if text is None:
        return None
    vm_name, region, zone, slots = json.loads(text)
    return Worked(vm_name, region, zone, tuple(slots))


def _dead_letter_row(row: Row) -> DeadLetterRow:
    *dead_letter, replayed_at = _with(row, 3, mapping_of(row[3]))
    return DeadLetterRow(DeadLetter(*dead_letter), replayed_at)


def _vm_row(row: Row) -> VmRow:
    return VmRow(vm_of(row), tuple(row[VM_WIDTH]), readings_of(row[VM_WIDTH + 1]))
