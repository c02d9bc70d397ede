"""The in-memory store keeps the contract of Store, and gives a simulation its levers."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from core.changes import AtomicBatch, JobNote, NewVm, PendingReason
from core.errors import StoreDown, TermPassed
from core.job import JobEvent, JobStatus
from core.ports import Store
from core.reads import JobFilter, Reads
from core.reasons import RefusalKind
from core.retention import RetentionRules
from db.tables import metadata
from sim.memory import writes
from sim.memory.audit_log import MemoryAuditLog
from sim.memory.config_versions import MemoryConfigVersions
from sim.memory.reads import MemoryReads
from sim.memory.store import MemoryStore, Stage
from tests.db.builders import Maker, at, put, put_placed, put_ready_vm, step, submitted
from tests.db.contract.words import note, send
from tests.db.store_contract import Another, EndSession, ExpireLeader, StoreContract, maker

__all__ = ["maker"]

E = JobEvent


class StillClock:
    """Stands an hour after the builders' beginning, until somebody moves it."""

    def __init__(self) -> None:
        self.passed_s = 3600.0

    def now(self) -> datetime:
        return at(self.passed_s)

    def monotonic(self) -> float:
        return self.passed_s


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def store(clock: StillClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def another(store: MemoryStore) -> Another:
    async def door() -> MemoryStore:
        return store.door()

    return door


@pytest.fixture
def configs(store: MemoryStore) -> MemoryConfigVersions:
    return MemoryConfigVersions(store)


@pytest.fixture
def audit_log(store: MemoryStore) -> MemoryAuditLog:
    return MemoryAuditLog(store)


@pytest.fixture
def reads(store: MemoryStore) -> MemoryReads:
    return MemoryReads(store)


@pytest.fixture
def expire_leader(clock: StillClock) -> ExpireLeader:
    """Here the clock is ours: time passes."""

    async def expire() -> None:
        clock.passed_s += 1000

    return expire


@pytest.fixture
def end_session(store: MemoryStore) -> EndSession:
    async def end() -> None:
        store.down = True
        store.down = False

    return end


class TestMemoryStore(StoreContract):
    """The whole contract."""


def test_is_a_store_and_reads(store: MemoryStore, reads: MemoryReads) -> None:
    """Both fit their ports, which the type checker proves on these lines."""
    as_store: Store = store
    as_reads: Reads = reads
    assert (as_store, as_reads) == (store, reads)


def test_needs_no_driver() -> None:
    """Importing it loads no database driver."""
    script = "import sys, sim.memory.reads; sys.exit('psycopg' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# --- doors ------------------------------------------------------------------------------


async def test_a_shut_door_is_store_down_for_one_replica(store: MemoryStore, maker: Maker) -> None:
    """What goes through a shut door is StoreDown and changes nothing; others pass."""
    other = store.door()
    store.down = True
    job = maker.job("j")
    for call in (store.snapshot(1), store.commit([(submitted(job),)], None), store.lead("a", 10)):
        with pytest.raises(StoreDown, match="does not answer"):
            await call
    assert await other.content_hash(job.key) is None
    await put(other, submitted(job))
    store.down = False
    assert await store.find_job("j", None) == job


async def test_a_door_shut_on_the_way(store: MemoryStore, maker: Maker) -> None:
    """A call that was on its way when the door shut is lost, not written."""
    call = asyncio.create_task(store.write((submitted(maker.job("j")),)))
    await asyncio.sleep(0)
    store.down = True
    with pytest.raises(StoreDown):
        await call
    assert store.history == []


async def test_write_names_the_guard(store: MemoryStore, maker: Maker) -> None:
    """One atomic batch at a time: nothing, or the guard that refused it."""
    assert await store.write((submitted(maker.job("j")),)) is None
    refusal = await store.write((submitted(maker.job("j")),))
    assert refusal is not None
    assert refusal.kind is RefusalKind.EXISTS


# --- crash points -----------------------------------------------------------------------


class Crash(Exception):
    """The replica dies here."""


@pytest.mark.parametrize(("at_stage", "written"), [("before", False), ("after", True)])
async def test_crash_at_the_boundary(
    store: MemoryStore, maker: Maker, at_stage: Stage, written: bool
) -> None:
    """Who dies before the commit has written nothing, who dies after it has written all."""
    stages: list[Stage] = []

    async def hook(stage: Stage) -> None:
        stages.append(stage)
        if stage == at_stage:
            raise Crash

    door = store.door(on_commit=hook)
    job = maker.job("j")
    with pytest.raises(Crash):
        await door.commit([(submitted(job), send(b"x"))], None)
    assert stages == (["before", "after"] if written else ["before"])
    assert (await store.content_hash(job.key) is not None) is written
    assert len(await store.outbox(10)) == len(store.history) == written


async def test_term_that_passes_at_the_boundary(store: MemoryStore, maker: Maker) -> None:
    """The fence is checked with the commit, not when the call begins."""
    lead = await store.lead("a", 60)

    async def hook(stage: Stage) -> None:
        await store.resign("a", lead.term)

    with pytest.raises(TermPassed):
        await store.door(on_commit=hook).commit([(submitted(maker.job()),)], lead.term)
    assert store.history == []


# --- history ----------------------------------------------------------------------------


async def test_history_holds_what_took_effect(
    store: MemoryStore, clock: StillClock, maker: Maker
) -> None:
    """Accepted atomic batches only, in order, with the time, the writer's term and the leading
    one."""
    lead = await store.lead("a", 60)
    job = maker.job("j")
    first: AtomicBatch = (submitted(job),)
    await store.commit([first, (submitted(maker.job("j")),)], None)
    clock.passed_s += 5
    second: AtomicBatch = (step(job, E.ADMITTED),)
    await store.commit([second], lead.term)
    rows = [(row.at, row.term, row.leading, row.batch) for row in store.history]
    assert rows == [(at(3600), None, 1, first), (at(3605), 1, 1, second)]


# --- wake-ups ---------------------------------------------------------------------------


async def test_wakeups_are_merged(store: MemoryStore, maker: Maker) -> None:
    """The first comes at once; then one for any number of commits that matter; a why or a note
    wakes nobody; a listener that stops leaves nothing behind."""
    waking = store.wakeups()
    job = maker.job()
    await anext(waking)
    await put(store, submitted(job))
    await put(store, step(job, E.ADMITTED))
    await anext(waking)
    await put(store, PendingReason(job.uid, "no VM"), note(job.uid, "n"))
    quiet = asyncio.ensure_future(anext(waking))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not quiet.done()
    quiet.cancel()
    with pytest.raises(asyncio.CancelledError):
        await quiet
    assert store.tables.listeners == {}


async def test_wakeups_of_a_shut_door(store: MemoryStore, maker: Maker) -> None:
    """No news comes through a shut door; opening it again is news."""
    door = store.door()
    waking = door.wakeups()
    await anext(waking)
    door.down = True
    await put(store, submitted(maker.job()))
    (wake,) = store.tables.listeners
    assert not wake.is_set()
    door.down = False
    await anext(waking)


# --- the schema's constraints -----------------------------------------------------------


async def test_what_the_schema_forbids(store: MemoryStore, maker: Maker) -> None:
    """A state that no row may have is refused by the constraint's name; its neighbours pass."""
    job, other = maker.job("j"), maker.job("k")
    await put(store, submitted(job), submitted(other))
    admitted = step(job, E.ADMITTED)
    wrong = replace(admitted, after=replace(admitted.after, status=JobStatus.RUNNING))
    committed = await store.commit([(wrong,), (step(other, E.ADMITTED),)], None)
    assert committed.applied == (False, True)
    assert committed.refusals[0].words == "unstorable: ck_jobs_lease"
    assert await store.find_job("j", None) == job


async def test_a_lease_id_is_used_once(store: MemoryStore, maker: Maker) -> None:
    """Two attempts cannot share a lease."""
    vm = await put_ready_vm(store, maker)
    first, second = maker.job(), maker.job()
    await put(store, submitted(first), submitted(second))
    placed, _ = await put_placed(store, maker, first, vm, at(1))
    admitted = step(second, E.ADMITTED)
    again = step(admitted.after, E.PLACED, lease=placed.lease)
    committed = await store.commit([(admitted, again)], None)
    assert committed.refusals[0].words == "unstorable: uq_attempts_lease_id"


def test_constraints_have_the_names_of_the_schema() -> None:
    """Each constraint that is checked here stands in the schema under the same name."""
    words = inspect.getsource(writes).split('"')
    named = {word for word in words if word.startswith(("ck_", "uq_", "pk_"))}
    known = set()
    for table in metadata.tables.values():
        known |= {str(index.name) for index in table.indexes}
        known |= {str(constraint.name) for constraint in table.constraints}
    assert len(named) > 10
    assert named <= known


# --- what the reads add -----------------------------------------------------------------


async def test_pages(store: MemoryStore, reads: MemoryReads, maker: Maker) -> None:
    """Newest first, page after page, with the total; filters hold."""
    jobs = [maker.job(f"j{n}", now=at(n), labels={"team": "x"}) for n in range(5)]
    await put(store, *(submitted(job) for job in jobs), submitted(maker.job("k")))
    seen, token = [], None
    where = JobFilter(labels={"team": "x"})
    while True:
        page = await reads.jobs(where, 2, token)
        assert page.total == 5
        seen += [row.job.spec.job_id for row in page.rows]
        token = page.next_token
        if token is None:
            break
    assert seen == ["j4", "j3", "j2", "j1", "j0"]
    page = await reads.jobs(where, 2, None, offset=1)
    assert [row.job.spec.job_id for row in page.rows] == ["j3", "j2"]


async def test_summary(store: MemoryStore, reads: MemoryReads, maker: Maker) -> None:
    """The whole house at a glance."""
    lead = await store.lead("a", 60)
    vm = await put_ready_vm(store, maker)
    job, waiting = maker.job(), maker.job(now=at(7))
    await put(store, submitted(job), submitted(waiting), send(b"x"))
    await put_placed(store, maker, job, vm, at(9))
    summary = await reads.summary()
    assert (summary.leader, summary.term, summary.leader_until) == ("a", 1, lead.expires_at)
    assert summary.jobs == {("1xl4", JobStatus.ASSIGNED): 1, ("1xl4", JobStatus.QUEUED): 1}
    assert [(count.busy, count.count) for count in summary.vms] == [(True, 1)]
    assert (summary.oldest_waiting_since, summary.outbox) == (at(7), 1)
    (row,) = (await reads.vms("1xl4", None, False, 10, None)).rows
    assert row.job_ids == (job.spec.job_id,)


async def test_confirmed_messages_are_pruned(store: MemoryStore, clock: StillClock) -> None:
    """A day after the bus has confirmed it, not before; what it has not confirmed stays."""
    await put(store, send(b"1"), send(b"2"))
    (first, _) = await store.outbox(10)
    await store.published([first.outbox_id])
    day_s = 86400
    clock.passed_s += day_s - 1
    assert (await store.prune(RetentionRules(), 10))["outbox"] == 0
    clock.passed_s += 2
    assert (await store.prune(RetentionRules(), 10))["outbox"] == 1
    assert [row.message.body for row in await store.outbox(10)] == [b"2"]


# --- cost -------------------------------------------------------------------------------


async def test_cost_does_not_grow_with_what_is_over(store: MemoryStore, maker: Maker) -> None:
    """After thousands of jobs have ended, a commit names only its rows and a snapshot holds only
    what lives."""
    for n in range(2000):
        job = maker.job(now=at(n))
        await put(store, submitted(job), step(job, E.STOP_ASKED, at(n)))
    await put(store, NewVm(maker.vm(), 9))
    live = maker.job(now=at(9999), queue_timeout_s=timedelta(days=30).total_seconds())
    await put(store, submitted(live), JobNote(live.uid, note(live.uid, "n").entry))
    snapshot = await store.snapshot(1000)
    assert tuple(snapshot.jobs) == (live,)
    tables = store.tables
    assert (len(tables.live), len(tables.queue_ends), len(tables.ended)) == (0, 1, 2000)
    assert sum(len(queue) for queue in tables.queues.values()) == 1
