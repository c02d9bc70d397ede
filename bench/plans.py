"""How PostgreSQL finds what each GET route asks: every statement of the API, explained.

    python -m bench.plans [--jobs 1000000]

The API runs in this process on a database of its own, as the roles that the service has. Each
statement is explained on the connection that runs it, right before it. A plan that reads the whole
of a table that grows is a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import psycopg

from bench.crowd import CrowdSize
from bench.decide import settings_for
from bench.local import postgres_server
from bench.many_jobs import ManyJobs, fill_jobs
from config.live import LiveSettings
from core.access_rules import AccessRules
from core.api_keys import key_text, parse_key
from core.clock import SystemClock
from core.ids import RandomIds
from db import migrate
from db.access import PostgresAccess
from db.audit_log import PostgresAuditLog
from db.reads import PostgresReads
from db.secrets import PostgresSecrets
from db.sessions import PostgresSessions
from db.store import PostgresStore
from db.tenant_connections import TenantPool
from scheduler.access.owner_key import owner_of
from scheduler.api.caller import ApiCaller, TenantReads
from scheduler.api.etas import KnownForecasts
from scheduler.api.http.app import create_app, endpoints
from scheduler.api.services import ApiAccess, Services
from scheduler.operations.metrics import Metrics
from scheduler.secrets.tenant_secrets import TenantSecrets
from scheduler.submission.group_commit import GroupCommit
from scheduler.submission.submit import SubmissionPorts, Submissions

CLUSTERS = ("c-0", "c-1")
ROWS_MIN = 10_000
JOB, TENANT = "job-77", "tenant-0007"
GROWING = frozenset(
    {
        *(
            "jobs",
            "job_events",
            "timelines",
            "job_waits",
            "job_costs",
            "job_labels",
            "job_counts",
            "attempts",
        ),
        *("specs", "waits", "outbox", "vms", "cloud_requests", "dead_letters", "audit_log"),
        *("cost_daily", "sessions"),
    }
)
"""Tables with a row for each job, message, VM or change that ever was."""
ELSEWHERE = frozenset(
    {
        *("/api/v1/config", "/api/v1/config/versions", "/api/v1/config/versions/{version}"),
        *("/api/v1/jobs/{job_id}/artifacts", "/api/v1/jobs/{job_id}/artifacts/file"),
        *("/api/v1/jobs/{job_id}/logs", "/sign-in", "/sign-in/start", "/sign-in/callback"),
    }
)
"""Routes that need a file of the configuration, a store of files or a browser."""
MORE = {
    "/api/v1/jobs": (
        *("cluster=c-1", "user_id=user-7", "user_id=nobody", f"tenant_id={TENANT}"),
        *("status=FAILED", "state=running", "cluster=c-1&status=FAILED", "label=team=team-7"),
        *("label=team=team-7&status=FAILED", "label=a=b&label=c=d", "group=g", "offset=5"),
    ),
    "/jobs": ("status_filter=failed",),
    "/api/v1/vms": ("cluster=c-0", "region=us-east1", "gone=true"),
    "/api/v1/alerts": ("all=true",),
    "/api/v1/dead-letters": ("source=submit",),
    "/api/v1/audit": ("principal=nobody", "target=job/a/b/c"),
    "/api/v1/capacity": ("cluster=c-0", "zones=true"),
    "/api/v1/cost": (f"tenant={TENANT}", "by=user", "cluster=c-0"),
}
"""Questions besides the plain one."""
_PLACES = {
    "job_id": JOB,
    "tenant_id": TENANT,
    "group": "g",
    "letter_id": "none",
    "tree_id": "0" * 64,
}
# Rows pass through these one by one: under a limit no more is read than it asks for.
_STREAMS = frozenset(
    {
        "Nested Loop",
        "Subquery Scan",
        "Result",
        "Append",
        "Merge Append",
        "Incremental Sort",
        "LockRows",
    }
)


@dataclass(slots=True)
class Explained:
    """Statements and their plans, as they come."""

    plans: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)


@contextlib.contextmanager
def explaining() -> Iterator[Explained]:
    """Each SELECT of psycopg's async connections is explained before it runs."""
    found, execute = Explained(), psycopg.AsyncCursor.execute

    async def explained(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        text = query if isinstance(query, str) else query.decode()
        if text.lstrip().startswith(("SELECT", "WITH")):
            cursor = self.connection.cursor()
            await execute(cursor, f"EXPLAIN (FORMAT JSON) {text}".encode(), params, prepare=False)
            ((plan,),) = await cursor.fetchall()
            found.plans.append((text, plan[0]["Plan"]))
        return await execute(self, query, params, **options)

    psycopg.AsyncCursor.execute = explained  # type: ignore[method-assign]
    try:
        yield found
    finally:
        psycopg.AsyncCursor.execute = execute  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class LargeTables:
    """What may not be read whole: tables, and those of their indexes that have a row for each."""

    tables: frozenset[str]
    indexes: Mapping[str, str]
    """Name → its first column: a condition on others alone reads all of it."""


def faults(plan: Mapping[str, Any], large: LargeTables, *, limited: bool = False) -> list[str]:
    """Scans of the whole of something large."""
    kind, table = str(plan["Node Type"]), plan.get("Relation Name")
    found = []
    if kind == "Seq Scan" and table in large.tables:
        found.append(f"sequential scan of {table}")
    index = str(plan.get("Index Name"))
    if index in large.indexes and large.indexes[index] not in plan.get("Index Cond", ""):
        searched = "Filter" in plan and not _is_policy(plan["Filter"])
        if searched or not limited:
            found.append(f"scan of the whole index {index}")
    below = kind == "Limit" or (limited and kind in _STREAMS)
    for part in plan.get("Plans", ()):
        own = part["Parent Relationship"] in ("InitPlan", "SubPlan")
        found += faults(part, large, limited=below and not own)
    return found


def _is_policy(condition: str) -> bool:
    """Row-level security alone: a caller that sees every tenant passes it at once."""
    return "string_to_array(" in condition and " AND " not in condition


async def large_tables(store: PostgresStore, rows_min: int) -> LargeTables:
    """Of the tables that grow those with so many rows now: PostgreSQL reads few rows at once."""
    tables = """
    SELECT relname FROM pg_class WHERE relkind = 'r' AND relname = ANY(%s) AND reltuples >= %s
    """
    # Also partial indexes that may have a row for every job: lists, what moved, the queue. A
    # short queue may well be read whole.
    parts = r"^\(rank = 0|^\(moved IS" + ("|QUEUED" if rows_min > 0 else "")
    indexes = """
    SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid, 1, true)
    FROM pg_index AS i JOIN pg_class AS t ON t.oid = i.indrelid
    WHERE t.relname = ANY(%s) AND (i.indpred IS NULL
        OR pg_get_expr(i.indpred, i.indrelid) ~ %s)
    """
    async with store.connection() as connection:
        cursor = await connection.execute(tables, (sorted(GROWING), rows_min))
        large = [row[0] for row in await cursor.fetchall()]
        cursor = await connection.execute(indexes, (large, parts))
        return LargeTables(frozenset(large), dict(await cursor.fetchall()))


@contextlib.asynccontextmanager
async def api_on(url: str) -> AsyncIterator[tuple[Services, httpx.AsyncClient]]:
    """The API as the service runs it, asked by its owner."""
    clock, ids = SystemClock(), RandomIds()
    store = PostgresStore(url)
    pool = TenantPool(url, "plans", store.server)
    await store.open()
    await pool.store.open()
    group = GroupCommit(store)
    live = LiveSettings(settings_for(CrowdSize(1, len(CLUSTERS), len(CLUSTERS))))

    def bound(caller: ApiCaller) -> TenantReads:
        return TenantReads(PostgresReads(store, pool.bound(caller.tenants)), caller)

    async def readiness() -> Mapping[str, str]:
        return {}

    access, key = PostgresAccess(store), key_text("owner0000000", bytes(32))
    parsed = parse_key(key)
    assert parsed is not None
    owner = owner_of(parsed, clock.now())
    await access.add_key(owner.key, owner.grants, None)
    sessions, audit_log = PostgresSessions(store), PostgresAuditLog(store)
    services = Services(
        store=store,
        reads=PostgresReads(store),
        bound_reads=bound,
        access=ApiAccess.over(access, sessions, audit_log, AccessRules, clock, ids),
        secrets=TenantSecrets(PostgresSecrets(store), None, ids),
        submissions=Submissions(SubmissionPorts(group.submit, store, clock, ids), live),
        settings=live,
        clock=clock,
        ids=ids,
        metrics=Metrics(),
        readiness=readiness,
        forecasts=KnownForecasts(store.forecasts, clock),
    )
    transport = httpx.ASGITransport(create_app(services))
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://zen", headers=headers
    ) as client:
        yield services, client
    await group.close()
    await pool.store.close()
    await store.close()


def questions(services: Services) -> Sequence[str]:
    """Of every GET route."""
    paths = dict.fromkeys(e.path for e in endpoints(services) if e.method == "GET")
    found = []
    for path in paths:
        if path not in ELSEWHERE:
            plain = path.format_map(_PLACES)
            found += [plain, *(f"{plain}?{words}" for words in MORE.get(path, ()))]
    return found


async def explain_all(url: str, rows_min: int) -> tuple[int, list[str]]:
    """How many statements were explained, and what is wrong with their plans. Tables with fewer
    rows may be read whole."""
    count, wrong = 0, []
    async with api_on(url) as (services, client):
        assert isinstance(services.store, PostgresStore)
        large = await large_tables(services.store, rows_min)
        for question in questions(services):
            with explaining() as seen:
                answer = await client.get(question)
            if answer.status_code not in (200, 404):
                wrong.append(f"GET {question}: {answer.status_code} {answer.text}")
            count += len(seen.plans)
            for text, plan in seen.plans:
                said = "; ".join(faults(plan, large))
                if said:
                    wrong.append(f"GET {question}: {said}: {' '.join(text.split())}")
    return count, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    args = parser.parse_args()
    with postgres_server("zen-plans-", fsync=False) as (_, url):
        migrate.upgrade(url)
        fill_jobs(url, ManyJobs(args.jobs, CLUSTERS))
        count, wrong = asyncio.run(explain_all(url, ROWS_MIN))
    print(f"{args.jobs:,} jobs: {count} statements of GET routes explained, {len(wrong)} at fault")
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
