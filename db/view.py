"""The loop's picture of the world, taken in one snapshot."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow

from core.capacity import Vm, heard
from core.changes import View
from core.job import LEASED, WAITING, Job, JobStatus
from core.knowledge import ARRIVALS_HORIZON_S, ARRIVALS_MAX, arrivals_by_cluster
from core.queueing import Ask, HeadsOf, Live, QueueRule, each_of
from core.tenants import Tenant, Usage
from db.holds import READY_JOBS, VERDICTS, verdicts_of
from db.rows import (
    EXPERIENCE_SELECT,
    JOB_SELECT,
    REQUEST_SELECT,
    TROUBLE_SELECT,
    VM_SELECT,
    experience_of,
    job_of,
    request_of,
    trouble_of,
    vm_of,
)
from db.tenants import SETTINGS, VERSIONS, tenant_of, usage_of

Connection = AsyncConnection[TupleRow]
# The same words as in the partial indexes, or they would not be used.
_LIVE_STATUSES = ", ".join(f"'{s}'" for s in sorted([*LEASED, JobStatus.PROVISIONING]))
LIVE = f"""
SELECT uid::text, version, CASE WHEN status = 'PROVISIONING' THEN why END FROM jobs
WHERE status IN ({_LIVE_STATUSES}) ORDER BY jobs.uid
"""
# Jumps from cluster to cluster (and class to class) in the index instead of reading the queue.
KINDS = """
WITH RECURSIVE kinds AS (
    (SELECT cluster, tier FROM jobs WHERE status = 'QUEUED' AND blocked IS NULL
        ORDER BY cluster, tier LIMIT 1)
    UNION ALL
    SELECT n.cluster, n.tier FROM kinds AS k CROSS JOIN LATERAL (
        SELECT j.cluster, j.tier FROM jobs AS j
        WHERE j.status = 'QUEUED' AND j.blocked IS NULL
            AND (j.cluster, j.tier) > (k.cluster, k.tier)
        ORDER BY j.cluster, j.tier LIMIT 1
    ) AS n
)
SELECT cluster, tier FROM kinds
"""
# Tenant by tenant, the first ones of each, until there are enough: each loop has one outer list,
# so it is read in the order in which it came.
FAIR = """
SELECT h.uid::text, h.version, h.why, c.cluster, c.tier, h.tenant
FROM unnest(%(clusters)s::text[], %(tiers)s::int[], %(most)s::int[], %(each)s::int[])
    AS c(cluster, tier, most, each)
CROSS JOIN LATERAL (
    SELECT j.uid, j.version, j.why, t.tenant FROM unnest(%(tenants)s::text[]) AS t(tenant)
    CROSS JOIN LATERAL (
        SELECT uid, version, why FROM jobs
        WHERE status = 'QUEUED' AND blocked IS NULL AND cluster = c.cluster AND tier = c.tier
            AND tenant_id = t.tenant
        ORDER BY due_at, uid LIMIT c.each
    ) AS j LIMIT c.most
) AS h
"""
_PLAIN = """
SELECT h.uid::text, h.version, h.why
FROM unnest(%(clusters)s::text[], %(most)s::int[]) AS c(cluster, most)
CROSS JOIN LATERAL (
    SELECT uid, version, why FROM jobs
    WHERE status = 'QUEUED' AND blocked IS NULL AND cluster = c.cluster
    ORDER BY {order} LIMIT c.most
) AS h
"""
QUEUE = _PLAIN.format(order="priority DESC, queued_since, uid")
FIFO = _PLAIN.format(order="queued_since, uid")
# Those whose time is over, wherever they stand.
LATE = """
SELECT uid::text, version, why FROM jobs
WHERE status = 'QUEUED' AND deadline_at <= now() ORDER BY deadline_at LIMIT %(limit)s
"""
_FELLOWS = """
SELECT uid::text, version, why FROM jobs WHERE gang = ANY(%s::uuid[]) ORDER BY gang, rank
"""
_JOBS = f"SELECT {JOB_SELECT} FROM jobs AS j WHERE j.uid = ANY(%s::uuid[])"
# A VM that is gone stays in the picture until the jobs that it held have been told.
_SEEN = "v.state <> 'GONE' OR (v.state = 'GONE' AND v.leases <> '[]'::jsonb)"
_VM_VERSIONS = f"SELECT uid::text, version, last_beat_at FROM vms AS v WHERE {_SEEN} ORDER BY v.uid"
_VMS = f"SELECT {VM_SELECT} FROM vms AS v WHERE v.uid = ANY(%s::uuid[])"
_TROUBLES = f"SELECT {TROUBLE_SELECT} FROM troubles ORDER BY 1, 2, 3, 4, 5"
_EXPERIENCE = f"SELECT {EXPERIENCE_SELECT} FROM experience ORDER BY 1, 2, 3, 4"
# The newest of all clusters, by an index: the same cost for a queue of any length.
_ARRIVALS = """
SELECT cluster, submitted_at FROM jobs
WHERE submitted_at > now() - make_interval(secs => %(horizon)s)
ORDER BY submitted_at DESC, uid DESC LIMIT %(limit)s
"""
_REQUESTS = f"""
SELECT {REQUEST_SELECT} FROM cloud_requests WHERE settled_at IS NULL
ORDER BY created_at, request_id
"""
_ALERTS = "SELECT kind, subject, raised_at FROM alerts WHERE cleared_at IS NULL"


@dataclass(frozen=True, slots=True)
class _Rest:
    """Answers that are small."""

    troubles: AsyncCursor[TupleRow]
    requests: AsyncCursor[TupleRow]
    experience: AsyncCursor[TupleRow]
    arrivals: AsyncCursor[TupleRow]
    alerts: AsyncCursor[TupleRow]


class Viewer:
    """Takes pictures. A row at a version never changes, so those of the last picture are not
    fetched again: a turn costs what has moved, not what is there."""

    def __init__(self) -> None:
        self._jobs: Mapping[str, Job] = {}
        self._vms: Mapping[str, Vm] = {}
        self._tenants: Mapping[str, Tenant] = {}

    async def view(self, connection: Connection, queue_limit: int, ask: Ask | None = None) -> View:
        """One consistent picture, with the database's time."""
        # One snapshot for all questions; nothing is locked, so the loop never waits for a writer.
        async with connection.pipeline(), connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            clock = await connection.execute("SELECT now()", binary=True)
            live = await connection.execute(LIVE, binary=True)
            kinds = await connection.execute(KINDS, binary=True) if queue_limit else None
            late = await connection.execute(LATE, {"limit": queue_limit}, binary=True)
            freed = await connection.execute(READY_JOBS, {"limit": queue_limit}, binary=True)
            verdicts = await connection.execute(VERDICTS, {"limit": queue_limit}, binary=True)
            vms = await connection.execute(_VM_VERSIONS, binary=True)
            tenants = await connection.execute(VERSIONS, binary=True)
            rest = await _ask_rest(connection)
            moment = await clock.fetchone()
            assert moment is not None
            now: datetime = moment[0]
            heads: Sequence[TupleRow] = await live.fetchall()
            found = living = await self._fetch_jobs(connection, heads)
            whys = {head[0]: head[2] for head in heads if head[2] is not None}
            settings, usage = await self._fetch_tenants(connection, await tenants.fetchall())
            if kinds is not None:
                known = await kinds.fetchall()
                queues = sorted({row[0] for row in known})
                world = Live(now, tuple(living.values()), settings, usage, queues)
                wanted = ask(world) if ask is not None else _all_of(known, queue_limit)
                queue = await _heads(connection, wanted, known, queue_limit)
                heads = _once(chain(queue, await late.fetchall(), await freed.fetchall()))
                found = {**living, **await self._fetch_jobs(connection, heads)}
                whys |= {head[0]: head[2] for head in heads}
                fellows = await self._fetch_fellows(connection, found)
                found.update((job.uid, job) for job, _ in fellows)
                whys |= {job.uid: why for job, why in fellows if job.status in WAITING}
            # A reader without a queue must not make the loop fetch its whole queue again.
            self._jobs = found if queue_limit else {**self._jobs, **found}
            self._vms = await self._fetch_vms(connection, await vms.fetchall())
            return View(
                now=now,
                jobs=tuple(found.values()),
                vms=tuple(self._vms.values()),
                troubles=tuple(trouble_of(row) for row in await rest.troubles.fetchall()),
                requests=tuple(request_of(row) for row in await rest.requests.fetchall()),
                whys=whys,
                open_alerts={(kind, what): at for kind, what, at in await rest.alerts.fetchall()},
                experience=tuple(experience_of(row) for row in await rest.experience.fetchall()),
                arrivals=arrivals_by_cluster(await rest.arrivals.fetchall(), now),
                tenants=settings,
                usage=usage,
                verdicts=verdicts_of(await verdicts.fetchall()),
            )

    async def _fetch_jobs(
        self, connection: Connection, heads: Sequence[TupleRow]
    ) -> dict[str, Job]:
        """In the order of the heads."""
        seen = self._jobs
        found: dict[str, Job | None] = {
            head[0]: job if (job := seen.get(head[0])) and job.version == head[1] else None
            for head in heads
        }
        missing = [uid for uid, job in found.items() if job is None]
        if missing:
            cursor = await connection.execute(_JOBS, (missing,), binary=True)
            found.update((row[0], job_of(row)) for row in await cursor.fetchall())
        return {uid: job for uid, job in found.items() if job is not None}

    async def _fetch_fellows(
        self, connection: Connection, found: Mapping[str, Job]
    ) -> list[tuple[Job, str]]:
        """Gangs are looked at whole, wherever their members stand: also those that have ended."""
        gangs = {job.gang.uid for job in found.values() if job.gang is not None}
        if not gangs:
            return []
        cursor = await connection.execute(_FELLOWS, (sorted(gangs),), binary=True)
        heads = [head for head in await cursor.fetchall() if head[0] not in found]
        jobs = await self._fetch_jobs(connection, heads)
        return [(jobs[head[0]], head[2]) for head in heads]

    async def _fetch_vms(self, connection: Connection, rows: Sequence[TupleRow]) -> dict[str, Vm]:
        """Beats leave the version alone: they are hot, and nothing else of the row changes."""
        seen = self._vms
        found: dict[str, Vm | None] = {}
        for uid, version, beat_at in rows:
            vm = seen.get(uid)
            if vm is None or vm.version != version:
                found[uid] = None
            else:
                found[uid] = vm if vm.last_beat_at == beat_at else heard(vm, beat_at)
        missing = [uid for uid, vm in found.items() if vm is None]
        if missing:
            cursor = await connection.execute(_VMS, (missing,), binary=True)
            found.update((row[0], vm_of(row)) for row in await cursor.fetchall())
        return {uid: vm for uid, vm in found.items() if vm is not None}

    async def _fetch_tenants(
        self, connection: Connection, rows: Sequence[TupleRow]
    ) -> tuple[Mapping[str, Tenant], Mapping[str, Usage]]:
        seen = self._tenants
        missing = [r[0] for r in rows if r[0] not in seen or seen[r[0]].version != r[1]]
        if missing:
            cursor = await connection.execute(SETTINGS, (missing,))
            news = {row[0]: tenant_of(row) for row in await cursor.fetchall()}
            self._tenants = {r[0]: news.get(r[0]) or seen[r[0]] for r in rows}
        return self._tenants, {row[0]: usage_of(row[2], row[3]) for row in rows}


async def _ask_rest(connection: Connection) -> _Rest:
    return _Rest(
        troubles=await connection.execute(_TROUBLES, binary=True),
        requests=await connection.execute(_REQUESTS, binary=True),
        experience=await connection.execute(_EXPERIENCE, binary=True),
        arrivals=await connection.execute(
            _ARRIVALS, {"horizon": ARRIVALS_HORIZON_S, "limit": ARRIVALS_MAX}, binary=True
        ),
        alerts=await connection.execute(_ALERTS),
    )


def _once(heads: Iterable[TupleRow]) -> list[TupleRow]:
    """A job whose time is over may be a head as well."""
    return list({head[0]: head for head in heads}.values())


def _all_of(known: Sequence[TupleRow], limit: int) -> list[HeadsOf]:
    """Without a question: of every cluster, by priority and arrival."""
    return [HeadsOf(cluster, limit) for cluster in sorted({row[0] for row in known})]


async def _heads(
    connection: Connection, wanted: Sequence[HeadsOf], known: Sequence[TupleRow], most: int
) -> list[TupleRow]:
    """The heads of all queues; a cluster without a queue costs nothing."""
    tiers: dict[str, list[int]] = {}
    for cluster, tier in known:
        tiers.setdefault(cluster, []).append(tier)
    found: list[TupleRow] = []
    there = [heads for heads in wanted if heads.cluster in tiers and heads.limit > 0]
    for rule, query in ((QueueRule.PRIORITY, QUEUE), (QueueRule.FIFO, FIFO)):
        plain = [heads for heads in there if heads.rule is rule]
        if plain:
            asked = {
                "clusters": [heads.cluster for heads in plain],
                "most": [min(most, heads.limit) for heads in plain],
            }
            cursor = await connection.execute(query, asked, binary=True)
            found += await cursor.fetchall()
    fair = [heads for heads in there if heads.rule is QueueRule.FAIR and heads.tenants]
    for tenants in dict.fromkeys(tuple(heads.tenants) for heads in fair):
        same = [heads for heads in fair if tuple(heads.tenants) == tenants]
        found += await _fair_heads(connection, same, tiers, most)
    return found


async def _fair_heads(
    connection: Connection, fair: Sequence[HeadsOf], tiers: Mapping[str, list[int]], most: int
) -> list[TupleRow]:
    """First a few of each tenant. Where that does not make enough because few tenants have deep
    queues, deeper."""
    kinds = [(heads, tier) for heads in fair for tier in reversed(tiers[heads.cluster])]
    rows = await _ask_fair(connection, [(*kind, each_of(kind[0])) for kind in kinds], most)
    counts = Counter((row[3], row[4]) for row in rows)
    full = Counter((row[3], row[4], row[5]) for row in rows)
    deep = {
        (cluster, tier)
        for (cluster, tier, _), count in full.items()
        if any(h.cluster == cluster and count == each_of(h) for h in fair)
    }
    again = [
        (heads, tier, heads.limit)
        for heads, tier in kinds
        if (heads.cluster, tier) in deep
        and counts[heads.cluster, tier] < min(most, heads.limit)
        and each_of(heads) < heads.limit
    ]
    if again:
        rows += await _ask_fair(connection, again, most)
    return [row[:3] for row in rows]


async def _ask_fair(
    connection: Connection, kinds: Sequence[tuple[HeadsOf, int, int]], most: int
) -> list[TupleRow]:
    asked = {
        "clusters": [heads.cluster for heads, _, _ in kinds],
        "tiers": [tier for _, tier, _ in kinds],
        "most": [min(most, heads.limit) for heads, _, _ in kinds],
        "each": [each for _, _, each in kinds],
        "tenants": list(kinds[0][0].tenants),
    }
    return await (await connection.execute(FAIR, asked, binary=True)).fetchall()
