"""A job that failed waits before its next attempt, and everybody can see for what."""

from __future__ import annotations

from dataclasses import replace

from core.job import E, Job, Membership, S
from core.job_steps import EventFacts, advance
from core.messages import OutMessage
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.forecast.eligibility import line_up
from scheduler.forecast.pool import Seen, pool_of
from scheduler.forecast.run_times import unknown
from scheduler.plan_builder import PlanBuilder
from tests.builders import RULES, at, cluster, dice, job, snapshot, vm
from tests.scheduler.placement.gangs import World, holders, idle
from tests.scheduler.placement.test_elastic import running

RUNS = (E.ADMITTED, E.PLACED, E.STARTED)


def failed(number: int = 1, **spec: object) -> Job:
    """Its first attempt ended with exit code 3 a second ago."""
    runs = job(number, *RUNS, cluster="1xl4", retries=2, **spec)
    return advance(
        runs, E.EXITED_ERROR, at(1), RULES, reason="exit code 3", facts=EventFacts(exit_code=3)
    )


def cycle(second: float, *jobs: Job) -> tuple[PlanBuilder, dict[str, str]]:
    seen = snapshot(jobs, (vm("vm-8"), vm("vm-9")), now=at(second))
    plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b""))
    around = Circumstances({"1xl4": cluster()}, Silence(()), bus_steady=True)
    reasons = plan_jobs(plan, seen, around, dice())
    return plan, {word.uid: word.why for word in reasons}


def test_no_vm_is_taken_before_the_moment() -> None:
    """An idle VM is there, and goes to another job meanwhile; then the next attempt starts."""
    first, other = failed(), job(2)
    plan, reasons = cycle(10.9, first, other)
    assert plan.jobs[first.uid].status is S.QUEUED
    assert plan.jobs[other.uid].status is S.ASSIGNED
    assert reasons[first.uid] == "attempt 2 of 3 after exit code 3: starts at 12:00:11 UTC"
    plan, _ = cycle(11.0, first)
    after = plan.jobs[first.uid]
    assert (after.status, after.attempt, after.retry_at) == (S.ASSIGNED, 2, None)


def test_a_gang_waits_for_its_failed_member() -> None:
    """One member may not start yet: none does, and each says why."""
    both = [
        replace(each, gang=Membership("job-uid-0001", rank, 2))
        for rank, each in enumerate((job(1, replicas=2), failed(2, replicas=2)))
    ]
    plan, reasons = cycle(5.0, *both)
    assert {plan.jobs[each.uid].status for each in both} == {S.QUEUED}
    assert all("attempt 2 of 3 after exit code 3" in reasons[each.uid] for each in both)
    plan, _ = cycle(11.0, *both)
    assert {plan.jobs[each.uid].status for each in both} == {S.ASSIGNED}


def test_the_forecast_knows_the_moment() -> None:
    """A job with an idle VM before it is expected when its next attempt may start, not now."""
    spec, first = cluster(vm_max=2), failed()
    pool = pool_of(Seen(spec, at(2), (), (vm("vm-9"),)), unknown)
    line = line_up(spec, [first], pool, unknown, at(2))
    assert line.floors[first.uid].at(0.5) == 9.0
    assert line_up(spec, [first], pool, unknown, at(11)).floors == {}


def test_queue_time_out_counts_from_the_moment() -> None:
    """A job is not given up for not having started while it might not start; after that moment its
    time-out is what it asked for, also when it is admitted and sent back meanwhile."""
    first = failed(queue_timeout_s=5.0)
    plan, _ = cycle(10.9, first)
    assert plan.jobs[first.uid].status is S.QUEUED
    admitted = advance(first, E.ADMITTED, at(12), RULES)
    back = advance(admitted, E.WITHDRAWN, at(13), RULES)
    assert [each.deadline_at for each in (first, admitted, back)] == [at(16)] * 3
    plan, _ = cycle(16.0, back)
    assert plan.jobs[first.uid].status is S.FAILED


def test_a_member_of_an_elastic_job_waits_too() -> None:
    """The others run on; the failed one joins them again no sooner than at its moment."""
    first, other = running(1, 2, 2, retries=2)
    gone = advance(other, E.EXITED_ERROR, at(1), RULES, facts=EventFacts(exit_code=3))
    world = World([first, gone], [*holders([first]), *idle(2)])
    world.cycle(after_s=10.9)
    assert world.statuses("e") == [S.RUNNING, S.QUEUED]
    world.cycle(after_s=0.1)
    assert world.statuses("e") == [S.RUNNING, S.ASSIGNED]
