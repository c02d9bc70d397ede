"""What a commit writes, without a store."""

from __future__ import annotations

from core.changes import AtomicBatch, JobProgress, VmHeartbeat
from core.commit_writes import fold
from core.job import JobEvent
from core.messages import Progress
from core.wakes import AT_ONCE, new_jobs_in
from tests.db.builders import Maker, at, step, submitted


def test_many_changes_to_one_row_become_one() -> None:
    """Only the last state of each row is written, with all of its history."""
    maker = Maker()
    job, vm = maker.job(), maker.vm()
    admitted = step(job, JobEvent.ADMITTED)
    back = step(admitted.after, JobEvent.WITHDRAWN)
    writes = fold([(submitted(job),), (admitted, back), (VmHeartbeat(vm.uid, at(2)),)])
    assert writes.new_jobs == {job.uid: back.after}
    assert writes.jobs == {}
    assert [entry.event for _, entry in writes.events] == ["submitted", "admitted", "withdrawn"]


def test_heartbeats_and_progress_alone_wake_no_waiter() -> None:
    """What happens all the time is not worth a cycle."""
    maker = Maker()
    quiet: AtomicBatch = (
        VmHeartbeat(maker.vm().uid, at(1)),
        JobProgress(maker.job().uid, 1, Progress(1), None, at(1)),
    )
    assert fold([quiet]).wake is None
    job = maker.job()
    assert fold([quiet, (submitted(job),)]).wake == new_jobs_in({job.cluster})


def test_what_frees_nothing_is_not_worth_a_cycle() -> None:
    """A job that its worker has, or runs, is where the last cycle put it; one that ended is not."""
    maker = Maker()
    admitted = step(maker.job(), JobEvent.ADMITTED).after
    placed = step(admitted, JobEvent.PLACED, lease=maker.lease(maker.vm()))
    assert fold([(placed,)]).wake == AT_ONCE
    claimed = step(placed.after, JobEvent.CLAIMED)
    started = step(claimed.after, JobEvent.STARTED)
    assert fold([(claimed, started)]).wake is None
    ended = step(started.after, JobEvent.EXITED_OK)
    assert fold([(ended,), (submitted(maker.job()),)]).wake == AT_ONCE
