"""A database with a large house in it: tenants, clusters, VMs that all work, and a queue."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from bench.fleet import FleetWorker
from bench.proven import PROVEN
from core.cluster import ClusterSpec, RegionSpec
from core.job_fields import JobSpec
from core.messages import HeartbeatStatus
from core.names import Names
from db.rows import to_json

NAMES = Names()
REGIONS = ("us-central1", "us-east1", "us-west1", "europe-west4")
_JOB = "%(spec)s::jsonb || jsonb_build_object('job_id', j.id, 'tenant_id', j.tenant)"
_COLUMNS = """
uid, tenant_id, user_id, job_id, name, cluster, status, priority, spec, content_hash, version,
attempt, submitted_at, status_since, queued_since, deadline_at, tier, due_at
"""
_QUEUED = f"""
INSERT INTO jobs ({_COLUMNS})
SELECT gen_random_uuid(), j.tenant, 'u', j.id, '', j.cluster, 'QUEUED', 500, {_JOB}, 'h', 1, 0,
    j.at, j.at, j.at, j.at + interval '30 d', 1, j.at + interval '20 h'
FROM (
    SELECT 'q-' || n AS id, 'tenant-' || n %% %(tenants)s AS tenant,
        'c-' || (n + n / %(tenants)s) %% %(clusters)s AS cluster,
        now() - (%(last)s - n) * interval '10 ms' AS at
    FROM generate_series(%(first)s::int, %(last)s::int) AS n
) AS j
"""  # noqa: S608
_VMS = """
INSERT INTO vms (uid, name, cluster, region, zone, state, version, request_id, instance_id,
    boot_nonce, gpus, spot, usd_per_hour, leases, requested_at, state_since, running_since,
    ready_at, last_beat_at, worker_keys)
SELECT md5('vm-' || n)::uuid, x.name, 'c-' || n %% %(clusters)s, x.region, x.region || '-a',
    'READY', 1, 'r', n::text, 'nonce-' || n, 1, false, 1, jsonb_build_array('lease-' || n), now(),
    now(), now(), now(), now(), %(worker_keys)s
FROM unnest(%(names)s::text[], %(places)s::text[]) WITH ORDINALITY AS x(name, region, n)
"""
_RUNNING = f"""
INSERT INTO jobs ({_COLUMNS}, lease_id, vm_name, vm_uid, lease_region, lease_zone, slots,
    started_at)
SELECT gen_random_uuid(), j.tenant, 'u', j.id, '', v.cluster, 'RUNNING', 500, {_JOB}, 'h', 4, 1,
    now(), now(), now(), now() + interval '7 d', 1, now(), j.lease, v.name, v.uid, v.region,
    v.zone, '[0]', now() - (v.n %% 3600) * interval '1 s'
FROM (SELECT *, instance_id::int AS n FROM vms) AS v CROSS JOIN LATERAL (
    SELECT 'run-' || v.n AS id, 'tenant-' || v.n %% %(tenants)s AS tenant,
        'lease-' || v.n AS lease
) AS j
"""  # noqa: S608
_ATTEMPTS = """
INSERT INTO attempts (uid, attempt, lease_id, vm_uid, vm_name, region, zone, slots, usd_per_hour,
    assigned_at, started_at)
SELECT uid, 1, lease_id, vm_uid, vm_name, lease_region, lease_zone, slots, 1, started_at, started_at
FROM jobs WHERE status = 'RUNNING'
"""
_TENANTS = """
INSERT INTO tenants (tenant_id, weight, quota, usage_gpu_s, usage_at)
SELECT 'tenant-' || n, 1 + n %% 3, CASE WHEN n %% 10 = 0 THEN '{"gpus": 500}' ELSE '{}' END::jsonb,
    n * 1000.0, now() FROM generate_series(0, %(tenants)s::int - 1) AS n
"""


@dataclass(frozen=True, slots=True)
class CrowdSize:
    """What the house holds besides its queue."""

    tenants: int
    clusters: int
    vms: int

    def specs(self) -> tuple[ClusterSpec, ...]:
        each = -(-self.vms // self.clusters)
        regions = tuple(RegionSpec(name, (f"{name}-a",), 1.0, 0.5) for name in REGIONS)
        names = (f"c-{n}" for n in range(self.clusters))
        return tuple(ClusterSpec(name, "l4", 1, "g2", each, regions) for name in names)

    def place(self, number: int) -> tuple[str, str]:
        """Cluster and region of a VM."""
        return f"c-{number % self.clusters}", REGIONS[number // self.clusters % len(REGIONS)]

    def vm_name(self, number: int) -> str:
        return NAMES.vm(*self.place(number), f"{number:05d}")

    def workers(self) -> dict[str, FleetWorker]:
        found = {}
        for number in range(1, self.vms + 1):
            cluster, region = self.place(number)
            worker = FleetWorker(
                self.vm_name(number),
                NAMES.mig(cluster, region),
                f"{region}-a",
                number,
                f"run-{number}",
                attempt=1,
                lease_id=f"lease-{number}",
            )
            worker.repeats(worker.says(HeartbeatStatus.RUNNING, NAMES))
            found[worker.name] = worker
        return found


# --- the rows ---------------------------------------------------------------------------


def fill_house(url: str, size: CrowdSize) -> None:
    """Everything but the queue, made inside the database."""
    numbers = range(1, size.vms + 1)
    words = {
        "tenants": size.tenants,
        "clusters": size.clusters,
        "names": [size.vm_name(n) for n in numbers],
        "places": [size.place(n)[1] for n in numbers],
        "worker_keys": PROVEN.text,
        "spec": to_json(JobSpec(job_id="", user_id="u", command=("true",))),
    }
    with psycopg.connect(url, autocommit=True) as connection:
        for query in (_TENANTS, _VMS, _RUNNING, _ATTEMPTS):
            connection.execute(query.encode(), words if "%(" in query else None)


def fill_queue(url: str, size: CrowdSize, first: int, last: int) -> None:
    words = {
        "tenants": size.tenants,
        "clusters": size.clusters,
        "first": first,
        "last": last,
        "spec": to_json(JobSpec(job_id="", user_id="u", command=("true",))),
    }
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_QUEUED.encode(), words)
        connection.execute(b"VACUUM ANALYZE")


def renew(url: str, size: CrowdSize) -> None:
    """Every VM runs its first job again, and has just spoken: each row begins alike."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(b"DELETE FROM jobs WHERE status <> 'QUEUED'")
        connection.execute(b"TRUNCATE vms, outbox, cloud_requests, troubles, alerts, tenants")
    fill_house(url, size)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(b"VACUUM ANALYZE")
