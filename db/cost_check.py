"""Whether the daily sums are the bills: read from the rows of VMs alone, by another road than the
one that made the sums. Nothing here is asked by the service itself."""

from __future__ import annotations

from db.store import PostgresStore

TOLERANCE_S = 0.01
"""Sums of doubles: far below the second that anybody is billed by."""
TOLERANCE_USD = 0.005
"""Half a cent."""

# Of each day and place, the seconds that VMs were billed for and that are settled. VMs are kept
# for longer than the days that are looked at, so none is missing.
_BILLS = """
WITH days AS (
    SELECT at::date AS day, at AS since, at + interval '1 day' AS until FROM generate_series(
        date_trunc('day', now()) - make_interval(days => %(days)s),
        date_trunc('day', now()) + interval '1 day', interval '1 day') AS at
), bills AS (
    SELECT d.day, v.cluster, v.region, v.spot,
        sum(extract(epoch FROM
            least(v.settled_until, d.until) - greatest(v.running_since, d.since))) AS seconds,
        sum(extract(epoch FROM least(v.settled_until, d.until) - greatest(v.running_since, d.since))
            / 3600 * v.usd_per_hour) AS usd
    FROM days AS d JOIN vms AS v ON v.running_since < d.until AND v.settled_until > d.since
    GROUP BY 1, 2, 3, 4
), parts AS (
    SELECT day, cluster, region, spot, sum(vm_seconds) AS seconds, sum(usd) AS usd FROM cost_daily
    WHERE day >= (SELECT min(day) FROM days) GROUP BY 1, 2, 3, 4
)
SELECT day::text || ' ' || cluster || ' ' || region || CASE WHEN spot THEN ' spot' ELSE '' END
    || ': billed ' || round(coalesce(b.seconds, 0)::numeric, 3) || ' s, $'
    || round(coalesce(b.usd, 0)::numeric, 4) || ', attributed '
    || round(coalesce(p.seconds, 0)::numeric, 3) || ' s, $' || round(coalesce(p.usd, 0)::numeric, 4)
FROM bills AS b FULL JOIN parts AS p USING (day, cluster, region, spot)
WHERE abs(coalesce(b.seconds, 0) - coalesce(p.seconds, 0)) > %(tolerance)s
    OR abs(coalesce(b.usd, 0) - coalesce(p.usd, 0)) > %(tolerance_usd)s
"""
# A bill that is settled whole ends when the VM was off, a minute after it ran at the earliest.
_ENDS = """
SELECT 'VM ' || name || ' is settled until ' || coalesce(settled_until::text, 'never')
    || ', billed until ' || bill_ends
FROM vms CROSS JOIN LATERAL (
    SELECT greatest(coalesce(stopped_at, gone_at), running_since + interval '1 min') AS bill_ends
) AS b
WHERE settled AND running_since IS NOT NULL AND settled_until IS DISTINCT FROM bill_ends
"""
# What is some tenant's is some job's.
_JOBS = """
SELECT 'jobs of ' || tenant_id || ' on ' || day || ': ' || coalesce(j.usd, 0) || ' USD by job, '
    || coalesce(d.usd, 0) || ' USD by day'
FROM (
    SELECT c.day, o.tenant_id, sum(c.usd) AS usd FROM job_costs AS c JOIN jobs AS o USING (uid)
    GROUP BY 1, 2
) AS j FULL JOIN (
    SELECT day, tenant_id, sum(usd) AS usd FROM cost_daily WHERE tenant_id <> '' GROUP BY 1, 2
) AS d USING (day, tenant_id)
WHERE abs(coalesce(j.usd, 0) - coalesce(d.usd, 0)) > 1e-6 * greatest(1, j.usd, d.usd)
"""


async def cost_faults(store: PostgresStore, days: int = 28) -> list[str]:
    """Every place where the sums are not the bills, over the last days."""
    words = {"days": days, "tolerance": TOLERANCE_S, "tolerance_usd": TOLERANCE_USD}
    async with store.connection() as connection:
        bills = await (await connection.execute(_BILLS, words)).fetchall()
        ends = await (await connection.execute(_ENDS)).fetchall()
        jobs = await (await connection.execute(_JOBS)).fetchall()
    return [row[0] for row in (*bills, *ends, *jobs)]
