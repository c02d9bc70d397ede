"""Submissions of many jobs: stored once, written in parts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from core.changes import AtomicBatch, NewJob, NewSpec
from core.forecast import run_of
from core.job import Job, JobEvent, JobStatus, Membership
from core.job_fields import JobSpec
from core.job_steps import entry_for, new_job
from core.members import SharedMember, member_spec, members_of
from core.ports import Store
from core.reads import JobFilter, Reads
from core.reasons import RefusalKind
from core.submission import content_hash
from tests.db.builders import T0, Maker, at, put, put_placed, put_ready_vm, step

E, S = JobEvent, JobStatus
SPEC = JobSpec(
    "sweep",
    user_id="ada",
    tenant_id="lab",
    array="1-5",
    command=("python3", "train.py"),
    environment={"LARGE": "x" * 10_000, "né": "\N{SNOWMAN}"},
    labels={"team": "vision"},
    gpu_count=2,
    memory_mb=2048,
    queue_timeout_s=1e9,
)


def jobs_of(maker: Maker, spec: JobSpec = SPEC) -> list[NewJob]:
    """The changes of an array's or a gang's submission, without its NewSpec."""
    spec_id = maker.job("other").uid
    made, leader = [], ""
    for member in members_of(spec):
        uid = maker.job("other").uid
        leader = uid if member.rank == 0 else leader
        gang = Membership(leader, member.rank, spec.replicas) if spec.replicas > 1 else None
        job = new_job(uid, member_spec(spec, member), "2xl4", T0, gang=gang)
        entry = entry_for(None, job, E.SUBMITTED)
        made.append(NewJob(job, entry, content_hash(spec), (), SharedMember(spec_id, member)))
    return made


def shared_by(jobs: list[NewJob], spec: JobSpec = SPEC) -> NewSpec:
    assert jobs[0].shared is not None
    return NewSpec(jobs[0].shared.spec_id, spec)


def in_parts(jobs: list[NewJob], size: int = 2) -> Iterator[AtomicBatch]:
    changes: AtomicBatch = (shared_by(jobs), *jobs)
    return (changes[begin : begin + size] for begin in range(0, len(changes), size))


async def stored(reads: Reads) -> dict[str, Job]:
    rows = (await reads.jobs(JobFilter(), 100, None)).rows
    return {row.job.spec.job_id: row.job for row in rows}


class Arrays:
    async def test_members_are_read_as_they_were_submitted(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """By every way to a job: alone, in lists, as heads of the queue, and of a group."""
        jobs = jobs_of(maker)
        await put(store, shared_by(jobs), *jobs)
        expected = {new.job.spec.job_id: new.job for new in jobs}
        assert await stored(reads) == expected
        group = await store.find_group("sweep", "ada")
        assert await store.find_job("sweep-3", "ada") == expected["sweep-3"]
        assert (await reads.job("sweep-3", "ada")).job == expected["sweep-3"]
        assert {j.spec.job_id: j for j in (await store.snapshot(100)).jobs} == expected
        assert {j.spec.job_id: j for j in await store.open_jobs(group, 9)} == expected
        labels = JobFilter(labels={"team": "vision"})
        assert (await reads.jobs(labels, 100, None)).total == 5

    async def test_members_of_a_gang_are_read_as_they_were_submitted(
        self, store: Store, maker: Maker
    ) -> None:
        """Each with its rank, also spare ones of an elastic job."""
        spec = JobSpec("bend", command=("true",), replicas=4, replicas_min=2, group="night")
        jobs = jobs_of(maker, spec)
        await put(store, shared_by(jobs, spec), *jobs)
        assert await store.members(jobs[0].job.uid) == [new.job for new in jobs]

    async def test_a_long_batch_is_written_in_parts(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """All jobs of all parts, each with its history."""
        jobs = jobs_of(maker)
        assert await store.commit_long(lambda: in_parts(jobs)) is None
        assert await stored(reads) == {new.job.spec.job_id: new.job for new in jobs}
        assert [row.seq for row in await reads.events(jobs[4].job.uid, 9, 0)] == [1]

    async def test_gangs_of_a_long_batch_are_read_as_they_were_submitted(
        self, store: Store, maker: Maker
    ) -> None:
        """Each with its rank, its place in the group, and the spare members parked."""
        spec = JobSpec("bend", command=("true",), replicas=3, replicas_min=2, array="1-2")
        jobs = jobs_of(maker, spec)
        begun: AtomicBatch = (shared_by(jobs, spec), *jobs[:2])
        assert await store.commit_long(lambda: (begun, tuple(jobs[2:]))) is None
        for leader in (jobs[0], jobs[3]):
            members = [new.job for new in jobs if new.job.gang_uid == leader.job.uid]
            assert await store.members(leader.job.uid) == members

    async def test_a_long_batch_is_written_whole_or_not_at_all(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """A guard that refuses in the last part takes back what the first ones wrote, and the same
        ids can be submitted afterwards."""
        jobs = jobs_of(maker)
        await put(store, _alone(maker, jobs[4]))
        refusal = await store.commit_long(lambda: in_parts(jobs))
        assert refusal is not None
        assert refusal.kind is RefusalKind.EXISTS
        assert list(await stored(reads)) == ["sweep-5"]
        assert await store.commit_long(lambda: in_parts(jobs[:4])) is None

    async def test_a_job_twice_in_a_long_batch_is_refused(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Also when a part of its own brings it."""
        jobs = jobs_of(maker)
        again = jobs_of(maker)[:1]
        refusal = await store.commit_long(lambda: chain(in_parts(jobs), [tuple(again)]))
        assert refusal is not None
        assert await stored(reads) == {}

    async def test_a_spec_that_cannot_be_stored_is_refused(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Once for all members."""
        jobs = jobs_of(maker)
        bad = NewSpec(shared_by(jobs).spec_id, JobSpec("sweep", environment={"A": "\0"}))
        committed = await store.commit([(bad, *jobs)], None)
        assert committed.refusals[0].kind is RefusalKind.UNSTORABLE
        assert await stored(reads) == {}

    async def test_members_count_for_their_tenant(self, store: Store, maker: Maker) -> None:
        """What they hold is what their submission asks for, each."""
        jobs = jobs_of(maker)
        await put(store, shared_by(jobs), *jobs)
        for new in jobs[:2]:
            await put(store, step(new.job, E.ADMITTED, at(1)))
        held = (await store.holdings("lab"))["lab"]["2xl4"]
        assert (held.jobs, held.gpus, held.memory_mb) == (2, 4, 4096)

    async def test_members_that_ran_are_runs_of_their_command(
        self, store: Store, maker: Maker
    ) -> None:
        """Forecasts learn from them."""
        jobs = jobs_of(maker)
        await put(store, shared_by(jobs), *jobs)
        vm = await put_ready_vm(store, maker)
        job, _ = await put_placed(store, maker, jobs[0].job, vm, at(1))
        started = step(job, E.STARTED, at(2))
        ended = step(started.after, E.EXITED_OK, at(62), exit_code=0)
        await put(store, started, ended)
        (run,) = await store.runs(T0, 10)
        assert run == run_of(ended.after)
        assert run.command == ("python3", "train.py")


def _alone(maker: Maker, new: NewJob) -> NewJob:
    """The same job by a submission of its own."""
    job = new_job(maker.job("other").uid, new.job.spec, "2xl4", T0)
    return NewJob(job, entry_for(None, job, E.SUBMITTED), "other")
