"""Preemptions for the head of the queue: for a job that then starts, or none at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.changes import JobMove, JobNote
from core.job import Job, S
from core.job_fields import JobSpec
from core.messages import StopJob
from core.queueing import QueueRule
from core.region_blocks import BlockKind, RegionBlock
from core.tenants import Tenant
from core.vm import Vm, VmState
from scheduler.preemption.preempt import ASK_S, LATE_S
from tests.builders import NOW, REGIONS, RULES, at, cluster
from tests.scheduler.preemption.world import LOW, URGENT, World, full, status

# --- the road of a preemption ------------------------------------------------------------


def test_a_higher_class_takes_the_place_of_a_lower_one() -> None:
    """Asked and told in one atomic batch; then it runs where the other did, whose budgets are
    untouched."""
    world = full(2)
    world.waits("now", URGENT)
    plan = world.cycle()
    (victim,) = world.asked()
    batch = next(u for u in plan.batches if any(isinstance(c, JobNote) for c in u))
    moved = [change.after.uid for change in batch if isinstance(change, JobMove)]
    assert moved == [victim]
    (stop,) = [message for message in world.told if isinstance(message, StopJob)]
    assert (stop.job_id, stop.grace_s) == (victim, 60.0)
    where = world.jobs[victim].lease
    world.cycle(*world.preempted(), after_s=5)
    assert world.jobs["now"].status is S.ASSIGNED
    assert world.jobs["now"].lease is not None
    assert where is not None
    assert world.jobs["now"].lease.vm_uid == where.vm_uid
    back = world.jobs[victim]
    assert back.status is S.QUEUED
    assert (back.failures, back.losses, back.preemptions, back.times_preempted) == (0, 0, 0, 1)


def test_both_timelines_hold_the_receipt() -> None:
    """Which job is preempted for which, why, by when, and what it costs, in the same words
    everywhere."""
    world = full(1)
    world.waits("now", URGENT)
    plan = world.cycle()
    changes = [change for batch in plan.batches for change in batch]
    (note,) = [change for change in changes if isinstance(change, JobNote)]
    assert (note.uid, note.entry.event) == ("now", "room_made")
    assert note.entry.reason.startswith("job old-0 gives 1 GPU to it, by 12:01:")
    (moved,) = [c for c in changes if isinstance(c, JobMove) and c.after.uid == "old-0"]
    words = moved.entries[0].reason
    assert words.startswith("gives 1 GPU to job now: class urgent goes before low")
    assert "60 s since its last checkpoint" in words
    assert moved.entries[0].data["made_room_for"] == "now"
    assert world.reasons["now"] == "waits for the places of jobs that are preempted or end"


def test_another_tenants_job_has_no_name_in_a_timeline() -> None:
    """Neither of the two tenants learns the other's name or what its jobs are called."""
    world = World(cluster("1xl4", vm_max=1), acme=Tenant("acme"), rival=Tenant("rival"))
    world.waits("merger", LOW, tenant_id="acme")
    world.run("merger", world.vm("vm-0"))
    world.waits("takeover", URGENT, tenant_id="rival")
    plan = world.cycle()
    changes = [change for batch in plan.batches for change in batch]
    (note,) = [change for change in changes if isinstance(change, JobNote)]
    (moved,) = [c for c in changes if isinstance(c, JobMove) and c.after.uid == "merger"]
    winner, victim = note.entry, moved.entries[0]
    assert winner.reason.startswith("job of another tenant gives 1 GPU to it")
    assert victim.reason.startswith("gives 1 GPU to job of another tenant: class urgent goes")
    assert "merger" not in f"{winner.reason} {winner.data}"
    assert "takeover" not in f"{victim.reason} {victim.data}"


def test_nobody_is_asked_twice_for_the_same_need() -> None:
    """While the first victim is on its way out, no other one has to go."""
    world = full(3)
    world.waits("now", URGENT)
    world.cycle()
    first = world.asked()
    for _ in range(3):
        world.cycle(after_s=15)
    assert world.asked() == first
    world.waits("too", URGENT)
    world.cycle(after_s=ASK_S)
    assert len(world.asked()) == 2


def test_a_gang_is_preempted_whole() -> None:
    """All of its members are asked in the same atomic batch; a gang that needs them all gets
    them."""
    world = World(cluster(vm_max=2))
    world.gang("old", 2, LOW)
    for rank in range(2):
        world.run(f"old-{rank}", world.vm(f"vm-{rank}"))
    world.gang("new", 2, URGENT)
    world.cycle()
    assert world.asked() == {"old-0", "old-1"}
    world.cycle(*world.preempted(), after_s=5)
    assert [world.jobs[f"new-{rank}"].status for rank in range(2)] == [S.ASSIGNED] * 2


def test_one_that_the_cloud_leaves_waiting_takes_a_place_as_well() -> None:
    """Admitted, no VM comes, and lower classes run: after a while one of them is preempted."""
    world = full(2)
    world.spec = cluster(vm_max=3)
    world.waits("now", URGENT)
    world.blocks = tuple(
        RegionBlock(
            region, "", "g2-standard-4", False, BlockKind.STOCKOUT, NOW, NOW, at(9e3), 1, ""
        )
        for region in REGIONS
    )
    world.cycle()
    assert status(world, "now") is S.PROVISIONING
    world.cycle(after_s=LATE_S / 2)
    assert not world.asked()
    world.cycle(after_s=LATE_S)
    assert len(world.asked()) == 1
    world.cycle(*world.preempted(), after_s=5)
    assert world.jobs["now"].status is S.ASSIGNED


# --- nobody for nothing -----------------------------------------------------------------


def test_a_job_that_would_not_fit_even_then_preempts_nothing() -> None:
    """Of four VMs one runs an urgent job: a gang of four can never have them all."""
    world = full(4)
    world.jobs["old-0"] = replace(
        world.jobs["old-0"], spec=replace(world.jobs["old-0"].spec, priority=URGENT)
    )
    world.gang("new", 4, URGENT)
    world.cycle()
    assert not world.asked()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda w: w.jobs.update({"now": replace(w.jobs["now"], spec=_only(w, "europe-west4"))}),
        lambda w: w.jobs.update({"now": replace(w.jobs["now"], spec=_cheap(w))}),
        lambda w: setattr(w, "spec", replace(w.spec, queue=QueueRule.FIFO)),
        lambda w: setattr(w, "spec", replace(w.spec, vm_max=0)),
        lambda w: w.tenants.update(default=Tenant("default", may_preempt=False)),
        lambda w: w.tenants.update(default=Tenant("default", preemptible=False)),
        lambda w: w.vms.update({u: replace(v, taken=True) for u, v in w.vms.items()}),
        lambda w: w.vms.update({u: _state(v, VmState.DRAINING) for u, v in w.vms.items()}),
        lambda w: w.jobs.update({j.uid: _fixed(j) for j in w.jobs.values() if j.lease}),
    ],
    ids=[
        "region",
        "price",
        "fifo",
        "above-limit",
        "may-not",
        "protected",
        "taken",
        "draining",
        "not-again",
    ],
)
def test_whatever_stands_in_the_way_no_job_is_preempted(spoil: Any) -> None:
    """No preemption that would not let the job start, or that somebody does not allow."""
    world = full(3)
    world.waits("now", URGENT)
    spoil(world)
    world.cycle()
    assert not world.asked()


def _only(world: World, region: str) -> JobSpec:
    return replace(world.jobs["now"].spec, regions=(region,))


def _cheap(world: World) -> JobSpec:
    return replace(world.jobs["now"].spec, max_usd_per_hour=0.01)


def _state(one: Vm, state: VmState) -> Vm:
    return replace(one, state=state)


def _fixed(job: Job) -> Job:
    return replace(job, spec=replace(job.spec, reschedulable=False))


def test_the_least_run_is_kept() -> None:
    """No job is preempted within ten minutes of its start, for any other."""
    world = full(1, ran_s=RULES.queue.least_run_s - 20)
    world.waits("now", URGENT)
    world.cycle()
    assert not world.asked()
    world.cycle(after_s=21)
    assert world.asked()


def test_on_shared_vms_jobs_with_adjacent_gpus_are_preempted() -> None:
    """Three GPUs are needed on one VM: two of one VM and one of another would not help."""
    world = World(cluster("4xl4", vm_max=2, share=True, cpus=48, memory_gb=192))
    one, two = world.vm("vm-1"), world.vm("vm-2")
    for slot in range(4):
        world.waits(f"a-{slot}", LOW)
        world.run(f"a-{slot}", one, slots=(slot,))
    for slot in range(2):
        world.waits(f"b-{slot}", LOW)
        world.run(f"b-{slot}", two, slots=(slot,))
    world.waits("firm", URGENT, gpu_count=2)
    world.run("firm", two, slots=(2, 3))
    world.waits("now", URGENT, gpu_count=3)
    world.cycle()
    asked = world.asked()
    assert len(asked) == 3
    assert all(uid.startswith("a-") for uid in asked)
    world.cycle(*world.preempted(), after_s=5)
    assert world.jobs["now"].status is S.ASSIGNED
