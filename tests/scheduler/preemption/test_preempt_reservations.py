"""Places that a preemption frees, and capacity set aside for a gang, are kept for their job."""

from __future__ import annotations

from core.job import S
from scheduler.preemption.preempt import LATE_S
from tests.builders import REGIONS, cluster
from tests.scheduler.preemption.world import HOUR, LOW, NORMAL, URGENT, World, full

# --- the reservation of the job that cannot start -----------------------------------------


def test_only_those_that_end_in_time_pass_a_gang_without_room() -> None:
    """The gang waits for a third VM; one that is known to take a minute uses what is free."""
    world = full(1, NORMAL)
    world.spec = cluster(vm_max=4)
    world.waits("older", NORMAL)
    world.run("older", world.vm("vm-9"), 3 * HOUR)
    world.gang("big", 3, waited_s=HOUR)
    world.waits("long", NORMAL)
    world.waits("brief", NORMAL)
    world.short = {"brief"}
    world.cycle()
    assert [world.jobs[f"big-{rank}"].status for rank in range(3)] == [S.QUEUED] * 3
    assert world.jobs["long"].status is S.QUEUED
    assert world.jobs["brief"].status is S.PROVISIONING
    assert "waits behind the reservation of job big until about 1" in world.reasons["long"]
    assert world.reasons["big-0"].startswith("has a reservation")


def test_what_is_spare_is_for_everybody() -> None:
    """Two VMs become free at once and the gang needs one more: the other is anybody's, once."""
    world = World(cluster(vm_max=5))
    world.gang("old", 2)
    for rank in range(2):
        world.run(f"old-{rank}", world.vm(f"vm-{rank}"))
    world.gang("big", 4, waited_s=HOUR)
    world.waits("one", NORMAL)
    world.waits("two", NORMAL)
    world.cycle()
    statuses = sorted(world.jobs[name].status for name in ("one", "two"))
    assert statuses == [S.PROVISIONING, S.QUEUED]


def test_a_shared_vm_is_kept_for_the_job_that_needs_all_of_it() -> None:
    """Small jobs fill the other VM; jobs that end in time may use the kept one as well."""
    world = World(cluster("4xl4", vm_max=2, share=True, cpus=48, memory_gb=192))
    one, two = world.vm("vm-1"), world.vm("vm-2")
    for number, (where, ran_s) in enumerate([(one, HOUR), (two, 40 * HOUR)]):
        world.waits(f"old-{number}", NORMAL, gpu_count=2)
        world.run(f"old-{number}", where, ran_s, slots=(0, 1))
    world.waits("big", NORMAL, waited_s=HOUR, gpu_count=4)
    for number in range(4):
        world.waits(f"small-{number}", NORMAL)
    world.short = {"small-3"}
    world.saved_s = None
    world.cycle()
    found = {uid: job.lease.vm_uid for uid, job in world.jobs.items() if job.lease is not None}
    assert {found.get(f"small-{n}") for n in range(4)} <= {two, one, None}
    assert [uid for uid, vm_uid in found.items() if vm_uid == one and uid != "old-0"] in (
        [],
        ["small-3"],
    )
    assert sum(vm_uid == two for vm_uid in found.values()) == 3


def _two_beside_each_other(world: World, vm_uid: str) -> None:
    for number in range(2):
        world.waits(f"old-{number}", LOW, gpu_count=2)
        world.run(f"old-{number}", vm_uid, slots=(2 * number, 2 * number + 1))


def test_a_job_gets_the_place_that_was_freed_for_it() -> None:
    """There is room in a region that it may not use: so it is admitted, and waits all the same."""
    world = World(cluster("4xl4", vm_max=2, share=True, cpus=48, memory_gb=192))
    one, _ = world.vm("vm-1"), world.vm("vm-2", REGIONS[1])
    _two_beside_each_other(world, one)
    world.waits("big", URGENT, gpu_count=4, regions=(REGIONS[0],))
    world.cycle()
    world.cycle(after_s=LATE_S + 10)
    assert world.asked() == {"old-0", "old-1"}
    first, second = world.preempted()
    world.cycle(first, after_s=10)
    world.cycle(second, after_s=10)
    assert world.jobs["big"].lease is not None


def test_gang_does_not_take_what_was_freed_for_another() -> None:
    """The first piece would do for its members, and comes before the second."""
    world = World(cluster("4xl4", vm_max=3, share=True, cpus=48, memory_gb=192))
    one, two, three = (world.vm(f"vm-{n}") for n in range(3))
    _two_beside_each_other(world, one)
    for uid, there, slots in (("all", two, (0, 1, 2, 3)), ("one", three, (0,))):
        world.waits(uid, URGENT, gpu_count=len(slots))
        world.run(uid, there, slots=slots)
    world.waits("big", URGENT, gpu_count=4)
    world.cycle()
    world.gang("gang", 2)
    first, second = world.preempted()
    world.cycle(first, after_s=5)
    world.cycle(second, after_s=5)
    assert world.jobs["big"].lease is not None
