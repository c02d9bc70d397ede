"""What a commit writes, without a store."""

from __future__ import annotations

from core.changes import AtomicBatch, JobProgress, VmHeartbeat
from core.commit_writes import fold
from core.job import JobEvent
from core.messages import Progress
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
    assert not fold([quiet]).wakes
    assert fold([quiet, (submitted(maker.job()),)]).wakes
