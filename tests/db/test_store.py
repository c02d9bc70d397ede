"""PostgreSQL keeps the contract of Store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from core.job import Job, JobEvent, JobStatus
from db.audit_log import PostgresAuditLog
from db.config_versions import PostgresConfigVersions
from db.leader_session import LEADER_LOCK
from db.reads import PostgresReads
from db.snapshot import Mark
from db.store import PostgresStore
from tests.db.builders import Maker, at, put, put_placed, put_ready_vm, step, submitted
from tests.db.store_contract import Another, EndSession, ExpireLeader, StoreContract, maker

pytestmark = pytest.mark.slow
__all__ = ["maker"]
_END = """
SELECT pg_terminate_backend(pid), objid::int FROM pg_locks
WHERE locktype = 'advisory' AND classid = %s
"""
_WAIT = "SELECT pg_advisory_xact_lock(%s, %s)"


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def another(database_url: str) -> AsyncIterator[Another]:
    opened: list[PostgresStore] = []

    async def one_more() -> PostgresStore:
        opened.append(PostgresStore(database_url))
        await opened[-1].open()
        return opened[-1]

    yield one_more
    for store in opened:
        await store.close()


@pytest.fixture
def reads(store: PostgresStore) -> PostgresReads:
    return PostgresReads(store)


@pytest.fixture
def configs(store: PostgresStore) -> PostgresConfigVersions:
    return PostgresConfigVersions(store)


@pytest.fixture
def audit_log(store: PostgresStore) -> PostgresAuditLog:
    return PostgresAuditLog(store)


@pytest.fixture
def expire_leader(database_url: str) -> ExpireLeader:
    """Moves the end of the lease instead of the clock, which is the database's."""

    async def expire() -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            await connection.execute("UPDATE leader SET expires_at = now() - interval '1 s'")

    return expire


@pytest.fixture
def end_session(database_url: str) -> EndSession:
    async def end() -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            ended = await (await connection.execute(_END, (LEADER_LOCK,))).fetchall()
            for _, term in ended:
                await connection.execute(_WAIT, (LEADER_LOCK, term))
        assert ended, "no leader shows that it lives"

    return end


class TestPostgresStore(StoreContract):
    """The whole contract."""


async def _moves(url: str, uid: str) -> None:
    """Somebody stops the job, in one statement."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(_STOP, (uid,))


_STOP = """
UPDATE jobs SET status = 'STOPPING', stop_reason = 'user', version = version + 1 WHERE uid = %s
"""


async def test_a_commit_that_took_its_time_is_seen(
    store: PostgresStore, database_url: str, maker: Maker
) -> None:
    """A transaction that began before others and ended after them, with snapshots in between: its
    number is below theirs, and what it wrote is found all the same."""
    one, other = [await _running(store, maker) for _ in range(2)]
    await store.snapshot(0)
    async with await psycopg.AsyncConnection.connect(database_url) as slow:
        await slow.execute(_STOP, (one.uid,))
        await _moves(database_url, other.uid)
        seen = {job.uid: job.status for job in (await store.snapshot(0)).jobs}
        assert seen == {one.uid: JobStatus.RUNNING, other.uid: JobStatus.STOPPING}
        await store.snapshot(0)
    seen = {job.uid: job.status for job in (await store.snapshot(0)).jobs}
    assert seen == dict.fromkeys((one.uid, other.uid), JobStatus.STOPPING)


async def test_a_refused_step_proves_what_is_kept(
    store: PostgresStore, database_url: str, maker: Maker
) -> None:
    """Were a row ever to change behind our back, the first step that is refused for it would make
    us read everything."""
    job = await _running(store, maker)
    await store.snapshot(0)
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute("ALTER TABLE jobs DISABLE TRIGGER jobs_moved_update")
        await connection.execute(_STOP, (job.uid,))
        await connection.execute("ALTER TABLE jobs ENABLE TRIGGER jobs_moved_update")
    assert [seen.status for seen in (await store.snapshot(0)).jobs] == [JobStatus.RUNNING]
    ended = step(job, JobEvent.EXITED_OK, at(9))
    assert not (await store.commit([(ended,)], None)).all_applied
    assert [seen.status for seen in (await store.snapshot(0)).jobs] == [JobStatus.STOPPING]


async def test_another_server_is_read_anew(
    store: PostgresStore, database_url: str, maker: Maker
) -> None:
    """A restored database may count its transactions from below."""
    await store.snapshot(0)
    await _running(store, maker)
    kept = store._viewer._mark
    assert kept is not None
    store._viewer._mark = Mark(kept.server, kept.oldest + 1_000_000)
    assert len((await store.snapshot(0)).jobs) == 1


async def test_a_whole_snapshot_is_read_in_parts(
    store: PostgresStore, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few rows at a time, and again after something was forgotten: all that live, no others."""
    monkeypatch.setattr("db.snapshot.READ_AT_ONCE", 2)
    running = [await _running(store, maker) for _ in range(5)]
    vms = {job.lease.vm_uid for job in running if job.lease}
    for _ in range(2):
        seen = await store.snapshot(0)
        assert {job.uid for job in seen.jobs} == {job.uid for job in running}
        assert {vm.uid for vm in seen.vms} == vms
        await put(store, step(running.pop(), JobEvent.EXITED_OK, at(9)))
        store._viewer.forget()
    assert {job.uid for job in (await store.snapshot(0)).jobs} == {job.uid for job in running}


async def test_many_that_look_at_once_look_once(store: PostgresStore) -> None:
    """Tasks that ask while another reads share the next snapshot, not the one that is older than
    their question."""
    snapshots = await asyncio.gather(*(store.snapshot(0) for _ in range(20)))
    assert len({id(snapshot) for snapshot in snapshots}) == 2


async def _running(store: PostgresStore, maker: Maker) -> Job:
    job = maker.job()
    await put(store, submitted(job))
    vm = await put_ready_vm(store, maker)
    job, _ = await put_placed(store, maker, job, vm, at(1))
    started = step(job, JobEvent.STARTED, at(2))
    await put(store, started)
    return started.after
