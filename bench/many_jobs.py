"""A database with many jobs in it: most have ended, some wait, of many tenants and users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from core.job_fields import JobSpec
from db.packed import plain
from db.rows import to_json

# A UUIDv7 of the job's moment, as the service makes them.
_UID = """(lpad(to_hex((extract(epoch FROM n.at) * 1000)::bigint), 12, '0') || '7'
    || substr(md5(n.n::text), 1, 3) || '8' || substr(md5(n.n::text), 4, 15))::uuid"""
_JOBS = f"""
INSERT INTO jobs (uid, tenant_id, user_id, job_id, name, cluster, status, priority, labels, spec,
    content_hash, version, attempt, submitted_at, status_since, queued_since, deadline_at,
    started_at, ended_at, exit_code, reason, tier, due_at, last_seq)
SELECT {_UID}, x.tenant, x.user_id, 'job-' || n.n, '', x.cluster, x.status, 500,
    x.labels, %(spec)s::jsonb || jsonb_build_object('job_id', 'job-' || n.n, 'tenant_id', x.tenant,
        'user_id', x.user_id, 'labels', x.labels),
    md5(n.n::text), CASE WHEN x.ended THEN 6 ELSE 1 END, CASE WHEN x.ended THEN 1 ELSE 0 END,
    n.at, n.at, n.at, CASE WHEN NOT x.ended THEN now() + interval '30 d' END,
    CASE WHEN x.ended THEN n.at END, CASE WHEN x.ended THEN n.at END,
    CASE x.status WHEN 'SUCCEEDED' THEN 0 WHEN 'FAILED' THEN 1 END, '', 1,
    n.at + interval '20 h', 5
FROM (
    SELECT n, now() - (%(last)s - n) * interval '100 ms' AS at
    FROM generate_series(%(first)s::int, %(last)s::int) AS n
) AS n CROSS JOIN LATERAL (
    SELECT 'tenant-' || lpad((n.n %% %(tenants)s)::text, 4, '0') AS tenant,
        'user-' || n.n %% %(users)s AS user_id,
        (%(clusters)s::text[])[CASE WHEN n.n %% 100 < %(queued)s THEN 1
            ELSE 1 + n.n / 7 %% cardinality(%(clusters)s::text[]) END] AS cluster,
        CASE WHEN n.n %% 100 < %(queued)s THEN 'QUEUED' WHEN n.n %% 100 < 90 THEN 'SUCCEEDED'
            WHEN n.n %% 100 < 97 THEN 'FAILED' ELSE 'CANCELLED' END AS status,
        n.n %% 100 >= %(queued)s AS ended,
        CASE WHEN n.n %% 5 > 0 THEN '{{}}'::jsonb
            WHEN n.n %% 100000 = 0 THEN '{{"rare": "yes"}}'::jsonb
            ELSE jsonb_build_object('team', 'team-' || n.n / 5 %% 20) END AS labels
) AS x
"""  # noqa: S608
_ENDED = "SELECT uid, cluster, submitted_at AS at FROM jobs WHERE status = 'SUCCEEDED'"
_STEPS = """[[0,"submitted",null,"QUEUED",0,"",null,null,{}],[0,"placed","QUEUED","ASSIGNED",1,
"","vm","r",{}],[0,"claimed","ASSIGNED","STARTING",1,"","vm","r",{}],[0,"started","STARTING","RUNNING",1,
"","vm","r",{}],[0,"exited_ok","RUNNING","SUCCEEDED",1,"","vm","r",{"exit_code":0}]]"""
_EVENTS = f"""
INSERT INTO timelines (uid, at, seq, packed) SELECT j.uid, j.at, 5, %(steps)s
FROM ({_ENDED} ORDER BY submitted_at DESC LIMIT %(history)s) AS j
"""  # noqa: S608
_ATTEMPTS = f"""
INSERT INTO attempts (uid, attempt, lease_id, vm_uid, vm_name, region, zone, usd_per_hour,
    assigned_at, started_at, ended_at, outcome, exit_code)
SELECT j.uid, 1, 'lease-' || j.uid, md5(j.uid::text)::uuid, 'vm', 'r', 'z', 1, j.at, j.at, j.at,
    'succeeded', 0
FROM ({_ENDED} ORDER BY submitted_at DESC LIMIT %(history)s) AS j
"""  # noqa: S608
_COSTS = f"""
INSERT INTO job_costs (uid, day, kind, vm_seconds, gpu_seconds, usd)
SELECT j.uid, j.at::date, 'useful', 1, 1, 0.001
FROM ({_ENDED} ORDER BY submitted_at DESC LIMIT %(history)s) AS j
"""  # noqa: S608
_TENANTS = """
INSERT INTO tenants (tenant_id, quota)
SELECT 'tenant-' || lpad(n::text, 4, '0'),
    CASE WHEN n %% 10 = 0 THEN '{"gpus": 500}' ELSE '{}' END::jsonb
FROM generate_series(0, %(tenants)s::int - 1) AS n ON CONFLICT DO NOTHING
"""
BATCH = 100_000


@dataclass(frozen=True, slots=True)
class ManyJobs:
    """How many rows of what."""

    jobs: int
    clusters: Sequence[str]
    """All that wait do so in the first."""
    tenants: int = 1000
    users: int = 5000
    queued_percent: int = 10
    history: int = 100_000
    """The newest jobs that ended well have a timeline, an attempt and a price."""


def fill_jobs(url: str, size: ManyJobs) -> None:
    """Made inside the database, then analysed as autovacuum would."""
    words = {
        "tenants": size.tenants,
        "users": size.users,
        "clusters": list(size.clusters),
        "queued": size.queued_percent,
        "history": size.history,
        "steps": plain(_STEPS.encode()),
        "spec": to_json(
            JobSpec(job_id="", user_id="u", command=("true",), cluster=size.clusters[0])
        ),
    }
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_TENANTS.encode(), words)
        for first in range(1, size.jobs + 1, BATCH):
            last = min(size.jobs, first + BATCH - 1)
            connection.execute(_JOBS.encode(), {**words, "first": first, "last": last})
        for query in (_EVENTS, _ATTEMPTS, _COSTS):
            connection.execute(query.encode(), words)
        connection.execute(b"VACUUM ANALYZE")
