"""Questions over the histories of several jobs at once."""

from __future__ import annotations

from core.job import JobEvent, JobStatus
from core.ports import Store
from core.reads import JobFilter, Milestones, Reads
from tests.db.builders import Maker, at, put, put_placed, put_ready_vm, step, submitted

E = JobEvent
S = JobStatus


class Histories:
    async def test_last_time_in_each_status(self, store: Store, reads: Reads, maker: Maker) -> None:
        """Of two stays in a status the later one is told, with the VM of the last attempt."""
        job, other = maker.job("j"), maker.job("other")
        await put(store, submitted(job), submitted(other))
        first = await put_ready_vm(store, maker)
        job, _ = await put_placed(store, maker, job, first, at(10))
        lost = step(job, E.VM_LOST, at(20))
        await put(store, lost)
        second = await put_ready_vm(store, maker)
        job, _ = await put_placed(store, maker, lost.after, second, at(30))
        started = step(job, E.STARTED, at(40))
        await put(store, started)
        assert await reads.running_by_region() == {("1xl4", "us-central1"): 1}
        await put(store, step(started.after, E.EXITED_OK, at(50), exit_code=0))
        assert await reads.running_by_region() == {}
        found = await reads.milestones([job.uid, other.uid, maker.job().uid])
        assert found == {
            job.uid: Milestones(
                {
                    S.QUEUED: at(20),
                    S.PROVISIONING: at(30),
                    S.ASSIGNED: at(30),
                    S.RUNNING: at(40),
                    S.SUCCEEDED: at(50),
                },
                second.name,
                "us-central1",
            ),
            other.uid: Milestones({S.QUEUED: other.submitted_at}),
        }

    async def test_jobs_by_their_ids(self, store: Store, reads: Reads, maker: Maker) -> None:
        """Several ids of one user are one question; another user's job of that id is not told."""
        mine = [maker.job(name, user_id="ada") for name in ("a", "b", "c")]
        await put(store, *map(submitted, (*mine, maker.job("a", user_id="bob"))))
        page = await reads.jobs(JobFilter({"user_id": "ada"}, job_ids=("a", "c", "zzz")), 10, None)
        assert sorted(row.job.v1_key for row in page.rows) == [("ada", "a"), ("ada", "c")]
        assert page.total == 2
