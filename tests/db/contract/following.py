"""A job's attempts, history, progress, and how the loop sees it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from core.changes import (
    JobProgress,
    NewVm,
    PendingReason,
    VmMove,
)
from core.job import Job, JobEvent, JobStatus
from core.messages import Progress
from core.ports import Store
from core.reads import Reads, Worked
from core.vm import drop_lease
from tests.db.builders import (
    Maker,
    at,
    put,
    put_placed,
    put_ready_vm,
    ready,
    step,
    submitted,
)
from tests.db.contract.words import note

E = JobEvent


class Attempts:
    async def test_life_of_an_attempt(self, store: Store, reads: Reads, maker: Maker) -> None:
        """An attempt opens with the lease at the VM's price and closes with its outcome."""
        job = maker.job("j")
        await put(store, submitted(job))
        vm = await put_ready_vm(store, maker, price=3.6)
        job, vm = await put_placed(store, maker, job, vm, at(10))
        claimed = step(job, E.CLAIMED, at(20))
        started = step(claimed.after, E.STARTED, at(30))
        await put(store, claimed, started)
        (row,) = await reads.attempts(job.uid)
        assert job.lease is not None
        assert (row.attempt, row.lease_id, row.vm_name) == (1, job.lease.lease_id, vm.name)
        assert (row.region, row.zone, row.slots) == ("us-central1", "us-central1-a", (0,))
        assert (row.assigned_at, row.started_at, row.ended_at) == (at(10), at(30), None)
        ended = step(started.after, E.EXITED_ERROR, at(1030), exit_code=3)
        await put(store, ended)
        (row,) = await reads.attempts(job.uid)
        assert (row.ended_at, row.outcome, row.exit_code) == (at(1030), "exited_error", 3)
        found = await reads.job("j", None)
        assert found.job.lease is None
        assert found.last == Worked(vm.name, "us-central1", "us-central1-a", (0,))
        assert (await reads.job("j", None)).cost_usd == pytest.approx(1020 / 3600 * 3.6)

    async def test_second_attempt(self, store: Store, reads: Reads, maker: Maker) -> None:
        """A job that lost its VM gets a second attempt beside the first, and pays for both."""
        job = maker.job("j")
        await put(store, submitted(job))
        vm = await put_ready_vm(store, maker, price=1.0)
        job, vm = await put_placed(store, maker, job, vm, at(0))
        lost = step(job, E.VM_LOST, at(1800))
        await put(store, lost)
        other = await put_ready_vm(store, maker, price=2.0)
        job, _ = await put_placed(store, maker, lost.after, other, at(2000))
        claimed = step(job, E.CLAIMED, at(2000))
        await put(store, claimed, step(claimed.after, E.EXITED_OK, at(2900)))
        rows = await reads.attempts(job.uid)
        assert [(r.attempt, r.outcome) for r in rows] == [(1, "vm_lost"), (2, "exited_ok")]
        row = await reads.job("j", None)
        assert (row.cost_usd, row.wasted_usd) == pytest.approx((0.5 + 0.5, 0.5))

    async def test_whole_life_in_one_call(self, store: Store, reads: Reads, maker: Maker) -> None:
        """Moves of one call leave the same attempts as moves of many."""
        job, vm = maker.job("j"), maker.vm()
        lease = maker.lease(vm)
        moves = [step(job, E.ADMITTED, at(1))]
        moves.append(step(moves[-1].after, E.PLACED, at(2), lease=lease))
        moves.append(step(moves[-1].after, E.STARTED, at(3)))
        moves.append(step(moves[-1].after, E.EXITED_OK, at(4), exit_code=0))
        became = ready(vm)
        batches = [(NewVm(vm, 5), became), (submitted(job),), *((move,) for move in moves)]
        assert (await store.commit(batches, None)).all_applied
        (row,) = await reads.attempts(job.uid)
        assert (row.assigned_at, row.started_at, row.ended_at) == (at(2), at(3), at(4))
        assert (row.outcome, row.exit_code, row.usd_per_hour) == ("exited_ok", 0, 2.0)
        events = [e.entry.event for e in await reads.events(job.uid, 100, 0)]
        assert events == ["submitted", "admitted", "placed", "started", "exited_ok"]


class Timeline:
    async def test_numbers_grow_by_one(self, store: Store, reads: Reads, maker: Maker) -> None:
        """Rows of history are numbered 1, 2, 3… and read in pages."""
        job = maker.job()
        await put(store, submitted(job))
        await put(store, note(job.uid, "one"), note(job.uid, "two"))
        await put(store, step(job, E.ADMITTED, at(5)))
        rows = await reads.events(job.uid, 100, 0)
        assert [row.seq for row in rows] == [1, 2, 3, 4]
        assert [row.entry.event for row in rows] == ["submitted", "note", "note", "admitted"]
        assert [row.seq for row in await reads.events(job.uid, 2, 1)] == [2, 3]
        assert rows[1].entry == note(job.uid, "one").entry

    async def test_repeats_are_dropped(self, store: Store, reads: Reads, maker: Maker) -> None:
        """News with the same key is kept once per job, in one call or in many."""
        job, other = maker.job(), maker.job()
        await put(store, submitted(job), submitted(other))
        for _ in range(2):
            await put(store, note(job.uid, "a", "k"), note(job.uid, "b", "k"))
        await put(store, note(other.uid, "c", "k"))
        assert [r.entry.reason for r in await reads.events(job.uid, 9, 1)] == ["a"]
        assert [r.entry.reason for r in await reads.events(other.uid, 9, 1)] == ["c"]

    async def test_note_on_nothing_is_refused(self, store: Store, maker: Maker) -> None:
        """A note on a job that is not stored is refused."""
        committed = await store.commit([(note(maker.job().uid, "x"),)], None)
        assert committed.applied == (False,)


class Progressing:
    async def test_later_word_of_the_live_attempt_wins(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Progress of another attempt or of an earlier moment changes nothing, and no version."""
        job = maker.job("j")
        await put(store, submitted(job))
        vm = await put_ready_vm(store, maker)
        job, _ = await put_placed(store, maker, job, vm, at(0))
        await put(store, JobProgress(job.uid, 1, Progress(5, 10), None, at(5)))
        await put(store, JobProgress(job.uid, 2, Progress(9, 10), 9, at(6)))
        await put(store, JobProgress(job.uid, 1, Progress(4, 10), 4, at(4)))
        row = await reads.job("j", None)
        assert (row.progress, row.checkpoint_step) == (Progress(5, 10), None)
        await put(store, JobProgress(job.uid, 1, None, 5, at(7)))
        row = await reads.job("j", None)
        assert (row.progress, row.checkpoint_step) == (Progress(5, 10), 5)
        assert row.job == job

    async def test_newest_word_in_one_call(self, store: Store, reads: Reads, maker: Maker) -> None:
        """Of several words in one call the newest of each kind is kept."""
        job = maker.job("j")
        await put(store, submitted(job))
        vm = await put_ready_vm(store, maker)
        job, _ = await put_placed(store, maker, job, vm, at(0))
        await put(
            store,
            JobProgress(job.uid, 1, Progress(2), None, at(2)),
            JobProgress(job.uid, 1, None, 1, at(3)),
            JobProgress(job.uid, 1, Progress(1), None, at(1)),
        )
        row = await reads.job("j", None)
        assert (row.progress, row.checkpoint_step) == (Progress(2), 1)

    async def test_why_lasts_while_it_waits(self, store: Store, reads: Reads, maker: Maker) -> None:
        """The newest why is kept while the job waits, and is gone once it does not."""
        job = maker.job("j")
        await put(store, submitted(job))
        await put(store, PendingReason(job.uid, "old"))
        await put(store, PendingReason(job.uid, "no VM"))
        row = await reads.job("j", None)
        assert (row.why, row.position) == ("no VM", 1)
        assert (await store.snapshot(10)).reasons == {job.uid: "no VM"}
        admitted = step(job, E.ADMITTED)
        await put(store, admitted)
        assert (await reads.job("j", None)).why == "no VM"
        await put(store, step(admitted.after, E.STOP_ASKED))
        await put(store, PendingReason(job.uid, "too late"))
        row = await reads.job("j", None)
        assert (row.why, row.position) == ("", None)


class Snapshots:
    async def test_jobs_in_order(self, store: Store, maker: Maker) -> None:
        """The queue's head comes by priority, then age; jobs
        that a VM works for and PROVISIONING ones are all there; ended ones are not."""
        long = 10.0**9
        late = maker.job("late", now=at(2), queue_timeout_s=long)
        early = maker.job("early", now=at(1), queue_timeout_s=long)
        urgent = maker.job("urgent", now=at(3), priority=900, queue_timeout_s=long)
        admitted, over = maker.job("admitted"), maker.job("over")
        await put(store, *(submitted(j) for j in (late, early, urgent, admitted, over)))
        await put(store, step(admitted, E.ADMITTED), step(over, E.STOP_ASKED))
        placed, _ = await self._placed(store, maker)
        snapshot = await store.snapshot(2)
        queued = {job.spec.job_id for job in snapshot.jobs_in(JobStatus.QUEUED)}
        assert queued == {"urgent", "early"}
        others = {job.spec.job_id for job in snapshot.jobs if job.status is not JobStatus.QUEUED}
        assert others == {"admitted", "placed"}
        assert placed in snapshot.jobs

    async def test_no_cluster_hides_another(self, store: Store, maker: Maker) -> None:
        """A long queue here does not keep the loop from a short one there."""
        long = 10.0**9
        many = [
            maker.job(f"many-{n}", now=at(n), cluster="8xh100", queue_timeout_s=long)
            for n in range(5)
        ]
        few = maker.job("few", now=at(99), queue_timeout_s=long)
        await put(store, *(submitted(j) for j in (*many, few)))
        seen = {job.spec.job_id for job in (await store.snapshot(2)).jobs}
        assert seen == {"many-0", "many-1", "few"}

    async def test_late_jobs_are_seen_wherever_they_stand(self, store: Store, maker: Maker) -> None:
        """A queue time-out fires also for a job that is far from the head."""
        first = maker.job("first", now=at(1), queue_timeout_s=10.0**7)
        late = maker.job("late", now=at(2), queue_timeout_s=1.0)
        await put(store, submitted(first), submitted(late))
        seen = {job.spec.job_id for job in (await store.snapshot(1)).jobs}
        assert seen == {"first", "late"}

    async def test_position_counts_those_ahead(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """In its own cluster, by priority, then age."""
        jobs = [maker.job(f"n{n}", now=at(n)) for n in range(3)]
        other = maker.job("other", now=at(0), cluster="8xh100")
        urgent = maker.job("urgent", now=at(9), priority=900)
        await put(store, *(submitted(j) for j in (*jobs, other, urgent)))
        names = ("urgent", "n0", "n2", "other")
        assert [(await reads.job(name, None)).position for name in names] == [1, 2, 4, 1]

    async def _placed(self, store: Store, maker: Maker) -> tuple[Job, object]:
        job = maker.job("placed")
        await put(store, submitted(job))
        return await put_placed(store, maker, job, await put_ready_vm(store, maker), at(5))

    async def test_next_view_sees_what_moved(self, store: Store, maker: Maker) -> None:
        """A job that moved between two snapshots is seen as it is now, one that ended is not
        seen."""
        stays, moves, ends = maker.job(), maker.job(), maker.job()
        await put(store, *(submitted(j) for j in (stays, moves, ends)))
        assert len((await store.snapshot(10)).jobs) == 3
        move = step(moves, E.ADMITTED)
        await put(store, move, step(ends, E.STOP_ASKED))
        seen = {job.uid: job for job in (await store.snapshot(10)).jobs}
        assert seen == {stays.uid: stays, moves.uid: move.after}

    async def test_clock(self, store: Store) -> None:
        """The snapshot carries the store's own time, in UTC, and it does not go back."""
        first, second = await store.snapshot(0), await store.snapshot(0)
        assert first.now <= second.now
        assert first.now.utcoffset() == at(0).utcoffset()

    async def test_snapshot_is_consistent(self, store: Store, maker: Maker) -> None:
        """What one atomic batch writes is seen whole or not at all: a leased job and its VM
        agree."""
        job, vm = maker.job(), await put_ready_vm(store, maker)
        await put(store, submitted(job))
        done = asyncio.Event()

        async def play() -> None:
            here, machine = job, vm
            for turn in range(15):
                here, machine = await put_placed(store, maker, here, machine, at(turn))
                assert here.lease is not None
                lost = step(here, E.CLAIM_TIMEOUT, at(turn))
                freed = VmMove(machine, drop_lease(machine, here.lease.lease_id, at(turn)))
                await put(store, lost, freed)
                # Not one of the losses that a job may have at most.
                here, machine = replace(lost.after, losses=0), freed.after
            done.set()

        async def look() -> None:
            while not done.is_set():
                snapshot = await store.snapshot(10)
                held = {j.lease.lease_id for j in snapshot.jobs if j.lease is not None}
                assert held == {lease for v in snapshot.vms for lease in v.leases}

        await asyncio.wait_for(asyncio.gather(play(), look(), look()), 30)
