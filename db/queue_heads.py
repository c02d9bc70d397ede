"""The heads of the queues: as many jobs of each as a cycle can use, from an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.queueing import HeadsOf, QueueRule, each_of

Connection = AsyncConnection[TupleRow]
# The keys of core/queueing.py in SQL.
BY_ARRIVAL = "queued_since, uid"
BY_PRIORITY = "priority DESC, queued_since, uid"
BY_DUE = "due_at, uid"
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
_FAIR = """
SELECT h.uid::text, h.version, h.why, h.gang_size, c.cluster, c.tier, h.tenant
FROM unnest(%(clusters)s::text[], %(tiers)s::int[], %(most)s::int[], %(each)s::int[])
    AS c(cluster, tier, most, each)
CROSS JOIN LATERAL (
    SELECT j.*, t.tenant FROM unnest(%(tenants)s::text[]) AS t(tenant)
    CROSS JOIN LATERAL (
        SELECT uid, version, why, gang_size FROM jobs
        WHERE status = 'QUEUED' AND blocked IS NULL AND cluster = c.cluster AND tier = c.tier
            AND tenant_id = t.tenant AND (rank = 0 OR %(members)s)
            AND (retry_at IS NULL OR retry_at <= now() OR %(backing_off)s)
        ORDER BY {order} LIMIT c.each
    ) AS j LIMIT c.most
) AS h
"""
_PLAIN = """
SELECT h.uid::text, h.version, h.why, h.gang_size, c.cluster
FROM unnest(%(clusters)s::text[], %(most)s::int[]) AS c(cluster, most)
CROSS JOIN LATERAL (
    SELECT uid, version, why, gang_size FROM jobs
    WHERE status = 'QUEUED' AND blocked IS NULL AND cluster = c.cluster
        AND (rank = 0 OR %(members)s)
        AND (retry_at IS NULL OR retry_at <= now() OR %(backing_off)s)
    ORDER BY {order} LIMIT c.most
) AS h
"""
FAIR = _FAIR.format(order=BY_DUE)
QUEUE = _PLAIN.format(order=BY_PRIORITY)
FIFO = _PLAIN.format(order=BY_ARRIVAL)


def due_before(one: str, other: str) -> str:
    """Whether a job goes before another one of its tenant and class. Both are aliases of rows."""
    return f"({one}.due_at, {one}.uid) < ({other}.due_at, {other}.uid)"


async def queue_heads(
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
            cursor = await connection.execute(query, _asked(plain, most), binary=True)
            found += _enough(await cursor.fetchall(), plain, 5)
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
    counts = Counter(row[4:6] for row in rows)
    full = Counter(row[4:7] for row in rows)
    few = {heads.cluster: each_of(heads) for heads in fair}
    deep = {(cluster, tier) for (cluster, tier, _), n in full.items() if n == few[cluster]}
    again = [
        (heads, tier, heads.limit)
        for heads, tier in kinds
        if (heads.cluster, tier) in deep
        and counts[heads.cluster, tier] < min(most, heads.limit)
        and each_of(heads) < heads.limit
    ]
    if again:
        deeper = {(heads.cluster, tier) for heads, tier, _ in again}
        rows = [row for row in rows if row[4:6] not in deeper]
        rows += await _ask_fair(connection, again, most)
    return _enough(rows, fair, 6)


async def _ask_fair(
    connection: Connection, kinds: Sequence[tuple[HeadsOf, int, int]], most: int
) -> list[TupleRow]:
    asked = {
        **_asked([heads for heads, _, _ in kinds], most),
        "tiers": [tier for _, tier, _ in kinds],
        "each": [each for _, _, each in kinds],
        "tenants": list(kinds[0][0].tenants),
    }
    return await (await connection.execute(FAIR, asked, binary=True)).fetchall()


def _asked(wanted: Sequence[HeadsOf], most: int) -> dict[str, object]:
    return {
        "clusters": [heads.cluster for heads in wanted],
        "most": [min(most, heads.limit) for heads in wanted],
        "backing_off": any(heads.backing_off for heads in wanted),
        "members": any(heads.room is None for heads in wanted),
    }


def _enough(rows: Iterable[TupleRow], wanted: Sequence[HeadsOf], end: int) -> list[TupleRow]:
    """The heads that are needed of each queue: its rows are alike from column 4 to `end`."""
    queues: dict[TupleRow, list[TupleRow]] = {}
    for row in rows:
        queues.setdefault(row[4:end], []).append(row)
    by_cluster = {heads.cluster: heads for heads in wanted}
    return [
        row[:3]
        for kind, found in queues.items()
        for row in found[: by_cluster[kind[0]].enough(row[3] for row in found)]
    ]
