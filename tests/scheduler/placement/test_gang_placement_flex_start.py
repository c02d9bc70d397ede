"""Gangs whose VMs come together: how long they wait, whose the VMs are, what people are told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

import pytest

from core.job import E, Job, Membership, S
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, new_job
from core.messages import OutMessage
from core.names import request_for
from core.vm import Vm, VmState
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.placement.gang_placement import stands_in_for
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, REGIONS, RULES, at, cluster, dice, job, snapshot, vm

V = VmState
WAIT_S, HOLD_S = 7200.0, RULES.timers.gang_hold_s
SPEC = cluster(vm_max=8, flex_start_wait_s=WAIT_S)


def gang(uid: str = "a", size: int = 3, run_s: float = 3600.0) -> list[Job]:
    """Admitted, waiting for VMs."""
    found = []
    for rank in range(size):
        spec = JobSpec(f"{uid}.{rank}", command=("true",), replicas=size, max_runtime_s=run_s)
        made = new_job(f"{uid}-{rank}", spec, "1xl4", NOW, gang=Membership(f"{uid}-0", rank, size))
        found.append(
            advance(made, E.ADMITTED, NOW, RULES, facts=EventFacts(gang_region=REGIONS[0]))
        )
    return found


def bound(uid: str = "a", size: int = 3, **facts: object) -> list[Vm]:
    """Asked for by one request."""
    words = {"state": V.REQUESTED, "together": request_for(f"{uid}-0", "bcdf"), **facts}
    return [vm(f"{uid}-vm-{n}", **words) for n in range(size)]  # type: ignore[arg-type]


def ready(uid: str = "a", size: int = 3, ends_at: datetime | None = None) -> list[Vm]:
    return bound(uid, size, state=V.READY, boot_nonce="n", idle_since=NOW, ends_at=ends_at)


def cycle(
    jobs: Iterable[Job], vms: Iterable[Vm], now: datetime = NOW
) -> tuple[PlanBuilder, dict[str, str]]:
    """What is decided, and why each job waits, in words."""
    seen = snapshot(tuple(jobs), tuple(vms), (), now)
    plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b""))
    around = Circumstances({"1xl4": SPEC}, Silence(()), True)
    return plan, {note.uid: note.why for note in plan_jobs(plan, seen, around, dice())}


def statuses(plan: PlanBuilder) -> list[S]:
    return [found.status for found in plan.jobs.values()]


def test_a_gang_in_the_clouds_queue_waits_by_its_own_limit() -> None:
    """It waits as long as its cluster says, not as long as gangs hold VMs elsewhere."""
    plan, _ = cycle(gang(), bound(), at(HOLD_S + 1))
    assert statuses(plan) == [S.PROVISIONING] * 3
    plan, _ = cycle(gang(), bound(), at(WAIT_S))
    assert statuses(plan) == [S.QUEUED] * 3


def test_vms_do_not_idle_for_as_long_as_the_queue_may_take() -> None:
    """One of three is there and paid for, two wait in the cloud's queue: it is kept for as long as
    gangs hold VMs anywhere, from when it became idle."""
    idle = vm("here", V.READY, boot_nonce="n", idle_since=at(1000))
    vms = [idle, *bound(size=2)]
    plan, _ = cycle(gang(), vms, at(1000 + HOLD_S - 1))
    assert statuses(plan) == [S.PROVISIONING] * 3
    plan, _ = cycle(gang(), vms, at(1000 + HOLD_S))
    assert statuses(plan) == [S.QUEUED] * 3


def test_gang_that_looks_elsewhere_leaves_its_vms_to_others() -> None:
    """The planner counts them for the others, so they must get them."""
    elsewhere = [replace(member, gang_region=REGIONS[1]) for member in gang()]
    single = job(7, E.ADMITTED, max_runtime_s=60.0)
    plan, _ = cycle([single, *elsewhere], ready(size=1, ends_at=at(9000)))
    assert plan.jobs[single.uid].status is S.ASSIGNED


@pytest.mark.parametrize(("ends_s", "serves"), [(3600, True), (3599, False), (None, False)])
def test_nobody_yields_a_vm_that_ends_too_soon(ends_s: int | None, serves: bool) -> None:
    """Who waits could not use it: the work on it would be stopped for nothing."""
    (left,) = ready(size=1, ends_at=None if ends_s is None else at(ends_s))
    assert stands_in_for(job(7, max_runtime_s=3600.0), left, NOW) is serves


def test_what_was_given_at_the_last_moment_may_boot() -> None:
    """The wait limit ends while the VMs boot: they have the time that gangs hold VMs."""
    booting = bound(state=V.BOOTING, state_since=at(WAIT_S - 1))
    plan, _ = cycle(gang(), booting, at(WAIT_S + 60))
    assert statuses(plan) == [S.PROVISIONING] * 3
    plan, _ = cycle(gang(), booting, at(WAIT_S + HOLD_S))
    assert statuses(plan) == [S.QUEUED] * 3


def test_people_are_told_since_when() -> None:
    """Where the VMs were asked for, how many together, since when."""
    _, reasons = cycle(gang(), bound())
    told = f"asked for 3 VMs together in {REGIONS[0]}, queued there since 12:00 UTC"
    assert [words.startswith(told) for words in reasons.values()] == [True] * 3
    _, reasons = cycle(gang(), bound(state=V.BOOTING))
    assert all(words.startswith("waits for a VM in") for words in reasons.values())


def test_gang_gets_its_own_vms() -> None:
    """All three are there: all three start, though the end of the VMs is near."""
    plan, _ = cycle(gang(), ready(ends_at=at(60)))
    assert statuses(plan) == [S.ASSIGNED] * 3


@pytest.mark.parametrize("priority", [500, 900])
def test_nobody_takes_a_waiting_gangs_vm(priority: int) -> None:
    """Two of three are there: not even a job that goes first is placed on one of them."""
    single = job(7, E.ADMITTED, priority=priority, max_runtime_s=60.0)
    plan, _ = cycle([single, *gang()], ready(size=2, ends_at=at(9000)))
    assert set(statuses(plan)) == {S.PROVISIONING}


@pytest.mark.parametrize(
    ("run_s", "left_s", "placed"),
    [(3600.0, 3600, True), (3600.0, 3599, False), (7 * 86400.0, 6 * 86400, True)],
)
def test_what_a_gang_left_serves_jobs_that_end_in_time(
    run_s: float, left_s: int, placed: bool
) -> None:
    """A single job or another gang: its longest run must be over before the cloud ends the VM; who
    may run for a week is content with six days."""
    expected = S.ASSIGNED if placed else S.PROVISIONING
    vms = ready("gone", ends_at=at(left_s))
    single = job(7, E.ADMITTED, max_runtime_s=run_s)
    for jobs in ([single], gang("b", run_s=run_s)):
        plan, _ = cycle(jobs, vms)
        assert set(statuses(plan)) == {expected}


def test_unknown_end_serves_nobody() -> None:
    """It was given a moment ago, its gang went away."""
    plan, _ = cycle([job(7, E.ADMITTED, max_runtime_s=60.0)], ready("gone"))
    assert statuses(plan) == [S.PROVISIONING]
