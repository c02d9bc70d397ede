from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from core.changes import NewJob, NewSpec
from core.errors import StoreDown
from core.groups import After, Wait
from core.ids import RandomIds
from core.job_fields import JobSpec
from scheduler.submission.cluster_selection import Choice
from scheduler.submission.member_jobs import PART, WAITING_MAX, Agreed, LongSubmissions
from tests.builders import NOW

UID = "018f0000-0000-7000-8000-000000000001"
WAIT = Wait(UID, None, After("before"))


def agreed(spec: JobSpec, *waits: Wait, told_s: float | None = None) -> Agreed:
    return Agreed(UID, spec, Choice("1xl4", "fits"), NOW, NOW, "digest", waits, told_s)


def jobs_of(made: Agreed) -> list[NewJob]:
    return [change for change in made.changes(RandomIds()) if isinstance(change, NewJob)]


def test_a_single_job_shares_nothing() -> None:
    """Its row has its whole spec."""
    (change,) = agreed(JobSpec("alone")).changes(RandomIds())
    assert isinstance(change, NewJob)
    assert change.shared is None
    assert change.job == agreed(JobSpec("alone")).first


def test_members_share_their_submission() -> None:
    """It comes once, before the first of them; none of them has a copy of its large values."""
    spec = JobSpec("sweep", array="1-5", environment={"LARGE": "x" * 10_000})
    first, *rest = agreed(spec, told_s=60.0).changes(RandomIds())
    assert first == NewSpec(UID, spec)
    jobs = [change for change in rest if isinstance(change, NewJob)]
    assert [new.job.spec.job_id for new in jobs] == [f"sweep-{n}" for n in range(1, 6)]
    assert {new.shared.spec_id for new in jobs if new.shared} == {UID}
    assert all(new.job.spec.environment["LARGE"] is spec.environment["LARGE"] for new in jobs)
    assert {new.job.starts_by for new in jobs} == {NOW + timedelta(seconds=60)}


def test_a_long_submission_comes_in_parts() -> None:
    """Each of them bounded, all jobs once."""
    made = agreed(JobSpec("sweep", array="1-250"))
    parts = list(made.parts(RandomIds()))
    assert made.long
    assert [len(part) for part in parts] == [PART, PART, 51]
    assert len({new.job.uid for part in parts for new in part if isinstance(new, NewJob)}) == 250
    assert not agreed(JobSpec("short", array="1-100")).long


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec("alone"),
        JobSpec("sweep", array="1-3"),
        JobSpec("bend", replicas=4, replicas_min=2),
        JobSpec("grid", replicas=3, replicas_min=1, array="0,1"),
    ],
)
def test_what_jobs_wait_for_comes_with_the_last_that_waits(spec: JobSpec) -> None:
    """The rows that they wait for are locked from then on, and many jobs take their time. Spare
    members of an elastic job wait for nothing."""
    jobs = jobs_of(agreed(spec, WAIT))
    waiting = [new for new in jobs if new.job.blocked is not None]
    assert [new.waits for new in waiting] == [()] * (len(waiting) - 1) + [(WAIT,)]
    assert {new.job.blocked for new in waiting} == {UID}
    assert sum(len(new.waits) for new in jobs) == 1


async def test_long_submissions_take_turns() -> None:
    """One is written at a time; beyond the bound they are told to come again."""
    turns, at_work, most = LongSubmissions(), 0, 0

    async def work() -> None:
        nonlocal at_work, most
        async with turns.turn():
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(0)
            at_work -= 1

    done = await asyncio.gather(*(work() for _ in range(WAITING_MAX + 3)), return_exceptions=True)
    assert most == 1
    assert [type(one) for one in done].count(StoreDown) == 3
