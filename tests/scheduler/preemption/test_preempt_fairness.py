"""Preemptions between jobs of one priority class: by fair share and by service received."""

from __future__ import annotations

from dataclasses import replace

from core.job import S
from core.tenants import Tenant
from tests.scheduler.preemption.world import HOUR, NORMAL, URGENT, full, status

# --- between equals ---------------------------------------------------------------------


def test_a_tenant_that_has_had_less_takes_one_place_of_a_whale() -> None:
    """Once it has waited for its part of what the preemption costs: a restart, and the work since
    the last checkpoint."""
    world = full(4, NORMAL, small=Tenant("small"))
    world.waits("mine", NORMAL, tenant_id="small")
    world.cycle(after_s=5)
    assert not world.asked()
    world.cycle(after_s=20)
    assert len(world.asked()) == 1
    world.cycle(*world.preempted(), after_s=5)
    assert status(world, "mine") is S.ASSIGNED


def test_tenants_alike_do_not_take_turns() -> None:
    """Each has half: no job is preempted, however long the queues are."""
    world = full(4, NORMAL, ran_s=1200, other=Tenant("other"))
    for number in range(2):
        job = world.jobs[f"old-{number}"]
        spec = replace(job.spec, tenant_id="other")
        world.jobs[job.uid] = replace(job, spec=spec)
    for number in range(4):
        name = "other" if number % 2 else "default"
        world.waits(f"new-{number}", NORMAL, waited_s=600, tenant_id=name)
    world.cycle()
    assert not world.asked()


def test_urgent_jobs_of_two_tenants_are_both_served() -> None:
    """Neither has had anything: they do not wait for each other."""
    world = full(2, x=Tenant("x"), y=Tenant("y"))
    for name in ("x", "y"):
        world.waits(f"now-{name}", URGENT, tenant_id=name)
    world.cycle()
    assert len(world.asked()) == 2
    world.cycle(*world.preempted(), after_s=5)
    assert {status(world, f"now-{name}") for name in ("x", "y")} == {S.ASSIGNED}


def test_a_job_that_has_had_hours_is_preempted_for_a_new_one_of_its_tenant() -> None:
    """Least attained service: but only when it has saved its work, or the new one waited long."""
    world = full(1, NORMAL, ran_s=20 * HOUR, saved_s=None)
    world.waits("new", NORMAL)
    world.cycle(after_s=300)
    assert not world.asked()
    world.saved_s = 30.0
    world.cycle(after_s=11)
    assert world.asked() == {"old-0"}
