"""What a leader knows of saved work."""

from __future__ import annotations

from dataclasses import replace

from core.changes import JobProgress
from core.job import E, SavedWork
from core.messages import Progress
from scheduler.cycle.checkpoints import Checkpoints
from tests.builders import at, job

RUNNING = job(1, E.ADMITTED, E.PLACED, E.STARTED)


def said(step: float | None, second: float, attempt: int = 1) -> JobProgress:
    return JobProgress(RUNNING.uid, attempt, None, step, at(second))


def test_a_step_was_saved_when_it_was_first_reported() -> None:
    """Heartbeats that repeat it do not make it younger; a word without a step says nothing."""
    known = Checkpoints()
    assert known.saved_at(RUNNING) is None
    known.hear([said(10, 5), said(10, 8), said(None, 9)])
    assert known.saved_at(RUNNING) == at(5)
    known.hear([said(20, 60)])
    assert known.saved_at(RUNNING) == at(60)


def test_what_an_earlier_attempt_saved_is_not_this_ones() -> None:
    """A new attempt begins where that ended, and has saved nothing of its own yet."""
    known = Checkpoints()
    known.hear([said(20, 60)])
    again = replace(RUNNING, attempt=2)
    assert known.saved_at(again) is None
    known.hear([said(20, 90, attempt=2)])
    assert known.saved_at(again) == at(90)


def test_a_cluster_without_vms_is_forgotten() -> None:
    """The book does not grow with the jobs that ever ran."""
    known = Checkpoints()
    known.hear([said(10, 5)])
    known.forget([(RUNNING, replace(RUNNING, lease=None))])
    assert known.saved_at(RUNNING) is None


def test_what_a_checkpoint_holds() -> None:
    """The run until the checkpoint was first told of, and its share where the job counts its
    steps; of another attempt nothing is known."""
    known = Checkpoints()
    assert RUNNING.started_at is not None
    known.hear([JobProgress(RUNNING.uid, 1, Progress(50, 200), 40, at(61))])
    known.hear([JobProgress(RUNNING.uid, 1, None, 40, at(90))])
    ran_s = (at(61) - RUNNING.started_at).total_seconds()
    assert known.saved(RUNNING) == SavedWork(ran_s, 0.2)
    known.hear([JobProgress(RUNNING.uid, 1, None, 100, at(120))])
    later = known.saved(RUNNING)
    assert later is not None
    assert later.share == 0.5
    assert known.saved(replace(RUNNING, attempt=2)) is None
