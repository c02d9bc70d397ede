"""What people ask: pages, filters, prices, the summary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from core.changes import DeadLetter, NewVm, RaiseAlert, ReplayDeadLetter, Send, VmMove
from core.errors import Ambiguous, BadInput, NotFound
from core.job import JobEvent, JobStatus
from core.messages import OutMessage
from core.names import Names
from core.reads import JobFilter, VmCount
from core.vm import VmEvent, VmState, advance_vm
from db.reads import PostgresReads
from db.store import PostgresStore
from scheduler.operations.dead_letters import replay_dead_letter
from tests.db.builders import Maker, at, put, put_placed, put_ready_vm, step, submitted
from tests.db.contract.audit import ENTRY

pytestmark = pytest.mark.slow


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def reads(store: PostgresStore) -> PostgresReads:
    return PostgresReads(store)


@pytest.fixture
def maker() -> Maker:
    return Maker()


async def all_ids(reads: PostgresReads, where: JobFilter, size: int) -> list[str]:
    found: list[str] = []
    token: str | None = None
    while True:
        page = await reads.jobs(where, size, token)
        found += [row.job.spec.job_id for row in page.rows]
        token = page.next_token
        if token is None:
            assert page.total == len(found)
            return found


async def test_pages_are_newest_first_and_whole(
    store: PostgresStore, reads: PostgresReads, maker: Maker
) -> None:
    """Pages of any size give each job once, newest first, also among those of the same moment."""
    jobs = [maker.job(f"j{n}", now=at(n // 3)) for n in range(10)]
    await put(store, *(submitted(job) for job in jobs))
    expected = [
        job.spec.job_id
        for job in sorted(jobs, key=lambda job: (job.submitted_at, job.uid), reverse=True)
    ]
    for size in (1, 3, 10, 50):
        assert await all_ids(reads, JobFilter(), size) == expected
    page = await reads.jobs(JobFilter(), 3, None, offset=4)
    assert [row.job.spec.job_id for row in page.rows] == expected[4:7]
    assert page.total == 10


async def test_new_jobs_do_not_shift_pages(
    store: PostgresStore, reads: PostgresReads, maker: Maker
) -> None:
    """A job that comes in between two pages repeats nothing on the second."""
    await put(store, *(submitted(maker.job(f"j{n}", now=at(n))) for n in range(4)))
    first = await reads.jobs(JobFilter(), 2, None)
    await put(store, submitted(maker.job("new", now=at(9))))
    second = await reads.jobs(JobFilter(), 2, first.next_token)
    assert [row.job.spec.job_id for row in second.rows] == ["j1", "j0"]
    assert second.next_token is None


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (JobFilter({"tenant_id": "lab"}), ["b"]),
        (JobFilter({"user_id": "ann"}), ["a"]),
        (JobFilter(statuses=(JobStatus.PROVISIONING, JobStatus.CANCELLED)), ["c"]),
        (JobFilter(cluster="1xl4"), ["c", "b", "a"]),
        (JobFilter(cluster="8xh100"), []),
        (JobFilter(labels={"team": "x"}), ["b", "a"]),
        (JobFilter(labels={"team": "x", "run": "1"}), ["a"]),
        (JobFilter({"tenant_id": "lab", "user_id": "ann"}), []),
    ],
)
async def test_filters(
    store: PostgresStore,
    reads: PostgresReads,
    maker: Maker,
    where: JobFilter,
    expected: list[str],
) -> None:
    """A filter shows exactly what fits, and counts it."""
    a = maker.job("a", now=at(1), user_id="ann", labels={"team": "x", "run": "1"})
    b = maker.job("b", now=at(2), tenant_id="lab", labels={"team": "x"})
    c = maker.job("c", now=at(3))
    await put(store, *(submitted(job) for job in (a, b, c)), step(c, JobEvent.ADMITTED, at(4)))
    assert await all_ids(reads, where, 2) == expected


@pytest.mark.parametrize("token", ["", "x", "!!!!", "aGVsbG8", "é", "A" * 5000])
async def test_foreign_tokens(reads: PostgresReads, token: str) -> None:
    """A token that is not ours is an error that names the field."""
    with pytest.raises(BadInput) as refused:
        await reads.jobs(JobFilter(), 10, token)
    assert refused.value.faults[0].field == "page_token"


async def test_token_of_another_list(
    store: PostgresStore, reads: PostgresReads, maker: Maker
) -> None:
    """A token serves the question that it came from, with the same filters."""
    await put(store, *(submitted(maker.job(now=at(n))) for n in range(3)))
    token = (await reads.jobs(JobFilter(), 1, None)).next_token
    assert token is not None
    with pytest.raises(BadInput):
        await reads.jobs(JobFilter({"user_id": "ann"}), 1, token)
    with pytest.raises(BadInput):
        await reads.vms(None, None, True, 1, token)


async def test_unknown_and_ambiguous(
    store: PostgresStore, reads: PostgresReads, maker: Maker
) -> None:
    """One job is found by its id alone as long as one user has it."""
    with pytest.raises(NotFound):
        await reads.job("same", None)
    ann, bob = maker.job("same", user_id="ann"), maker.job("same", user_id="bob")
    await put(store, submitted(ann))
    assert (await reads.job("same", None)).job == ann
    await put(store, submitted(bob))
    assert (await reads.job("same", "bob")).job == bob
    with pytest.raises(Ambiguous):
        await reads.job("same", None)


async def test_running_job_costs_until_now(
    store: PostgresStore, reads: PostgresReads, maker: Maker
) -> None:
    """An open attempt is charged up to the database's now."""
    job = maker.job("j")
    await put(store, submitted(job))
    vm = await put_ready_vm(store, maker, price=3600.0)
    now = (await store.snapshot(0)).now
    await put_placed(store, maker, job, vm, now)
    first, second = await reads.job("j", None), await reads.job("j", None)
    assert 0 < first.cost_usd < second.cost_usd < 60


async def test_vm_pages(store: PostgresStore, reads: PostgresReads, maker: Maker) -> None:
    """VMs come with the jobs on them; gone ones only if asked for."""
    busy = await put_ready_vm(store, maker)
    gone, other = maker.vm(), maker.vm(cluster="8xh100")
    moved = VmMove(gone, advance_vm(gone, VmEvent.NOT_LISTED, at(1), "observed gone"))
    await put(store, NewVm(gone, 9), moved, NewVm(other, 9))
    job = maker.job("mine")
    await put(store, submitted(job))
    await put_placed(store, maker, job, busy, at(2))
    active = await reads.vms(None, None, False, 10, None)
    assert {row.vm.uid: row.job_ids for row in active.rows} == {busy.uid: ("mine",), other.uid: ()}
    assert (await reads.vms(None, None, True, 10, None)).total == 3
    assert (await reads.vms("8xh100", "us-central1", False, 10, None)).total == 1
    first = await reads.vms(None, None, True, 2, None)
    rest = await reads.vms(None, None, True, 2, first.next_token)
    assert len({row.vm.uid for row in (*first.rows, *rest.rows)}) == 3
    assert rest.next_token is None


async def test_summary(store: PostgresStore, reads: PostgresReads, maker: Maker) -> None:
    """The house at a glance, empty and in use."""
    empty = await reads.summary()
    assert (empty.leader, empty.term, empty.leader_until) == ("", 0, None)
    assert (dict(empty.jobs), empty.vms, empty.oldest_waiting_since) == ({}, (), None)
    lead = await store.lead("a", 60)
    waiting, admitted = maker.job(now=at(5)), maker.job(now=at(3))
    await put(store, submitted(waiting), submitted(admitted), step(admitted, JobEvent.ADMITTED))
    await put_ready_vm(store, maker)
    await put(store, Send(OutMessage("t", b"")), RaiseAlert("k", "s", "error", "m", at(0)))
    full = await reads.summary()
    assert (full.leader, full.term, full.leader_until) == ("a", lead.term, lead.expires_at)
    assert full.jobs == {("1xl4", JobStatus.QUEUED): 1, ("1xl4", JobStatus.PROVISIONING): 1}
    assert full.vms == (VmCount("1xl4", "us-central1", VmState.READY, False, 1),)
    assert full.oldest_waiting_since == at(3)
    assert (full.outbox, full.open_alerts) == (1, {"k": 1})


# --- dead letters -----------------------------------------------------------------------


def dead_letter(number: int, source: str = "submit", **more: str) -> DeadLetter:
    return DeadLetter(f"m{number}", source, b"\x00{", {"k": "v"}, "two faults", at(number), **more)


async def test_dead_letters_in_pages(store: PostgresStore, reads: PostgresReads) -> None:
    """Newest first, also among those of the same moment; a filter counts what it shows."""
    await put(
        store, *(replace(dead_letter(n), at=at(n // 2)) for n in range(5)), dead_letter(9, "other")
    )
    one = await reads.dead_letters("submit", 2, None)
    two = await reads.dead_letters("submit", 2, one.next_token)
    three = await reads.dead_letters("submit", 2, two.next_token)
    found = [row.dead_letter.message_id for page in (one, two, three) for row in page.rows]
    assert (found, one.total) == (["m4", "m3", "m2", "m1", "m0"], 5)
    assert three.next_token is None
    assert (await reads.dead_letters(None, 10, None)).total == 6
    with pytest.raises(BadInput):
        await reads.dead_letters("other", 1, "nonsense")


async def test_dead_letter_is_replayed_once(store: PostgresStore, reads: PostgresReads) -> None:
    """Ten requests at once put one message into the outbox, whole and with its ordering key."""
    await put(store, dead_letter(1, "topic-x", ordering_key="vm-1"))
    answers = await asyncio.gather(
        *(
            replay_dead_letter(reads, store, "m1", Names(), replace(ENTRY, at=at(n)))
            for n in range(10)
        )
    )
    assert sorted(answer.sent for answer in answers) == [False] * 9 + [True]
    (row,) = await store.outbox(10)
    assert row.message == OutMessage("topic-x", b"\x00{", {"k": "v"}, "vm-1")
    stored = await reads.dead_letter("m1")
    assert {answer.row.replayed_at for answer in answers} == {stored.replayed_at}
    with pytest.raises(NotFound):
        await reads.dead_letter("m2")
    unknown = await store.commit([(ReplayDeadLetter("m2", at(0)),)], None)
    assert unknown.refusals[0].words == "there is no dead letter m2"
