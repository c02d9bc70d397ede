"""The database goes away, and what hangs on it: store, listener, group commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg
import pytest

from core.changes import AtomicBatch, Committed, PendingReason, VmHeartbeat
from core.errors import StoreDown
from core.job import JobEvent
from core.reasons import CommitRefusal, RefusalKind
from db.notifications import Listener
from db.store import POOL_WAIT_S, PostgresStore
from scheduler.submission.group_commit import GroupCommit
from tests.db.builders import Maker, at, put, step, submitted

pytestmark = pytest.mark.slow
NOWHERE = "postgresql://zen@/none?host=/nonexistent"


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def maker() -> Maker:
    return Maker()


async def cut(url: str) -> None:
    """Ends every connection to the database but our own."""
    query = (
        b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        b"WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(query)


async def test_no_database_is_told_in_time() -> None:
    """Without a database callers hear StoreDown within two seconds or little more."""
    store = PostgresStore(NOWHERE)
    await store.open()
    start = time.monotonic()
    with pytest.raises(StoreDown):
        await store.snapshot(1)
    assert time.monotonic() - start < 5
    await store.close()


async def test_database_without_our_schema(empty_database_url: str) -> None:
    """Before the first migration callers are told what is missing."""
    store = PostgresStore(empty_database_url)
    await store.open()
    with pytest.raises(StoreDown, match="zen db upgrade"):
        await store.snapshot(1)
    with pytest.raises(StoreDown, match="zen db upgrade"):
        await store.lead("a", 10)
    await store.close()


async def test_lost_connections_are_replaced(
    store: PostgresStore, maker: Maker, database_url: str
) -> None:
    """Connections that were cut while idle are replaced before anybody notices."""
    job = maker.job("j")
    await put(store, submitted(job))
    await cut(database_url)
    assert await store.find_job("j", None) == job


async def test_later_callers_hear_sooner() -> None:
    """Once connections are refused, nobody waits the whole time for another one."""
    store = PostgresStore(NOWHERE)
    await store.open()
    with pytest.raises(StoreDown):
        await store.snapshot(1)
    start = time.monotonic()
    with pytest.raises(StoreDown):
        await store.snapshot(1)
    assert time.monotonic() - start < POOL_WAIT_S
    await store.close()


async def test_who_stood_still_in_a_transaction_hears_that_it_is_over(store: PostgresStore) -> None:
    """The server ended its session meanwhile: StoreDown, as for every lost connection."""

    async def stand_still() -> None:
        async with store.connection() as connection, connection.transaction():
            await connection.execute("SET idle_in_transaction_session_timeout = '20ms'")
            await asyncio.to_thread(_until_ended, connection.info.dsn, connection.info.backend_pid)
            await connection.execute("SELECT 1")

    with pytest.raises(StoreDown):
        await stand_still()


def _until_ended(url: str, pid: int) -> None:
    """The server itself tells when it has ended the session."""
    with psycopg.connect(url, autocommit=True) as other:
        query = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
        deadline = time.monotonic() + 20
        while other.execute(query, (pid,)).fetchone() and time.monotonic() < deadline:
            time.sleep(0.01)


async def test_end_of_a_task_is_not_taken_for_an_outage(store: PostgresStore) -> None:
    """A task that is told to end while its connection breaks ends: it does not hear StoreDown."""

    async def work() -> None:
        me = asyncio.current_task()
        assert me is not None
        async with store.connection():
            me.cancel()
            raise psycopg.OperationalError("the connection is lost")

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_end_of_a_task_is_not_dropped(store: PostgresStore) -> None:
    """What asyncio.wait_for swallows inside the driver is said again after the operation."""

    async def work() -> None:
        me = asyncio.current_task()
        assert me is not None
        async with store.connection():
            me.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_stuck_writer_is_told(database_url: str, maker: Maker) -> None:
    """A commit that cannot get its rows ends as StoreDown, and writes nothing."""
    store = PostgresStore(database_url, operation_s=0.5)
    await store.open()
    job = maker.job("j")
    await put(store, submitted(job))
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("SELECT 1 FROM jobs FOR UPDATE")
        with pytest.raises(StoreDown):
            await store.commit([(step(job, JobEvent.ADMITTED),)], None)
    assert await store.find_job("j", None) == job
    await store.close()


async def test_what_cannot_be_stored_harms_nobody_else(store: PostgresStore, maker: Maker) -> None:
    """An atomic batch that a constraint refuses is refused alone, with the constraint's name."""
    good, bad = maker.job("good"), maker.job("bad")
    move = step(bad, JobEvent.ADMITTED)
    await put(store, submitted(bad))
    broken = replace(move, after=replace(move.after, deadline_at=None))
    committed = await store.commit([(broken,), (submitted(good),)], None)
    assert committed.applied == (False, True)
    assert "ck_jobs_deadline" in committed.refusals[0].words


async def test_leader_frozen_in_a_commit_is_replaced(
    store: PostgresStore, database_url: str
) -> None:
    """A leader that stopped in the middle of a pipeline holds its row, and no time-out of the
    server ends that session: after the lease a successor ends it and leads."""
    await store.lead("old", 0.3)
    old = await psycopg.AsyncConnection.connect(database_url, application_name="old")
    pipeline = old.pipeline()
    await pipeline.__aenter__()
    # Fetched but not synchronised: so stands a process that froze within a pipeline.
    await (await old.execute("SELECT term FROM leader FOR SHARE")).fetchone()
    start = time.monotonic()
    while not (await store.lead("new", 60)).leading:
        assert time.monotonic() - start < 20
        await asyncio.sleep(0.02)
    with pytest.raises(psycopg.OperationalError):
        await pipeline.__aexit__(None, None, None)
    await old.close()


async def test_leader_that_lives_is_not_put_out(
    store: PostgresStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as its lease holds, a caller waits for nothing and ends no session."""
    monkeypatch.setattr("db.leader_lease.LEAD_WAIT_S", 10.0)
    await store.lead("old", 60)
    async with await psycopg.AsyncConnection.connect(database_url, application_name="old") as old:
        await old.execute("SELECT term FROM leader FOR UPDATE")
        start = time.monotonic()
        assert not (await store.lead("new", 60)).leading
        assert time.monotonic() - start < 5
        await old.execute("SELECT 1")


# --- the listener -----------------------------------------------------------------------


async def test_listener_wakes_for_news_only(
    store: PostgresStore, maker: Maker, database_url: str
) -> None:
    """A submission wakes the listeners, heartbeats and pending reasons do not; many wake once."""
    job = maker.job()
    await put(store, submitted(job))
    wakeups = Listener(database_url).wakeups()
    await asyncio.wait_for(anext(wakeups), 20)
    await put(store, PendingReason(job.uid, "no VM"), VmHeartbeat(maker.vm().uid, at(1)))
    following = asyncio.ensure_future(anext(wakeups))
    # A marker behind the silent commit: when it has come, a notification would have come too.
    await _marker(database_url)
    assert not following.done()
    await asyncio.gather(*(put(store, submitted(maker.job())) for _ in range(5)))
    await asyncio.wait_for(following, 20)
    await wakeups.aclose()


async def _marker(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("LISTEN marker")
        await connection.execute("NOTIFY marker")
        async for _ in connection.notifies(timeout=5, stop_after=1):
            return


async def test_listener_comes_back(database_url: str) -> None:
    """After its connection was cut it listens again, and that counts as a wake-up."""
    wakeups = Listener(database_url).wakeups()
    await asyncio.wait_for(anext(wakeups), 20)
    await cut(database_url)
    await asyncio.wait_for(anext(wakeups), 20)
    await wakeups.aclose()


async def test_listener_without_database() -> None:
    """A database that is away raises nothing; the listener just waits."""
    wakeups = Listener(NOWHERE).wakeups()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(wakeups), 0.5)


# --- group commit -----------------------------------------------------------------------


class Gate:
    """A store whose commits wait until they are let through, and are counted."""

    def __init__(self, inner: PostgresStore) -> None:
        self._inner = inner
        self.sizes: list[int] = []
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.fault: Exception | None = None

    async def commit(self, batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        self.sizes.append(len(batches))
        self.entered.set()
        await self.open.wait()
        if self.fault is not None:
            raise self.fault
        return await self._inner.commit(batches, term)


async def gathered(gate: Gate, group: GroupCommit, batches: Sequence[AtomicBatch]) -> list[object]:
    """The first is on its way while the others come."""
    tasks = [asyncio.ensure_future(group.submit(batches[0]))]
    await asyncio.wait_for(gate.entered.wait(), 20)
    tasks += [asyncio.ensure_future(group.submit(batch)) for batch in batches[1:]]
    await asyncio.sleep(0)
    gate.open.set()
    return list(await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20))


async def test_waiting_submissions_share_a_commit(store: PostgresStore, maker: Maker) -> None:
    """What comes while a write is on its way is written by the next one, each with its answer."""
    gate = Gate(store)
    group = GroupCommit(gate)  # type: ignore[arg-type]  # commit() is all it uses
    batches: list[AtomicBatch] = [(submitted(maker.job(f"j{n}")),) for n in range(20)]
    answers = await gathered(gate, group, [*batches, (submitted(maker.job("j3")),)])
    assert answers[:-1] == [None] * 20
    assert isinstance(answers[-1], CommitRefusal)
    assert answers[-1].kind is RefusalKind.EXISTS
    assert gate.sizes == [1, 20]
    await group.close()


async def test_batches_are_bounded(store: PostgresStore, maker: Maker) -> None:
    """A batch has a size, and so has the queue before it."""
    gate = Gate(store)
    group = GroupCommit(gate, batch_max=4, waiting_max=10)  # type: ignore[arg-type]
    batches: list[AtomicBatch] = [(submitted(maker.job()),) for _ in range(13)]
    answers = await gathered(gate, group, batches)
    assert gate.sizes == [1, 4, 4, 2]
    assert [type(answer) for answer in answers[11:]] == [StoreDown, StoreDown]
    assert answers[:11] == [None] * 11


async def test_failure_reaches_every_waiter(store: PostgresStore, maker: Maker) -> None:
    """When the write fails, everyone in the batch hears of it, and the next batch is tried."""
    gate = Gate(store)
    gate.fault = StoreDown("away")
    group = GroupCommit(gate)  # type: ignore[arg-type]
    batches: list[AtomicBatch] = [(submitted(maker.job()),) for _ in range(4)]
    answers = await gathered(gate, group, batches)
    assert [type(answer) for answer in answers] == [StoreDown] * 4
    gate.fault = None
    assert await group.submit(batches[0]) is None


async def test_one_who_gives_up_harms_nobody(store: PostgresStore, maker: Maker) -> None:
    """A caller that was cancelled leaves the others of its batch with their answers."""
    gate = Gate(store)
    group = GroupCommit(gate)  # type: ignore[arg-type]
    tasks = [asyncio.ensure_future(group.submit((submitted(maker.job()),))) for _ in range(3)]
    await asyncio.wait_for(gate.entered.wait(), 20)
    tasks[1].cancel()
    gate.open.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[0] is None
    assert isinstance(answers[1], asyncio.CancelledError)
    assert answers[2] is None
