"""A database of an earlier release is upgraded in place, with everything that is in it.

tests/db/schema/ holds one dump per schema that was released: made with pg_dump --column-inserts
from a database with jobs in every status, VMs in every state, and rows in every table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import migrations
from core.job import JobEvent, JobStatus
from core.reads import JobFilter
from core.vm import GivenUp, VmState
from db import migrate
from db.config_versions import PostgresConfigVersions
from db.history_check import check_history
from db.reads import PostgresReads
from db.store import PostgresStore
from db.tables import metadata
from tests.db.builders import Maker, at, put, step, submitted

pytestmark = pytest.mark.slow
NEWER = {
    *("api_keys", "audit_log", "grants", "secrets", "sessions", "specs", "timelines"),
    *("code_packs", "code_chunks", "code_trees", "code_tree_packs"),
}
"""Tables that the dumps do not have yet."""
DUMPS = sorted((Path(__file__).parent / "schema").glob("*.sql"))


@pytest.fixture(params=DUMPS, ids=[dump.stem for dump in DUMPS])
def upgraded_url(request: pytest.FixtureRequest, empty_database_url: str) -> str:
    """The dump restored into a real server, then brought to the newest schema."""
    dump: Path = request.param
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(dump.read_bytes())
    assert migrate.current(empty_database_url) == dump.stem
    migrate.upgrade(empty_database_url)
    return empty_database_url


@pytest.fixture
async def store(upgraded_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(upgraded_url)
    await opened.open()
    yield opened
    await opened.close()


def test_an_upgraded_database_has_the_newest_schema(upgraded_url: str) -> None:
    """Its tables are those of db/tables/, and every one that there was kept its rows."""
    assert migrate.current(upgraded_url) == migrations.HEAD
    engine = sa.create_engine(migrate.sqlalchemy_url(upgraded_url))
    try:
        with engine.connect() as connection:
            options = {"compare_type": True, "compare_server_default": True}
            context = MigrationContext.configure(connection, opts=options)
            assert compare_metadata(context, metadata) == []
            for name, table in metadata.tables.items():
                if name in NEWER:
                    continue
                rows = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar()
                assert rows, f"{name} is empty"
    finally:
        engine.dispose()


async def test_an_upgraded_database_is_read(store: PostgresStore) -> None:
    """Jobs in every status with their timelines, attempts, progress and costs; VMs in every state;
    tenants, forecasts, configuration, outbox, alerts, dead letters and region blocks."""
    reads = PostgresReads(store)
    page = await reads.jobs(JobFilter(), 100, None)
    by_id = {row.job.spec.job_id: row for row in page.rows}
    assert {row.job.status for row in page.rows} == set(JobStatus)
    for row in page.rows:
        assert await reads.events(row.job.uid, 100, 0), row.job.spec.job_id
    assert [row.outcome for row in await reads.attempts(by_id["done"].job.uid)] == [
        "vm_lost",
        "exited_ok",
    ]
    running = by_id["sweep-0"]
    assert running.progress is not None
    assert (running.progress.step, running.checkpoint_step) == (30.0, 20.0)
    assert by_id["done"].cost_usd > 0
    assert by_id["waits-1"].why
    met = await reads.waits(by_id["waits-1"].job.uid)
    assert [(row.kind, row.region, row.reason, row.count) for row in met] == [
        ("refusal", "us-east1", "stockout 1", 1),
        ("pending_reason", "", "no VM is free", 1),
    ]
    vms = (await reads.vms(None, None, True, 100, None)).rows
    assert {row.vm.state for row in vms} == set(VmState)
    tenants = {row.tenant.tenant_id: row for row in await store.tenants()}
    assert tenants["vision"].tenant.quota.gpus_by_type == {"h100": 8}
    assert tenants["vision"].usage.gpu_s > 0
    assert by_id["waits-1"].job.uid in (await store.forecasts())[0].jobs
    newest = await PostgresConfigVersions(store).newest()
    assert newest is not None
    assert (newest.version, list(newest.document)) == (2, ["timers", "clusters"])
    assert len(await store.outbox(10)) == 1
    assert len(await reads.alerts(open_only=False, size=10)) == 2
    assert len((await reads.dead_letters(None, 10, None)).rows) == 2
    assert len(await reads.region_statuses()) == 2


async def test_what_stood_in_other_columns_gets_its_own(empty_database_url: str) -> None:
    """0024: the worker of a VM was known by its boot nonce, a rollback by the words of its
    source; 0025: that a VM was given up, by the words of its reason."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute((DUMPS[0].parent / "0023.sql").read_bytes())
        claimed = "UPDATE public.vms SET boot_nonce = 'v1' WHERE state = 'READY' RETURNING name"
        by_v1 = {str(row[0]) for row in connection.execute(claimed)}
        connection.execute(
            "UPDATE public.vms SET state = 'DELETING', "
            "reason = 'the VM did not claim the job in time' WHERE name = %s",
            (min(by_v1),),
        )
        connection.execute(
            "INSERT INTO public.config_versions (version, at, author, source, digest, document) "
            "VALUES (3, now(), 'ada', 'rollback to version 1', 'd1', '{}')"
        )
    migrate.upgrade(empty_database_url)
    store = PostgresStore(empty_database_url)
    await store.open()
    try:
        vms = (await PostgresReads(store).vms(None, None, True, 100, None)).rows
        versions = (await PostgresConfigVersions(store).history(10, None)).rows
    finally:
        await store.close()
    assert by_v1
    assert {row.vm.name for row in vms if row.vm.speaks_v1} == by_v1
    given_up = {row.vm.name for row in vms if row.vm.given_up is GivenUp.UNCLAIMED}
    assert given_up == {min(by_v1)}
    assert [(row.version, row.rollback_of) for row in versions] == [(3, 1), (2, None), (1, None)]


async def test_an_upgraded_database_is_worked_on(store: PostgresStore) -> None:
    """The next leader sees one consistent snapshot, and jobs of before go on from where they were:
    stored versions, leases, gangs and dependencies fit what the service writes."""
    assert (await check_history(store)).faults() == []
    snapshot = await store.snapshot(100)
    jobs = {job.spec.job_id: job for job in snapshot.jobs}
    assert len(snapshot.blocks) == 2
    assert len(snapshot.supply) == 1
    assert len(snapshot.requests) == 1
    assert ("stockout", "us-east1") in snapshot.open_alerts
    assert jobs["gang"].gang is not None
    assert "second" not in jobs, "it waits for another job"
    ended = step(jobs["sweep-0"], JobEvent.EXITED_OK, at(9000), exit_code=0)
    stopped = step(jobs["first"], JobEvent.STOP_ASKED, at(9000))
    new = Maker(99).job("new", queue_timeout_s=1e9)
    await put(store, submitted(new))
    await put(store, ended, stopped)
    assert (await store.find_job("sweep-0", None)).status is JobStatus.SUCCEEDED
    snapshot = await store.snapshot(100)
    jobs = {job.spec.job_id: job for job in snapshot.jobs}
    assert "new" in jobs
    assert (await store.settle_costs(100)).vms == 1, "the VM whose job has ended now"
    leadership = await store.lead("another", 10.0)
    assert leadership.term >= 1
