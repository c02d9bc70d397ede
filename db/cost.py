"""Costs on PostgreSQL: settles the bills of VMs into daily sums, and answers what things cost.

What each second was for is decided in core/cost.py alone; here its inputs are fetched and its
results are added up.
"""
# ruff: noqa: S608  # only our own pieces of text are put together here

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date
from typing import Any

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.cost import (
    SETTLE_AFTER,
    Amount,
    CostKind,
    Life,
    SettledBills,
    Settlement,
    Spent,
    add_live_spend,
    settle,
    settled,
    sums_of,
)
from core.cost_report import CostQuestion, CostReport, CostTally, job_amounts, job_key
from db.vm_states import GONE

Connection = AsyncConnection[TupleRow]
_CHUNK = 200
"""VMs between two breaths: other tasks of this process are not held up."""

# A VM as core.cost.Life reads it, with its attempts since it was last settled, and the last one
# before: idling after it is its job's.
_UNSETTLED = """(s.ended_at IS NULL OR v.settled_until IS NULL OR s.ended_at >= coalesce((
            SELECT max(l.ended_at) FROM attempts AS l
            WHERE l.vm_uid = v.uid AND l.ended_at <= v.settled_until), v.settled_until))"""


def _payer(job: str) -> str:
    return f"""jsonb_build_object('job_uid', {job}.uid, 'job_id', {job}.job_id,
            'tenant_id', {job}.tenant_id, 'user_id', {job}.user_id)"""


LIFE = f"""
jsonb_build_object('vm_uid', v.uid, 'cluster', v.cluster, 'region', v.region, 'spot', v.spot,
    'gpus', v.gpus, 'usd_per_hour', v.usd_per_hour, 'running_since', v.running_since,
    'ready_at', v.ready_at, 'off_at', coalesce(v.stopped_at, v.gone_at),
    'settled_until', v.settled_until, 'idle_max_s', v.idle_max_s,
    'leaving_since', v.leaving_since, 'billed_at_least_s', v.billed_at_least_s,
    'cause', (SELECT {_payer("c")} FROM jobs AS c WHERE c.uid = v.caused_by),
    'stays', coalesce((
        SELECT jsonb_agg(jsonb_build_object('payer', {_payer("o")},
            'gpus', jsonb_array_length(s.slots), 'since', s.assigned_at, 'until', s.ended_at,
            'checkpoint_at', s.checkpoint_at, 'outcome', s.outcome)
            ORDER BY s.assigned_at, s.uid)
        FROM attempts AS s JOIN jobs AS o ON o.uid = s.uid
        WHERE s.vm_uid = v.uid AND {_UNSETTLED}), '[]'::jsonb))
"""
LIVES = f"SELECT {LIFE}::text FROM vms AS v WHERE NOT v.settled AND v.running_since IS NOT NULL"

# What one job (j) has caused: long ago, settled by kind, and the VMs that are not settled, those
# on which it ran and VMs that were requested because it waited.
JOB_COSTS = f"""
j.past_cost_usd, (SELECT jsonb_object_agg(k.kind, k.usd) FROM (
    SELECT kind, sum(usd) AS usd FROM job_costs AS c WHERE c.uid = j.uid GROUP BY kind) AS k)::text,
(SELECT jsonb_agg({LIFE}) FROM vms AS v
    WHERE v.uid IN (SELECT a.vm_uid FROM attempts AS a WHERE a.uid = j.uid
        UNION ALL SELECT w.uid FROM vms AS w WHERE w.caused_by = j.uid AND NOT w.settled)
    AND NOT v.settled AND v.running_since IS NOT NULL)::text, now()
"""

# VMs that are gone and whose jobs have heard; and of active ones, whatever ended before the
# oldest attempt that goes on, once that is SETTLE_AFTER. So reports never read a long history.
_AFTER = f"interval '{SETTLE_AFTER.total_seconds():g} s'"
DUE = f"""
SELECT v.uid::text FROM vms AS v CROSS JOIN LATERAL (
    SELECT coalesce(v.settled_until, v.running_since) AS since
) AS d
WHERE NOT v.settled AND ((v.{GONE} AND v.leases = '[]'::jsonb) OR (
    d.since < now() - {_AFTER}
    AND EXISTS (SELECT FROM attempts AS a WHERE a.vm_uid = v.uid AND a.assigned_at >= d.since
        AND a.ended_at IS NOT NULL)
    AND NOT EXISTS (SELECT FROM attempts AS a WHERE a.vm_uid = v.uid AND a.assigned_at >= d.since
        AND a.assigned_at < d.since + {_AFTER} AND a.ended_at IS NULL)))
ORDER BY v.uid LIMIT %s FOR NO KEY UPDATE OF v SKIP LOCKED
"""
_DUE_LIVES = f"SELECT {LIFE}::text, now() FROM vms AS v WHERE v.uid = ANY(%s::uuid[])"
_DUE_LIVES += " AND v.running_since IS NOT NULL"
# A VM that never ran cost nothing.
_FREE = f"""
UPDATE vms SET settled = true
WHERE uid = ANY(%s::uuid[]) AND running_since IS NULL AND {GONE}
"""
_MARK = """
UPDATE vms AS v SET settled_until = x.until, settled = x.whole
FROM unnest(%s::uuid[], %s::timestamptz[], %s::bool[]) AS x(uid, until, whole) WHERE v.uid = x.uid
"""
_SUMS = "vm_seconds = t.vm_seconds + excluded.vm_seconds, "
_SUMS += "gpu_seconds = t.gpu_seconds + excluded.gpu_seconds, usd = t.usd + excluded.usd"
# Sorted, so that two that settle at once cannot wait for each other in a circle.
_ADD_DAILY = f"""
INSERT INTO cost_daily AS t (day, tenant_id, user_id, cluster, region, spot, kind,
    vm_seconds, gpu_seconds, usd)
SELECT * FROM unnest(%s::date[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bool[],
    %s::text[], %s::float8[], %s::float8[], %s::float8[]) AS x ORDER BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT (day, tenant_id, user_id, cluster, region, spot, kind) DO UPDATE SET {_SUMS}
"""
_ADD_JOBS = f"""
INSERT INTO job_costs AS t (uid, day, kind, vm_seconds, gpu_seconds, usd)
SELECT * FROM unnest(%s::uuid[], %s::date[], %s::text[], %s::float8[], %s::float8[],
    %s::float8[]) AS x ORDER BY 1, 2, 3
ON CONFLICT (uid, day, kind) DO UPDATE SET {_SUMS}
"""
_SPENT = """
SELECT tenant_id, sum(usd) FILTER (WHERE day = %(today)s), sum(usd) FROM cost_daily
WHERE day >= %(month)s AND tenant_id <> '' GROUP BY 1
"""
_AMOUNTS = "sum(c.vm_seconds), sum(c.gpu_seconds), sum(c.usd)"
_GROUPS = {
    "kind": "c.kind",
    "tenant": "c.tenant_id",
    "user": "c.user_id",
    "cluster": "c.cluster",
    "region": "c.region",
    "spot": "CASE WHEN c.spot THEN 'spot' ELSE 'standard' END",
    "day": "c.day::text",
}
_FITS = """(%(tenant_id)s::text IS NULL OR {0}.tenant_id = %(tenant_id)s)
    AND (%(cluster)s::text IS NULL OR {0}.cluster = %(cluster)s)"""
_DAYS = "c.day BETWEEN %(since)s AND %(until)s"
_TODAY = f"SELECT {_AMOUNTS} FROM cost_daily AS c WHERE c.day = %(today)s AND {_FITS.format('c')}"
_NOBODYS = f"""
SELECT c.kind, {_AMOUNTS} FROM cost_daily AS c
WHERE c.tenant_id = '' AND {_DAYS} AND {_FITS.format("c")} GROUP BY 1
"""
# The dearest, and the active ones: what they cost now may make them the dearest.
_JOBS = f"""
WITH dearest AS (
    SELECT c.uid FROM job_costs AS c JOIN jobs AS j ON j.uid = c.uid
    WHERE {_DAYS} AND {_FITS.format("j")} GROUP BY c.uid ORDER BY sum(c.usd) DESC LIMIT %(limit)s
)
SELECT j.job_id, j.user_id, c.kind, {_AMOUNTS} FROM job_costs AS c JOIN jobs AS j ON j.uid = c.uid
WHERE (c.uid IN (SELECT uid FROM dearest) OR c.uid = ANY(%(live)s::uuid[]))
    AND {_DAYS} AND {_FITS.format("j")}
GROUP BY 1, 2, 3
"""

_life = msgspec.json.Decoder(Life)
_lives = msgspec.json.Decoder(list[Life])
_by_kind = msgspec.json.Decoder(dict[CostKind, float])


async def settle_costs(connection: Connection, batch: int) -> SettledBills:
    """One transaction: the sums and the mark on the VM that it is in them, or neither."""
    async with connection.transaction():
        uids = [row[0] for row in await (await connection.execute(DUE, (batch,))).fetchall()]
        if not uids:
            return SettledBills()
        await connection.execute(_FREE, (uids,))
        rows = await (await connection.execute(_DUE_LIVES, (uids,))).fetchall()
        lives = [(_life.decode(text), now) for text, now in rows]
        done = [found for life, now in lives if (found := settle(life, now)) is not None]
        await _add(connection, done)
    return settled(done, len(uids))


async def _add(connection: Connection, done: Sequence[Settlement]) -> None:
    daily, jobs = sums_of(done)
    if daily:
        await connection.execute(_ADD_DAILY, _columns(daily))
    if jobs:
        await connection.execute(_ADD_JOBS, _columns(jobs))
    marks = [[s.life.vm_uid for s in done], [s.until for s in done], [s.whole for s in done]]
    await connection.execute(_MARK, marks)


def _columns(sums: Mapping[tuple[Any, ...], Amount]) -> list[list[object]]:
    """One array per column; the last part of each key is its kind."""
    rows = [(*k[:-1], str(k[-1]), a.vm_seconds, a.gpu_seconds, a.usd) for k, a in sums.items()]
    return [list(column) for column in zip(*rows, strict=True)]


async def spent(connection: Connection) -> Mapping[str, Spent]:
    """Tenant → what its jobs have cost today and this month (UTC)."""
    async with connection.transaction():
        now, today = await _moment(connection)
        words = {"today": today, "month": today.replace(day=1)}
        rows = await (await connection.execute(_SPENT, words)).fetchall()
        texts = await (await connection.execute(LIVES)).fetchall()
    sums = {tenant: Spent(day or 0.0, month) for tenant, day, month in rows}
    for some in _chunks(texts):
        sums = add_live_spend(sums, some, now)
        await asyncio.sleep(0)
    return sums


async def cost_report(connection: Connection, question: CostQuestion) -> CostReport:
    """Settled sums by index, plus the VMs that are not settled, in one snapshot."""
    async with connection.transaction():
        now, today = await _moment(connection)
        texts = await (await connection.execute(LIVES)).fetchall()
        tally = CostTally(question, now)
        words: dict[str, Any] = {
            "tenant_id": question.tenant_id,
            "cluster": question.cluster,
            "since": question.since,
            "until": question.until,
            "today": today,
        }
        (row,) = await (await connection.execute(_TODAY, words)).fetchall()
        tally.today = Amount(*(value or 0.0 for value in row))
        for key, kind, *amount in await _grouped(connection, "kind", words):
            tally.add_total(CostKind(kind), Amount(*amount))
            if question.by == "kind":
                tally.add_row(key, CostKind(kind), Amount(*amount))
        if question.by == "job":
            await _settled_jobs(connection, tally, words, texts)
        elif question.by != "kind":
            for key, kind, *amount in await _grouped(connection, question.by, words):
                tally.add_row(key, CostKind(kind), Amount(*amount))
    for some in _chunks(texts):
        for life in some:
            tally.add_life(life)
        await asyncio.sleep(0)
    return tally.report()


async def _moment(connection: Connection) -> tuple[Any, date]:
    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    (row,) = await (await connection.execute("SELECT now()")).fetchall()
    return row[0], row[0].astimezone(UTC).date()


async def _grouped(connection: Connection, by: str, words: Mapping[str, Any]) -> list[TupleRow]:
    query = f"""
SELECT {_GROUPS[by]}, c.kind, {_AMOUNTS} FROM cost_daily AS c
WHERE {_DAYS} AND {_FITS.format("c")} GROUP BY 1, 2
"""
    return await (await connection.execute(query, words)).fetchall()


async def _settled_jobs(
    connection: Connection, tally: CostTally, words: Mapping[str, Any], texts: Sequence[TupleRow]
) -> None:
    lives = [_life.decode(text) for (text,) in texts]
    payers = [stay.payer for life in lives for stay in life.stays]
    payers += [life.cause for life in lives if life.cause is not None]
    live = sorted({payer.job_uid for payer in payers})
    jobs = {**words, "limit": tally.question.limit, "live": live}
    for job_id, user_id, kind, *amount in await (await connection.execute(_JOBS, jobs)).fetchall():
        tally.add_row(job_key(job_id, user_id), CostKind(kind), Amount(*amount))
    for kind, *amount in await (await connection.execute(_NOBODYS, words)).fetchall():
        tally.add_row("", CostKind(kind), Amount(*amount))


def _chunks(texts: Sequence[TupleRow]) -> Iterable[list[Life]]:
    for start in range(0, len(texts), _CHUNK):
        yield [_life.decode(text) for (text,) in texts[start : start + _CHUNK]]


def job_costs_of(uid: str, row: Sequence[Any]) -> Mapping[CostKind, float]:
    """What a job has caused, from the columns of JOB_COSTS."""
    past, by_kind, open_lives, now = row
    sums = dict(_by_kind.decode(by_kind)) if by_kind else {}
    if open_lives:
        for kind, amount in job_amounts(_lives.decode(open_lives), uid, now).items():
            sums[kind] = sums.get(kind, 0.0) + amount.usd
    if past:
        sums[CostKind.USEFUL] = sums.get(CostKind.USEFUL, 0.0) + past
    return sums
