"""What the scheduling cycle notes of waits: pending reasons and preemption attempts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.job import E, S
from core.region_blocks import BlockKind, RegionBlock
from core.waits import REPEAT_S, WaitKind, WaitNote
from scheduler.admission import pending_reasons as why_module
from tests.builders import NOW, at, job, snapshot, vm
from tests.scheduler.cycle.test_plan import Cycle, running
from tests.scheduler.preemption.world import NORMAL, full

K = WaitKind
UID = "job-uid-0001"


def stockout(until_s: float) -> RegionBlock:
    kind = BlockKind.STOCKOUT
    return RegionBlock(
        "us-east1", "", "g2-standard-4", False, kind, NOW, NOW, at(until_s), 1, "none"
    )


def test_new_reason_begins_and_the_one_before_has_lasted() -> None:
    """Both at the moment of the change, so that the rows say from when to when."""
    seen = replace(snapshot((job(1, E.ADMITTED),)), reasons={UID: "cluster 1xl4 is at its limit"})
    cycle = Cycle(seen)
    assert cycle.plan.wait_notes == [
        WaitNote(UID, K.PENDING_REASON, "", "cluster 1xl4 is at its limit", NOW, 0),
        WaitNote(UID, K.PENDING_REASON, "", "waits for a VM", NOW),
    ]


def test_reason_whose_numbers_change_is_no_news() -> None:
    """A block that is extended changes the pending reason, and nothing in the trace."""
    words = "waits for a VM; us-east1 stockout until 12:05:00 UTC"
    seen = replace(snapshot((job(1, E.ADMITTED),), (), (stockout(360),)), reasons={UID: words})
    cycle = Cycle(seen)
    assert UID in cycle.reasons
    assert cycle.plan.wait_notes == []


def test_reason_of_a_job_that_starts_has_lasted_until_now() -> None:
    """One that never waited leaves no trace."""
    waited = replace(snapshot((job(1),), (vm("vm-9"),)), reasons={UID: "waits for a VM"})
    cycle = Cycle(waited)
    assert cycle.job(1).status is S.ASSIGNED
    assert cycle.plan.wait_notes == [WaitNote(UID, K.PENDING_REASON, "", "waits for a VM", NOW, 0)]
    assert Cycle(snapshot((job(1),), (vm("vm-9"),))).plan.wait_notes == []


def test_a_cycle_notes_the_first_jobs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the queue is: those behind are noted when they come to the head."""
    monkeypatch.setattr(why_module, "NOTES_PER_CYCLE", 3)
    ahead, on = running(99)
    jobs = tuple(job(number) for number in range(1, 20))
    cycle = Cycle(snapshot((ahead, *jobs), (on,)), vm_max=1)
    assert len(cycle.reasons) == 19
    reasons = [note for note in cycle.plan.wait_notes if note.kind is K.PENDING_REASON]
    assert [note.uid for note in reasons] == list(cycle.reasons)[:3]


def test_preemption_attempt_is_noted_with_what_came_of_it() -> None:
    """Why no job was preempted; repeats are counted, not written each time."""
    world = full(1, NORMAL, ran_s=300.0)
    world.waits("now", NORMAL)
    (note,) = [n for n in world.cycle().wait_notes if n.kind is K.PREEMPTION]
    assert (note.uid, note.count) == ("now", 1)
    assert note.reason == "no job that runs may be preempted for it yet"
    written = []
    for _ in range(9):
        notes = world.cycle(after_s=REPEAT_S / 5).wait_notes
        written += [n for n in notes if n.kind is K.PREEMPTION]
    assert 1 <= len(written) <= 2
