"""What one decision of the leader costs beside queues of different lengths.

    python -m bench.decide [--queued 10000 100000 1000000] [--vms 10000] [--turns 60]

A real database holds `tenants` tenants, `clusters` clusters, `vms` VMs that each run a job, and a
queue. A turn is what the service does: one view of the store, every decision (the same code), one
commit with its guards. In each turn a tenth of the workers report, some jobs end, and the next
ones are placed on their VMs; what was placed claims its job in the turn after. The same database
grows from the shortest queue to the longest, so the rows of one table are comparable.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

import psycopg
from rich.table import Table

from bench.house import fresh_database
from bench.report import figure, quantile, show, verdict
from core.capacity import ClusterSpec, RegionSpec
from core.clock import SystemClock
from core.ids import RandomIds
from core.job import Job, JobSpec, Rules, S
from core.messages import BeatStatus, Control, Heartbeat, OutMessage
from core.names import Names
from db.embedded import EmbeddedPostgres
from db.rows import to_json
from db.store import PostgresStore
from messaging.codec import encode_control
from scheduler.beats import Beat, apply_beats
from scheduler.draft import Draft
from scheduler.logs import configure_logs
from scheduler.plan import Circumstances, plan_jobs
from scheduler.queue.heads import heads_for
from scheduler.queue.shares import CensusKeeper
from scheduler.silence import find_silent

NAMES = Names()
RULES = Rules()
REGIONS = ("us-central1", "us-east1", "us-west1", "europe-west4")
TYPICAL_RUN_S = 3600.0
QUEUE_LIMIT = 1000
TARGET_MS = 100.0
TARGET_MB = 1024.0
READY_S = 5.0
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
        'c-' || (n / %(tenants)s) %% %(clusters)s AS cluster,
        now() - (%(last)s - n) * interval '10 ms' AS at
    FROM generate_series(%(first)s::int, %(last)s::int) AS n
) AS j
"""  # noqa: S608
_VMS = """
INSERT INTO vms (uid, name, cluster, region, zone, state, version, request_id, instance_id,
    boot_nonce, gpus, spot, usd_per_hour, leases, requested_at, state_since, running_since,
    ready_at, last_beat_at)
SELECT md5('vm-' || n)::uuid, 'vm-' || n, 'c-' || n %% %(clusters)s,
    (%(regions)s::text[])[1 + n %% 4], (%(regions)s::text[])[1 + n %% 4] || '-a', 'READY', 1, 'r',
    n::text, 'nonce-' || n, 1, false, 1, jsonb_build_array('lease-' || n), now(), now(), now(),
    now(), now()
FROM generate_series(1, %(vms)s::int) AS n
"""
_RUNNING = f"""
INSERT INTO jobs ({_COLUMNS}, lease_id, vm_name, vm_uid, lease_region, lease_zone, slots,
    started_at)
SELECT gen_random_uuid(), j.tenant, 'u', j.id, '', v.cluster, 'RUNNING', 500, {_JOB}, 'h', 4, 1,
    now(), now(), now(), now() + interval '7 d', 1, now(), j.lease, v.name, v.uid, v.region,
    v.zone, '[0]', now() - (v.n %% 3600) * interval '1 s'
FROM (SELECT *, substr(name, 4)::int AS n FROM vms) AS v CROSS JOIN LATERAL (
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
class Size:
    """What the house holds besides its queue."""

    tenants: int
    clusters: int
    vms: int

    def specs(self) -> dict[str, ClusterSpec]:
        each = -(-self.vms // self.clusters)
        regions = tuple(RegionSpec(name, (f"{name}-a",), 1.0, 0.5) for name in REGIONS)
        names = [f"c-{n}" for n in range(self.clusters)]
        return {name: ClusterSpec(name, "l4", 1, "g2", each, regions) for name in names}


@dataclass(slots=True)
class Spans:
    """Milliseconds of each turn."""

    view: list[float] = field(default_factory=list)
    plan: list[float] = field(default_factory=list)
    commit: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """What the process itself used: on a machine with other work the wall clock says little."""
    placed: int = 0

    @property
    def total(self) -> list[float]:
        return [sum(parts) for parts in zip(self.view, self.plan, self.commit, strict=True)]


class Leader:
    """Turns, with the reports of pretended workers."""

    def __init__(self, store: PostgresStore, size: Size, ends: int) -> None:
        self._store, self._size, self._ends = store, size, ends
        self._specs = size.specs()
        self._ids = RandomIds()
        self._census = CensusKeeper()
        self._turn = 0
        self._bus_now: datetime | None = None

    async def lead(self) -> None:
        self._term = (await self._store.lead("bench", 3600)).term

    async def turn(self, spans: Spans) -> None:
        """As scheduler/loop.py does it."""
        self._turn += 1
        ask = heads_for(self._specs, (), RULES.queue, TYPICAL_RUN_S, self._census)
        started, used = time.perf_counter(), time.process_time()
        view = await self._store.view(QUEUE_LIMIT, ask)
        seen, used = time.perf_counter(), time.process_time() - used
        beats = self._reports(view.jobs)
        planning, used = time.perf_counter(), used - time.process_time()
        draft = Draft(view, RULES, _encode)
        apply_beats(draft, beats)
        # On a machine so slow that workers would seem silent, turns would lose VMs instead.
        self._bus_now = self._bus_now or view.now
        silence = find_silent(draft.vms.values(), self._bus_now, RULES.timers)
        around = Circumstances(
            self._specs,
            silence,
            bus_steady=True,
            typical_run_s=TYPICAL_RUN_S,
            census=self._census.census,
        )
        whys = plan_jobs(draft, view, around, self._ids)
        planned = time.perf_counter()
        done = await self._store.commit([*draft.units, *((why,) for why in whys)], self._term)
        ended, used = time.perf_counter(), used + time.process_time()
        assert done.all_applied, done.refusals
        spans.view.append((seen - started) * 1e3)
        spans.plan.append((planned - planning) * 1e3)
        spans.commit.append((ended - planned) * 1e3)
        spans.cpu.append(used * 1e3)
        spans.placed += sum(after.status is S.ASSIGNED for _, after in draft.moves)

    def _reports(self, jobs: Sequence[Job]) -> list[Beat]:
        """A tenth of the fleet reports, whoever was placed begins, and some jobs end."""
        now = SystemClock().now()
        running = [job for job in jobs if job.status is S.RUNNING]
        begun = (job for job in jobs if job.status is S.ASSIGNED)
        tenth = islice(running, self._turn % 10, None, 10)
        ends = islice(running, self._turn % 7, None, max(1, len(running) // self._ends))
        said = [(BeatStatus.RUNNING, job) for job in (*begun, *tenth)]
        said += [(BeatStatus.COMPLETED, job) for job in islice(ends, self._ends)]
        return [Beat(_heartbeat(status, job), now, "") for status, job in said]


def _heartbeat(status: BeatStatus, job: Job) -> Heartbeat:
    assert job.lease is not None, "only leased jobs have workers"
    return Heartbeat(
        status=status,
        vm_name=job.lease.vm_name,
        job_id=job.spec.job_id,
        user_id=job.spec.user_id,
        attempt=job.attempt,
        lease_id=job.lease.lease_id,
        boot_nonce="nonce-" + job.lease.vm_name.partition("-")[2],
        exit_code=0 if status is BeatStatus.COMPLETED else None,
    )


def _encode(message: Control) -> OutMessage:
    return encode_control(message, NAMES)


# --- the rows ---------------------------------------------------------------------------


def fill_house(url: str, size: Size) -> None:
    """Everything but the queue, made inside the database."""
    words = {
        "tenants": size.tenants,
        "clusters": size.clusters,
        "vms": size.vms,
        "regions": list(REGIONS),
        "spec": to_json(JobSpec(job_id="", user_id="u", command=("true",))),
    }
    with psycopg.connect(url, autocommit=True) as connection:
        for query in (_TENANTS, _VMS, _RUNNING, _ATTEMPTS):
            connection.execute(query.encode(), words if "%(" in query else None)


def fill_queue(url: str, size: Size, first: int, last: int) -> None:
    words = {
        "tenants": size.tenants,
        "clusters": size.clusters,
        "first": first,
        "last": last,
        "spec": to_json(JobSpec(job_id="", user_id="u", command=("true",))),
    }
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_QUEUED.encode(), words)
        # Filling takes minutes: whoever has not spoken meanwhile would count as lost.
        connection.execute(b"UPDATE vms SET last_beat_at = now()")
        connection.execute(b"VACUUM ANALYZE")


@dataclass(frozen=True, slots=True)
class Row:
    """One length of queue."""

    queued: int
    ready_s: float
    spans: Spans
    rss_mb: float


async def measure(url: str, size: Size, queued: int, turns: int, ends: int) -> Row:
    """From a leader that knows nothing."""
    store = PostgresStore(url, name="bench", operation_s=120.0)
    await store.open()
    try:
        leader = Leader(store, size, ends)
        started = time.perf_counter()
        await leader.lead()
        await leader.turn(Spans())
        ready_s = time.perf_counter() - started
        for _ in range(5):  # statements are prepared, caches are warm
            await leader.turn(Spans())
        gc.collect()
        spans = Spans()
        for _ in range(turns):
            await leader.turn(spans)
    finally:
        await store.close()
    return Row(queued, ready_s, spans, _rss_mb())


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def report(rows: Sequence[Row], size: Size) -> None:
    table = Table(
        *("queued", "ready s", "view p50", "plan p50", "commit p50", "turn p50", "turn p99"),
        *("CPU p50", "× shortest", "RSS MB", "placed/turn"),
    )
    base = quantile(rows[0].spans.cpu, 0.5)
    for row in rows:
        spans, middle = row.spans, quantile(row.spans.total, 0.5)
        parts = [figure(quantile(p, 0.5)) for p in (spans.view, spans.plan, spans.commit)]
        worst = quantile(spans.total, 0.99)
        table.add_row(
            f"{row.queued:,}",
            f"{figure(row.ready_s)} ({verdict(row.ready_s, READY_S)})",
            *parts,
            figure(middle),
            f"{figure(worst)} ({verdict(worst, TARGET_MS)})",
            figure(quantile(spans.cpu, 0.5)),
            f"{quantile(spans.cpu, 0.5) / base:.2f}",
            f"{figure(row.rss_mb)} ({verdict(row.rss_mb, TARGET_MB)})",
            figure(spans.placed / len(spans.view)),
        )
    show(table, f"{size.tenants:,} tenants, {size.clusters} clusters, {size.vms:,} VMs; in ms.")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queued", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--vms", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--ends", type=int, default=20, help="jobs that end in each turn")
    args = parser.parse_args()
    configure_logs("critical")
    size = Size(args.tenants, args.clusters, args.vms)
    rows, filled = [], 0
    with tempfile.TemporaryDirectory(prefix="zen-decide-") as directory:
        server = EmbeddedPostgres(Path(directory) / "pg", fsync=False)
        try:
            url = fresh_database(server.start(), "decide")
            fill_house(url, size)
            for queued in sorted(args.queued):
                fill_queue(url, size, filled + 1, queued)
                filled = queued
                rows.append(asyncio.run(measure(url, size, queued, args.turns, args.ends)))
        finally:
            server.stop()
    report(rows, size)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
