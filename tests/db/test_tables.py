"""The migrated schema is the one in db/tables/, and it refuses what the machine forbids."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import migrations
from core.errors import StoreDown
from core.job import FINAL, LEASED, JobStatus
from core.vm import VmState
from db import migrate, queue_heads, snapshot
from db.tables import metadata

pytestmark = pytest.mark.slow


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(migrate.sqlalchemy_url(database_url))
    yield made
    made.dispose()


def checks_of(engine: sa.Engine) -> dict[str, str]:
    query = "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c'"
    with engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(sa.text(query))}


def test_migrations_lead_to_the_tables(engine: sa.Engine) -> None:
    """Columns, types, defaults and indexes after all migrations are those of db/tables/."""
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_checks_are_those_of_the_tables(engine: sa.Engine, empty_database_url: str) -> None:
    """The CHECK constraints, which alembic does not compare, are the same by name and meaning."""
    fresh = sa.create_engine(migrate.sqlalchemy_url(empty_database_url))
    metadata.create_all(fresh)
    try:
        assert checks_of(engine) == checks_of(fresh)
        assert len(checks_of(engine)) > 20
    finally:
        fresh.dispose()


def test_head_is_the_newest_script() -> None:
    """The constant that saves loading alembic names the newest revision."""
    assert ScriptDirectory.from_config(migrate.config()).get_current_head() == migrations.HEAD


def test_up_down_up(empty_database_url: str) -> None:
    """Every migration can be taken back and made again."""
    url = empty_database_url
    assert migrate.current(url) is None
    migrate.upgrade(url)
    assert migrate.current(url) == migrations.HEAD
    migrate.downgrade(url, "base")
    assert migrate.current(url) is None
    with psycopg.connect(url) as connection:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        assert connection.execute(query).fetchall() == [("alembic_version",)]
    migrate.upgrade(url)
    assert migrate.current(url) == migrations.HEAD


def test_replicas_that_start_at_once(empty_database_url: str) -> None:
    """Several upgrades at the same time all succeed."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate.upgrade, [empty_database_url] * 4))
    assert migrate.current(empty_database_url) == migrations.HEAD


def test_upgrade_is_silent(empty_database_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Upgrading prints nothing: stdout belongs to the caller."""
    migrate.upgrade(empty_database_url)
    assert capfd.readouterr() == ("", "")


def test_no_database() -> None:
    """A database that does not answer is StoreDown."""
    with pytest.raises(StoreDown):
        migrate.upgrade("postgresql://zen@/none?host=/nonexistent")


# --- what the machine forbids -----------------------------------------------------------

_JOB = """
INSERT INTO jobs (uid, tenant_id, user_id, job_id, name, cluster, status, priority, spec,
    content_hash, version, attempt, lease_id, vm_name, vm_uid, lease_region, lease_zone, slots,
    submitted_at, status_since, queued_since, deadline_at, started_at, ended_at, stop_reason)
SELECT gen_random_uuid(), 't', 'u', 'j', '', 'c', %(status)s, 1, '{}', 'h', 1, %(attempt)s,
    l, l, l::uuid, l, l, CASE WHEN l IS NULL THEN NULL ELSE '[0]'::jsonb END,
    now(), now(), now(), CASE WHEN %(deadline)s THEN now() END, now(),
    CASE WHEN %(ended)s THEN now() END, 'user'
FROM (SELECT CASE WHEN %(lease)s THEN gen_random_uuid()::text END AS l) AS x
"""
_VM = """
INSERT INTO vms (uid, name, cluster, region, state, version, request_id, gpus, spot,
    usd_per_hour, leases, requested_at, state_since, gone_at)
VALUES (gen_random_uuid(), 'n', 'c', 'r', %(state)s, 1, 'q', 1, false, 1, %(leases)s::jsonb,
    now(), now(), CASE WHEN %(gone)s THEN now() END)
"""


def proper(status: JobStatus) -> dict[str, object]:
    """What a job of that status has."""
    final, holds = status in FINAL, status in LEASED
    return {"status": status, "lease": holds, "attempt": 1, "ended": final, "deadline": not final}


def store(url: str, query: str, values: dict[str, object]) -> None:
    plain = {name: str(v) if isinstance(v, str) else v for name, v in values.items()}
    with psycopg.connect(url) as connection:
        connection.execute(query.encode(), plain)
        connection.rollback()


def test_every_status_can_be_stored(database_url: str) -> None:
    """The checks allow what the machine makes."""
    for status in JobStatus:
        store(database_url, _JOB, proper(status))
    for state in VmState:
        gone = state is VmState.GONE
        store(database_url, _VM, {"state": state, "gone": gone, "leases": "[]"})


def job_faults() -> Iterator[tuple[JobStatus, str, str]]:
    """Each status with one thing turned into its opposite, and the check that must refuse it."""
    for status in JobStatus:
        yield status, "lease", "ck_jobs_lease"
        yield status, "ended", "ck_jobs_ended"
        yield status, "deadline", "ck_jobs_deadline"


def test_forbidden_jobs(database_url: str) -> None:
    """A lease without a leased status, an end that is none, a missing deadline: all refused."""
    for status, what, check in job_faults():
        values = proper(status)
        values[what] = not values[what]
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            store(database_url, _JOB, values)
        assert refused.value.diag.constraint_name == check, (status, what)


@pytest.mark.parametrize(
    ("query", "values", "check"),
    [
        (_JOB, {**proper(JobStatus.QUEUED), "status": "LOST"}, "ck_jobs_status"),
        (_JOB, {**proper(JobStatus.RUNNING), "attempt": 0}, "ck_jobs_lease_attempt"),
        (_VM, {"state": "STOPPED", "gone": False, "leases": "[]"}, "ck_vms_state"),
        (_VM, {"state": "READY", "gone": True, "leases": "[]"}, "ck_vms_gone"),
        (_VM, {"state": "GONE", "gone": False, "leases": "[]"}, "ck_vms_gone"),
        (_VM, {"state": "BOOTING", "gone": False, "leases": '["x"]'}, "ck_vms_leases"),
    ],
)
def test_forbidden_rows(
    database_url: str, query: str, values: dict[str, object], check: str
) -> None:
    """Unknown states and contradictions are refused by the check that speaks of them."""
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        store(database_url, query, values)
    assert refused.value.diag.constraint_name == check


def test_one_leader(database_url: str) -> None:
    """There is room for one leader."""
    insert = b"INSERT INTO leader (one, holder, term, expires_at) VALUES (%s, 'a', 1, now())"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(insert, (True,))
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(insert, (True,))
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(insert, (False,))


# --- the cost of a cycle -----------------------------------------------------------------

_MANY = """
INSERT INTO jobs (uid, tenant_id, user_id, job_id, name, cluster, status, priority, spec,
    content_hash, version, attempt, submitted_at, status_since, queued_since, deadline_at,
    ended_at)
SELECT gen_random_uuid(), 't' || n % 200, 'u', 'j' || n, '', 'c',
    CASE WHEN n % 10 = 0 THEN 'QUEUED' ELSE 'SUCCEEDED' END, n % 5, '{}', 'h', 1, 0,
    now() - n * interval '1 s', now(), now() - n * interval '1 s',
    CASE WHEN n % 10 = 0 THEN now() END, CASE WHEN n % 10 <> 0 THEN now() END
FROM generate_series(1, 5000) AS n
"""
_PAGE = """
SELECT uid FROM jobs WHERE tenant_id = 't1' AND rank = 0 ORDER BY submitted_at DESC, uid DESC
LIMIT 20
"""


_WORDS = {
    "clusters": "ARRAY['c']",
    "tenants": "ARRAY['t1', 't2']",
    "tiers": "ARRAY[1]",
    "most": "ARRAY[10]",
    "each": "ARRAY[4]",
    "limit": "10",
    "backing_off": "false",
    "members": "false",
}


def _asked(query: str) -> str:
    """The query with values in their places."""
    return query % _WORDS


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (_asked(queue_heads.QUEUE), "ix_jobs_queue"),
        (_asked(queue_heads.FIFO), "ix_jobs_fifo"),
        (_asked(queue_heads.FAIR), "ix_jobs_fair"),
        (_asked(queue_heads.KINDS), "ix_jobs_fair"),
        (_asked(snapshot.LATE), "ix_jobs_queue_ends"),
        (snapshot.JOBS, "ix_jobs_holds"),
        (snapshot.JOBS_MOVED % 10**9, "ix_jobs_moved"),
        (snapshot.JOBS_LEFT % 10**9, "ix_jobs_moved"),
        (_PAGE, "ix_jobs_tenant"),
        ("SELECT uid FROM jobs WHERE job_id = 'j77'", "uq_jobs_identity"),
        ("SELECT 1 FROM outbox WHERE published_at IS NULL ORDER BY outbox_id", "ix_outbox_unpub"),
    ],
)
def test_frequent_questions_have_an_index(database_url: str, query: str, index: str) -> None:
    """What each cycle and each page asks is answered from an index, already in order."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_MANY.encode())
        connection.execute(b"VACUUM ANALYZE jobs")
        rows = connection.execute(f"EXPLAIN {query}".encode()).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert index in plan
    assert "Seq Scan on jobs" not in plan
