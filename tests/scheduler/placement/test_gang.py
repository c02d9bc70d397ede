"""Gangs: all members or none, in one region, behind one barrier, and back together."""

from __future__ import annotations

from datetime import timedelta

import pytest

from core.changes import JobMove
from core.job import E, JobEvent, S
from core.job_fields import JobSpec
from core.job_steps import new_job
from core.messages import GoJob, OutMessage, StartJob, StopJob
from orchestrator.planning.plan_input import demand_of
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, REGIONS, RULES, cluster, dice, snapshot, vm
from tests.scheduler.placement.gangs import B, V, World, gang, holders, idle, placed

# --- together or not at all -------------------------------------------------------------


def test_all_members_are_placed_in_one_atomic_batch() -> None:
    """One atomic batch holds every lease: the store takes all of them or none."""
    world = World(gang("g", 3), idle(3, address="10.0.0.7"))
    plan = world.cycle()
    assert world.statuses("g") == [S.ASSIGNED] * 3
    last = [change for change in plan.batches[-1] if isinstance(change, JobMove)]
    assert len(last) == 3
    starts = [message for message in world.told if isinstance(message, StartJob)]
    assert [(s.rank, s.world_size, s.barrier) for s in starts] == [(n, 3, True) for n in range(3)]
    assert len({s.leader_address for s in starts}) == 1
    assert starts[0].leader_address.startswith("10.0.0.7:2")


def test_part_of_the_vms_is_not_enough() -> None:
    """Two VMs for a gang of three: nobody starts, and later jobs do not get them."""
    small = new_job("small", JobSpec("small", command=("true",)), "1xl4", NOW)
    world = World([*gang("g", 3, NOW - timedelta(hours=1)), small], idle(2))
    world.cycle()
    assert world.statuses("g") == [S.PROVISIONING] * 3
    assert world.jobs["small"].status is S.PROVISIONING
    assert not world.told


def test_vms_of_two_regions_are_no_gang() -> None:
    """The members of a gang are in one region, and in one zone if they ask for it."""
    apart = [*idle(1), *idle(1, REGIONS[1])]
    world = World(gang("g", 2), apart)
    world.cycle()
    assert world.statuses("g") == [S.PROVISIONING] * 2
    zones = [vm("a", zone="us-central1-a"), vm("b", zone="us-central1-b")]
    loose, strict = World(gang("g", 2), zones), World(gang("g", 2, same_zone=True), zones)
    loose.cycle(), strict.cycle()
    assert loose.statuses("g") == [S.ASSIGNED] * 2
    assert strict.statuses("g") == [S.PROVISIONING] * 2


def test_a_gang_without_room_is_not_admitted() -> None:
    """All of it fits the limit, or none of it is demand."""
    world = World(gang("g", 3), vm_max=2)
    world.cycle()
    assert world.statuses("g") == [S.QUEUED] * 3


def test_a_gang_is_told_how_many_vms_it_needs() -> None:
    """At once; and that it never starts, if the cluster may not have as many."""
    jobs = (*gang("first", 2), *gang("g", 2))
    for vm_max, words in (
        (2, "needs 2 VMs at once: cluster 1xl4 is at its limit of 2 VMs"),
        (1, "needs 2 VMs at once, and cluster 1xl4 may have 1; it starts when vm_max is raised"),
    ):
        seen = snapshot(jobs)
        plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b""))
        around = Circumstances({"1xl4": cluster(vm_max=vm_max)}, Silence(()), True)
        reasons = {why.uid: why.why for why in plan_jobs(plan, seen, around, dice())}
        assert reasons[jobs[2].uid].startswith(words)


def test_all_vm_requests_name_the_same_region() -> None:
    """Its VMs come up together: where most of them wait or come already."""
    coming = [vm(f"b{n}", V.BOOTING, region=REGIONS[1]) for n in range(2)]
    world = World(gang("g", 3), coming)
    world.cycle()
    requests = demand_of("1xl4", world.jobs.values()).requests
    assert [request.regions for request in requests] == [(REGIONS[1],)] * 3


# --- the barrier ------------------------------------------------------------------------


def test_nobody_goes_before_the_last_has_claimed() -> None:
    """`go` is told to all when the last one is there."""
    members = placed(gang("g", 3))
    world = World(members, holders(members))
    first, second, third = (member.uid for member in members)
    world.cycle(world.heartbeat(first, B.FOUND_VM), world.heartbeat(second, B.FOUND_VM))
    assert not world.told
    world.cycle(world.heartbeat(third, B.FOUND_VM))
    assert [type(message) for message in world.told] == [GoJob] * 3
    world.cycle()
    assert not world.told, "told once"
    world.cycle(world.heartbeat(first, B.FOUND_VM))
    assert [message.vm_name for message in world.told] == ["vm-0"], (
        "a member that still waits is told"
    )


# --- back together ----------------------------------------------------------------------


@pytest.mark.parametrize("events", [(), (E.CLAIMED,), (E.CLAIMED, E.STARTED)])
def test_a_lost_member_takes_the_others_back(events: tuple[JobEvent, ...]) -> None:
    """They are told to stop, wherever they are, and are placed again when all of them wait."""
    members = placed(gang("g", 3), *events)
    world = World(members, holders(members))
    world.lose("g-uid-2")
    world.cycle()
    assert world.statuses("g") == [S.PREEMPTING, S.PREEMPTING, S.QUEUED]
    assert [type(message) for message in world.told] == [StopJob] * 2
    world.vms |= {one.uid: one for one in idle(3)}
    world.cycle(world.heartbeat("g-uid-0", B.STOPPED))
    assert world.statuses("g") == [S.QUEUED, S.PREEMPTING, S.QUEUED]
    world.cycle(world.heartbeat("g-uid-1", B.STOPPED))
    assert world.statuses("g") == [S.ASSIGNED] * 3
    assert {world.jobs[f"g-uid-{n}"].attempt for n in range(3)} == {2}


def test_a_member_can_be_replaced_if_the_job_allows_it() -> None:
    """The others run on; the new one goes where they are and is told of the same leader."""
    members = placed(gang("g", 3, replace_members=True), E.CLAIMED, E.STARTED)
    world = World(members, holders(members))
    world.lose("g-uid-2")
    world.vms |= {one.uid: one for one in [*idle(1, REGIONS[1]), *idle(1)]}
    world.cycle()
    assert world.statuses("g") == [S.RUNNING, S.RUNNING, S.ASSIGNED]
    lease = world.jobs["g-uid-2"].lease
    assert lease is not None
    assert lease.region == REGIONS[0]
    (start,) = world.told
    assert isinstance(start, StartJob)
    assert (start.rank, start.leader_address.partition(":")[0]) == (2, "vm-0")
    world.cycle(world.heartbeat("g-uid-2", B.FOUND_VM))
    assert [type(message) for message in world.told] == [GoJob]


def test_a_lost_leader_is_never_replaced() -> None:
    """Everybody knows its address: without it all begin again."""
    members = placed(gang("g", 2, replace_members=True), E.CLAIMED, E.STARTED)
    world = World(members, holders(members))
    world.lose("g-uid-0")
    world.cycle()
    assert world.statuses("g") == [S.QUEUED, S.PREEMPTING]


# --- the end ----------------------------------------------------------------------------


def test_the_leaders_end_is_the_gangs() -> None:
    """Members that still run get SIGTERM; the gang's result is rank 0's."""
    members = placed(gang("g", 3), E.CLAIMED, E.STARTED)
    world = World(members, holders(members))
    world.cycle(world.heartbeat("g-uid-0", B.COMPLETED, 0))
    assert world.statuses("g") == [S.SUCCEEDED, S.STOPPING, S.STOPPING]
    world.cycle(world.heartbeat("g-uid-1", B.STOPPED), world.heartbeat("g-uid-2", B.COMPLETED, 0))
    assert world.statuses("g") == [S.SUCCEEDED, S.CANCELLED, S.SUCCEEDED]


def test_a_member_that_fails_for_good_fails_the_gang() -> None:
    """The reason names it; one that was done already stays done."""
    members = placed(gang("g", 3), E.CLAIMED, E.STARTED)
    world = World(members, holders(members))
    world.cycle(world.heartbeat("g-uid-1", B.COMPLETED, 0))
    assert world.statuses("g") == [S.RUNNING, S.SUCCEEDED, S.RUNNING]
    world.cycle(world.heartbeat("g-uid-2", B.FAILED, 3))
    assert world.statuses("g") == [S.STOPPING, S.SUCCEEDED, S.FAILED]
    world.cycle(world.heartbeat("g-uid-0", B.STOPPED))
    assert world.jobs["g-uid-0"].status is S.FAILED
    assert world.jobs["g-uid-0"].reason == "member g.2 ended FAILED: exit code 3"


def test_a_gang_cannot_begin_again_without_a_member_that_is_done() -> None:
    """A member that must run again would wait for one that never comes: the gang fails, and says
    so."""
    members = placed(gang("g", 2), E.CLAIMED, E.STARTED)
    world = World(members, holders(members))
    world.cycle(world.heartbeat("g-uid-1", B.COMPLETED, 0))
    world.lose("g-uid-0")
    world.cycle()
    assert world.statuses("g") == [S.FAILED, S.SUCCEEDED]
    assert "g must begin again, but g.1 has ended already" in world.jobs["g-uid-0"].reason
