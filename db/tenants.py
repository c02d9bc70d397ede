"""Tenants on PostgreSQL: their settings, what they hold, what they have used."""
# ruff: noqa: S608  # only our own lists of words are put into these texts

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.commit_writes import Charged
from core.tenants import HOLDS, Consent, Holding, Quota, ResourceTotals, Tenant, TenantRow, Usage

Connection = AsyncConnection[TupleRow]
_quota = msgspec.json.Decoder(Quota)
_consent = msgspec.json.Decoder(Consent)
_HOLDS = ", ".join(f"'{status}'" for status in sorted(HOLDS))

TENANT_SELECT = (
    "tenant_id, weight, priority_max, may_preempt, preemptible, quota::text, version, "
    "usage_gpu_s, usage_at, name, deleted, consent::text"
)
SETTINGS = f"SELECT {TENANT_SELECT} FROM tenants WHERE tenant_id = ANY(%s::text[])"
VERSIONS = "SELECT tenant_id, version, usage_gpu_s, usage_at FROM tenants ORDER BY tenant_id"
LOCK = f"{SETTINGS} ORDER BY tenant_id FOR NO KEY UPDATE"
_ALL = f"SELECT {TENANT_SELECT} FROM tenants ORDER BY tenant_id"
# Only of those who have a quota: the sums of the others are nobody's business. The status words
# are those of the partial index.
_SUMS = f"""
SELECT j.tenant_id, j.cluster, count(*), sum(x.gpus), sum(x.cpus),
    coalesce(sum(greatest(x.gpus, 1)) FILTER (WHERE x.cpus = 0), 0), sum(x.memory_mb),
    coalesce(sum(greatest(x.gpus, 1)) FILTER (WHERE x.memory_mb = 0), 0), sum(x.gpu_memory_mb),
    coalesce(sum(x.gpus) FILTER (WHERE x.gpu_memory_mb = 0), 0)
FROM jobs AS j CROSS JOIN LATERAL (
    SELECT coalesce((j.spec ->> 'gpu_count')::int, 1) AS gpus,
        coalesce((j.spec ->> 'cpu_cores')::float8, 0) AS cpus,
        coalesce((j.spec ->> 'memory_mb')::float8, 0) AS memory_mb,
        coalesce((j.spec ->> 'gpu_memory_mb')::float8, 0) AS gpu_memory_mb
) AS x
WHERE j.status IN ({_HOLDS}) AND j.tenant_id
"""
HELD_UNDER_QUOTA = f"""
{_SUMS} IN (
    SELECT t.tenant_id FROM tenants AS t
    WHERE t.tenant_id = ANY(%s::text[]) AND t.quota <> '{{}}'::jsonb
) GROUP BY 1, 2
"""
_HELD = f"{_SUMS} = coalesce(%s, j.tenant_id) GROUP BY 1, 2 ORDER BY 1, 2"
# Sorted, so that two submissions that bring the same new tenants do not wait in a circle.
ENSURE = """
INSERT INTO tenants (tenant_id) SELECT x FROM unnest(%s::text[]) AS x ORDER BY 1
ON CONFLICT DO NOTHING
"""
# A second statement: an upsert would lock the rows of all tenants that submit.
REVIVE = """
UPDATE tenants SET deleted = false, version = version + 1
WHERE tenant_id = ANY(%s::text[]) AND deleted
"""
_PUT = """
INSERT INTO tenants
    (tenant_id, weight, priority_max, may_preempt, preemptible, quota, version, name, deleted,
    consent)
VALUES (%s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s, %s::jsonb)
ON CONFLICT (tenant_id) DO UPDATE SET weight = excluded.weight,
    priority_max = excluded.priority_max, may_preempt = excluded.may_preempt,
    preemptible = excluded.preemptible, quota = excluded.quota, version = excluded.version,
    name = excluded.name, deleted = excluded.deleted, consent = excluded.consent
"""
# The exponents are bounded: PostgreSQL refuses what underflows.
_CHARGE = """
UPDATE tenants AS t SET
    usage_gpu_s = t.usage_gpu_s * power(0.5, least(1000, greatest(0, x.age) / x.half_life_s))
        + x.gpu_s * power(0.5, least(1000, greatest(0, -x.age) / x.half_life_s)),
    usage_at = greatest(t.usage_at, x.at)
FROM (
    SELECT u.*, coalesce(extract(epoch FROM u.at - k.usage_at)::float8, 0) AS age
    FROM unnest(%s::text[], %s::float8[], %s::timestamptz[], %s::float8[])
        AS u(tenant_id, gpu_s, at, half_life_s) JOIN tenants AS k USING (tenant_id)
) AS x WHERE t.tenant_id = x.tenant_id
"""


def tenant_of(row: TupleRow) -> Tenant:
    """A row of TENANT_SELECT."""
    tenant_id, weight, priority_max, may_preempt, preemptible, quota, version = row[:7]
    settings = (weight, priority_max, may_preempt, preemptible)
    rest = (*row[9:11], _consent.decode(row[11]))
    return Tenant(tenant_id, *settings, _quota.decode(quota), version, *rest)


def usage_of(gpu_s: float, at: object) -> Usage:
    return Usage(gpu_s, at)  # type: ignore[arg-type]


def held_of(rows: Sequence[TupleRow]) -> dict[str, Holding]:
    """Tenant → cluster → what its jobs hold."""
    found: dict[str, dict[str, ResourceTotals]] = {}
    for tenant_id, cluster, *sums in rows:
        jobs, gpus, cpus, bare_cpus, memory_mb, bare_memory, gpu_mb, bare_gpu = sums
        asked = (cpus, int(bare_cpus), memory_mb, int(bare_memory), gpu_mb, int(bare_gpu))
        tally = ResourceTotals(jobs, int(gpus), *asked)
        found.setdefault(tenant_id, {})[cluster] = tally
    return dict(found)


def quota_json(quota: Quota) -> str:
    """Only what is limited: no limits at all is `{}`."""
    asked = {name: getattr(quota, name) for name in quota.__slots__}
    return msgspec.json.encode({k: v for k, v in asked.items() if v not in (None, {})}).decode()


async def write_tenants(
    connection: Connection, tenants: Sequence[Tenant], charged: dict[str, Charged]
) -> None:
    """What a commit brings, inside its pipeline."""
    for t in tenants:
        settings = (t.tenant_id, t.weight, t.priority_max, t.may_preempt, t.preemptible)
        consent = msgspec.json.encode(t.consent).decode()
        rest = (quota_json(t.quota), t.version, t.name, t.deleted, consent)
        await connection.execute(_PUT, (*settings, *rest))
    if charged:
        names = sorted(charged)
        rows = [charged[name] for name in names]
        columns = ([r.usage.gpu_s for r in rows], [r.usage.at for r in rows])
        await connection.execute(_CHARGE, (names, *columns, [r.half_life_s for r in rows]))


async def all_tenants(connection: Connection) -> list[TenantRow]:
    rows = await (await connection.execute(_ALL)).fetchall()
    return [TenantRow(tenant_of(row), usage_of(*row[7:9])) for row in rows]


async def holdings(connection: Connection, tenant_id: str | None) -> dict[str, Holding]:
    return held_of(await (await connection.execute(_HELD, (tenant_id,))).fetchall())
