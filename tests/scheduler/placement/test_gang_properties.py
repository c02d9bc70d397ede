"""Gangs: whole, whatever happens."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from core.changes import JobMove
from core.job import E, S
from core.job_steps import advance
from core.messages import GoJob, Heartbeat, OutMessage
from core.vm import Vm
from scheduler.placement.single import place
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, RULES, cluster, dice, snapshot, vm
from tests.scheduler.placement.gangs import B, V, World, gang, holders, idle, obey, placed

# --- properties -------------------------------------------------------------------------


HAPPENS = st.sampled_from(["lose", "exit", "fail", "claim", "obey", "vms", "wait"])


@settings(max_examples=60)
@given(
    st.lists(st.tuples(HAPPENS, st.integers(0, 2)), max_size=25),
    st.booleans(),
    st.integers(0, 2),
)
def test_a_gang_is_whole_whatever_happens(
    story: list[tuple[str, int]], replaceable: bool, retries: int
) -> None:
    """No member is told to go before all have claimed; whole gangs are placed in one atomic batch
    and one region; whatever happened, once VMs and workers behave, the gang comes to an end."""
    world = World(gang("g", 3, replace_members=replaceable, retries=retries), idle(3))
    chance = random.Random(1)
    for happening, number in story:
        _one_cycle(world, happening, f"g-uid-{number}", chance)
    for round_ in range(200):
        world.vms |= {one.uid: one for one in _fresh(round_)} if round_ % 5 == 0 else {}
        _checked(world, *obey(world, chance), after_s=60)
        if all(job.status.final for job in world.jobs.values()):
            return
    raise AssertionError(f"the gang does not end: {world.statuses('g')}")


def _fresh(round_: int) -> list[Vm]:
    return [vm(f"fresh-{round_}-{n}", zone="us-central1-a") for n in range(3)]


def _one_cycle(world: World, happening: str, uid: str, chance: random.Random) -> None:
    job = world.jobs[uid]
    heartbeats: list[Heartbeat] = []
    match happening:
        case "lose" if job.lease is not None:
            world.lose(uid)
        case "exit" if job.status is S.RUNNING:
            heartbeats = [world.heartbeat(uid, B.COMPLETED, 0)]
        case "fail" if job.status in (S.STARTING, S.RUNNING):
            heartbeats = [world.heartbeat(uid, B.FAILED, 1)]
        case "claim" if job.status is S.ASSIGNED:
            heartbeats = [world.heartbeat(uid, B.FOUND_VM)]
        case "obey":
            heartbeats = obey(world, chance)
        case "vms":
            world.vms |= {one.uid: one for one in _fresh(1000 + len(world.vms))}
    _checked(world, *heartbeats, after_s=5)


def _checked(world: World, *heartbeats: Heartbeat, after_s: float) -> None:
    plan = world.cycle(*heartbeats, after_s=after_s)
    if any(isinstance(message, GoJob) for message in world.told):
        assert all(
            j.status.final or j.status in (S.STARTING, S.RUNNING) for j in world.jobs.values()
        )
    for batch in plan.batches:
        moves = [c for c in batch if isinstance(c, JobMove) and c.after.status is S.ASSIGNED]
        regions = {m.after.lease.region for m in moves if m.after.lease}
        assert len(regions) <= 1
        alone = len(moves) == 1 and world.jobs["g-uid-0"].status in (S.RUNNING, S.STARTING)
        assert not moves or len(moves) == 3 or alone


def test_a_member_that_does_not_stop_runs_nowhere_else_before_its_vm_is_deleted() -> None:
    """Told to stop and silent about it: the VM is deleted, and the member waits until nothing
    can run there."""
    members = placed(gang("g", 2), E.CLAIMED, E.STARTED)
    world = World(members, holders(members))
    world.lose("g-uid-1")
    world.cycle()
    grace_s = members[0].spec.stop_grace_s + RULES.timers.stop_margin_s
    world.cycle(after_s=grace_s)
    assert world.statuses("g") == [S.PREEMPTING, S.QUEUED]
    assert world.vms["uid-vm-0"].state is V.DELETING
    world.lose("g-uid-0")
    world.cycle()
    assert world.statuses("g")[0] in (S.QUEUED, S.PROVISIONING)


def test_a_gang_whose_member_moved_since_it_was_admitted_is_not_placed() -> None:
    """One admitted member beside one that already runs: nothing is placed, and nothing breaks."""
    first, second = gang("g", 2)
    (running,) = placed([first], E.CLAIMED, E.STARTED)
    admitted = advance(second, E.ADMITTED, NOW, RULES)
    seen = snapshot((running, admitted), (*holders([running]), vm("vm-9")))
    plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b""))
    place(plan, cluster(vm_max=8), dice(), [admitted.uid])
    assert plan.jobs[admitted.uid].status is S.PROVISIONING
