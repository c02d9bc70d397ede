"""Elastic jobs: they start with what they need, grow into spare room, and shrink first."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from core.changes import JobNote
from core.job import E, Job, Lease, S
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, new_job
from core.messages import Heartbeat, HeartbeatStatus, ResizeJob, StartJob, StopJob
from core.region_blocks import BlockKind, RegionBlock
from core.vm import Vm, VmState
from orchestrator.planning.plan_input import demand_of
from scheduler.placement.elastic import LATE_S
from scheduler.placement.elastic_growth import Stretch, grow
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, REGIONS, RULES, vm
from tests.scheduler.placement.gangs import World, gang, holders, idle, obey, placed

B, V = HeartbeatStatus, VmState
PAUSE_S = RULES.queue.grow_pause_s


def elastic(name: str, least: int, most: int, now: datetime = NOW, **spec: object) -> list[Job]:
    return gang(name, most, now, replicas_min=least, **spec)


def running(least: int, most: int, now_on: int, **spec: object) -> list[Job]:
    """An elastic job of which so many members run, since some time ago."""
    members = elastic("e", least, most, NOW, **spec)
    there = placed(members[:now_on], E.CLAIMED, E.STARTED)
    old = NOW - timedelta(hours=1)
    return [replace(m, status_since=old, started_at=old) for m in there] + members[now_on:]


def plain(name: str, **spec: object) -> Job:
    words = {"command": ("true",), **spec}
    return new_job(name, JobSpec(job_id=name, **words), "1xl4", NOW)  # type: ignore[arg-type]


def world(jobs: Iterable[Job], vms: Iterable[Vm] = (), vm_max: int = 8) -> World:
    """The members' VMs are there besides."""
    found = list(jobs)
    return World(found, [*holders(found), *vms], vm_max)


def notes(plan: PlanBuilder) -> list[str]:
    changes = [change for batch in plan.batches for change in batch]
    return [c.entry.reason for c in changes if isinstance(c, JobNote)]


Q, P, A, R = S.QUEUED, S.PROVISIONING, S.ASSIGNED, S.RUNNING


# --- the start --------------------------------------------------------------------------


def test_it_starts_with_as_many_as_it_needs() -> None:
    """Two VMs are enough for 2 to 4; the others are in no queue and nobody's demand."""
    here = World(elastic("e", 2, 4), idle(3))
    here.cycle()
    assert here.statuses("e") == [A, A, Q, Q]
    starts = [m for m in here.told if isinstance(m, StartJob)]
    assert [(s.rank, s.world_size, s.barrier) for s in starts] == [(0, 2, True), (1, 2, True)]
    size = starts[0].size
    assert size is not None
    assert (size.least, size.most, [p.rank for p in size.members]) == (2, 4, [0, 1])
    assert not demand_of("1xl4", here.jobs.values()).requests


def test_a_job_that_forms_is_not_told_of_parts_of_itself() -> None:
    """Its members run one after the other; nobody has heard of a size that is none."""
    members = placed(elastic("e", 2, 3)[:2], E.CLAIMED)
    here = world([*members, elastic("e", 2, 3)[2]], vm_max=2)
    here.cycle(here.heartbeat("e-uid-0", B.RUNNING))
    assert not [m for m in here.told if isinstance(m, ResizeJob)]
    plan = here.cycle(here.heartbeat("e-uid-1", B.RUNNING))
    assert notes(plan) == ["begins with 2"]


def test_parked_members_are_in_no_queue() -> None:
    """They have no place in it, and time out with nothing but the job itself."""
    members = elastic("e", 1, 3, queue_timeout_s=10.0)
    assert [m.out_of_queue for m in members] == [False, True, True]
    here = World(members, vm_max=0)
    here.cycle(after_s=9)
    assert here.statuses("e") == [Q, Q, Q]
    here.cycle(after_s=1)
    assert here.statuses("e") == [S.FAILED, S.FAILED, S.FAILED]


def test_too_few_vms_are_not_enough() -> None:
    """What it needs comes together or not at all."""
    here = World(elastic("e", 2, 4), idle(1))
    here.cycle()
    assert here.statuses("e") == [P, P, Q, Q]


# --- larger -----------------------------------------------------------------------------


def test_it_grows_into_room_that_nobody_waits_for() -> None:
    """Members join where the others are; those for whom there is no VM yet are demand there."""
    here = world(running(2, 5, 2), [*idle(1), *idle(1, REGIONS[1])], vm_max=4)
    here.cycle()
    assert here.statuses("e") == [R, R, A, P, Q]
    (start,) = [m for m in here.told if isinstance(m, StartJob)]
    assert (start.rank, start.world_size, start.barrier, start.region) == (2, 3, False, REGIONS[0])
    requests = demand_of("1xl4", here.jobs.values()).requests
    assert [request.regions for request in requests] == [(REGIONS[0],)]


def test_the_others_are_told_when_the_new_one_runs() -> None:
    """Not before: a member that is placed may never come."""
    here = world(running(2, 3, 2), idle(1))
    here.cycle()
    here.cycle(here.heartbeat("e-uid-2", B.FOUND_VM))
    assert not [m for m in here.told if isinstance(m, ResizeJob)]
    plan = here.cycle(here.heartbeat("e-uid-2", B.RUNNING))
    told = [m for m in here.told if isinstance(m, ResizeJob)]
    assert [m.vm_name for m in told] == ["vm-0", "vm-1", f"{REGIONS[0]}-0"]
    assert [p.rank for p in told[0].size.members] == [0, 1, 2]
    assert notes(plan) == ["grew to 3"]
    here.cycle()
    assert not here.told, "told once"


def test_it_does_not_grow_again_at_once() -> None:
    """Each new size makes its processes form their group anew."""
    fresh = [replace(m, status_since=NOW) if m.lease else m for m in running(1, 3, 1)]
    here = world(fresh, idle(2))
    here.cycle()
    assert here.statuses("e") == [R, Q, Q]
    here.cycle(after_s=PAUSE_S)
    assert here.statuses("e") == [R, A, A]


def test_growing_never_takes_from_a_waiting_job() -> None:
    """The last VM is the waiting job's, and a gang without room keeps it from growing, too."""
    here = world([*running(1, 3, 1), plain("other")], idle(1), vm_max=2)
    here.cycle()
    assert (here.statuses("e"), here.jobs["other"].status) == ([R, Q, Q], A)
    here = world([*running(1, 3, 1), *gang("g", 3)], idle(1), vm_max=3)
    here.cycle()
    assert (here.statuses("e"), here.statuses("g")) == ([R, Q, Q], [Q, Q, Q])


def test_a_member_without_a_vm_leaves_its_place_to_others() -> None:
    """It was demand while nobody waited."""
    here = world(running(1, 3, 1), vm_max=2)
    here.cycle()
    assert here.statuses("e") == [R, P, Q]
    here.jobs["other"] = plain("other")
    here.cycle(after_s=1)
    assert (here.statuses("e"), here.jobs["other"].status) == ([R, Q, Q], P)


def test_a_blocked_region_is_not_asked_for_more() -> None:
    """VMs that are there may be had; others are not waited for."""
    block = RegionBlock(
        *(REGIONS[0], "", "g2-standard-4", False, BlockKind.STOCKOUT),
        *(NOW, NOW, NOW + timedelta(minutes=5), 1, "no capacity"),
    )
    here = world(running(1, 4, 1), idle(1))
    here.blocks = (block,)
    here.cycle()
    assert here.statuses("e") == [R, A, Q, Q]


def test_two_jobs_share_what_is_spare() -> None:
    """Growth goes where it gains most: by turns between two that are alike."""
    here = world([*running(1, 5, 1), *twin(running(1, 5, 1))], idle(4), vm_max=6)
    here.cycle()
    assert here.statuses("e") == [R, A, A, Q, Q]
    assert here.statuses("f") == [R, A, A, Q, Q]


def twin(members: Iterable[Job]) -> list[Job]:
    """The same job once more, on VMs of its own."""
    return [
        replace(
            m,
            uid=m.uid.replace("e-", "f-"),
            spec=replace(m.spec, job_id=m.spec.job_id.replace("e", "f")),
            gang=replace(m.gang, uid="f-uid-0") if m.gang else None,
            lease=m.lease
            and replace(
                m.lease,
                lease_id=f"f-{m.lease.lease_id}",
                vm_name=f"f-{m.lease.vm_name}",
                vm_uid=f"uid-f-{m.lease.vm_name}",
            ),
        )
        for m in members
    ]


def test_who_grew_first_does_not_keep_it_all() -> None:
    """A member that is worth more to another job goes there, one after the other, once it has run
    for a while."""
    here = world([*running(1, 5, 5), *twin(running(1, 5, 1))], vm_max=6)
    here.cycle()
    assert here.statuses("e") == [R, R, R, S.PREEMPTING, S.PREEMPTING]
    assert here.told[0].reason == "gives its VM to job f, which gains more by it"  # type: ignore[union-attr]
    here.cycle(after_s=PAUSE_S)
    assert here.statuses("e") == [R, R, R, S.PREEMPTING, S.PREEMPTING]
    here.cycle(here.heartbeat("e-uid-4", B.STOPPED), here.heartbeat("e-uid-3", B.STOPPED))
    assert here.statuses("f") == [R, A, A, Q, Q]
    young = [replace(m, started_at=NOW) for m in running(1, 5, 5)]
    here = world([*young, *twin(running(1, 5, 1))], vm_max=6)
    here.cycle()
    assert here.statuses("e") == [R] * 5


# --- smaller ----------------------------------------------------------------------------


def test_the_highest_rank_gives_way_to_who_waits() -> None:
    """One VM is asked for, once, and the others learn of it at once."""
    here = world([*running(1, 4, 4), plain("other")], vm_max=4)
    plan = here.cycle()
    assert here.statuses("e") == [R, R, R, S.PREEMPTING]
    (stop,) = [m for m in here.told if isinstance(m, StopJob)]
    assert (stop.vm_name, stop.reason) == ("vm-3", "gives its VM to job other")
    assert len([m for m in here.told if isinstance(m, ResizeJob)]) == 3
    assert notes(plan) == ["shrank to 3: e.3 (gives its VM to job other)"]
    here.cycle(after_s=1)
    assert here.statuses("e") == [R, R, R, S.PREEMPTING], "nobody is asked twice for one need"
    here.cycle(here.heartbeat("e-uid-3", B.STOPPED))
    assert (here.statuses("e"), here.jobs["other"].status) == ([R, R, R, Q], A)
    assert here.jobs["e-uid-3"].parked


def test_what_it_needs_stays() -> None:
    """A gang of three cannot have the two that an elastic job can do without."""
    here = world([*running(2, 4, 4), *gang("g", 3)], vm_max=4)
    here.cycle()
    assert here.statuses("e") == [R, R, R, R]
    here = world([*running(2, 4, 4), *gang("g", 2)], vm_max=4)
    here.cycle()
    assert here.statuses("e") == [R, R, S.PREEMPTING, S.PREEMPTING]


def test_it_shrinks_before_others_are_preempted() -> None:
    """A gang of a higher class that needs two VMs takes the spare one first, then one victim's."""
    old = NOW - timedelta(hours=1)
    members = running(1, 2, 2)
    others = []
    for name in ("x", "y"):
        job = plain(name)
        lease = Lease(f"l-{name}", f"vm-{name}", f"uid-vm-{name}", REGIONS[0], "", (0,))
        for event in (E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED):
            given_lease = lease if event is E.PLACED else None
            job = advance(job, event, old, RULES, facts=EventFacts(lease=given_lease))
        others.append(job)
    here = world([*members, *others, *gang("g", 2, priority=1500)], vm_max=4)
    here.cycle()
    assert here.jobs["e-uid-1"].status is S.PREEMPTING
    assert sorted(here.jobs[uid].status for uid in ("e-uid-0", "x", "y")) == [S.PREEMPTING, R, R]


def test_a_vm_that_the_job_may_not_use_is_not_freed_for_it() -> None:
    """Nobody shrinks for nothing."""
    far = plain("far", regions=(REGIONS[1],))
    here = world([*running(1, 2, 2), far], vm_max=2)
    here.cycle()
    assert here.statuses("e") == [R, R]


def test_a_job_for_which_no_vm_comes_gets_one() -> None:
    """There is room by the limit, but the cloud has nothing: surplus gives way after a while."""
    other = plain("other")
    here = world([*running(1, 3, 3), other], vm_max=8)
    here.cycle()
    assert here.jobs["other"].status is P
    here.cycle(after_s=LATE_S - 1)
    assert here.statuses("e") == [R, R, R]
    here.cycle(after_s=1)
    assert here.statuses("e") == [R, R, S.PREEMPTING]
    here.cycle(here.heartbeat("e-uid-2", B.STOPPED), after_s=1)
    assert here.jobs["other"].status is A


def test_one_that_is_not_reschedulable_keeps_its_size() -> None:
    """It is never preempted, so nothing is lent to it either."""
    here = world([*running(1, 3, 2, reschedulable=False), plain("other")], vm_max=2)
    here.cycle()
    assert here.statuses("e") == [R, R, Q]


# --- losses and ends --------------------------------------------------------------------


def test_a_lost_member_makes_it_smaller() -> None:
    """The others run on as long as they are enough, and it comes back when there is room."""
    here = world(running(2, 4, 3), vm_max=2)
    here.lose("e-uid-1")
    plan = here.cycle()
    assert here.statuses("e") == [R, Q, R, Q]
    assert notes(plan) == ["shrank to 2: e.1 (vm-1 was lost)"]
    here.vm_max = 8
    here.vms |= {one.uid: one for one in idle(1)}
    here.cycle(after_s=PAUSE_S)
    assert here.statuses("e") == [R, A, R, P]


def test_fewer_than_it_needs_begin_again() -> None:
    """All of them, as a gang does; spare ones wait for nobody."""
    here = world(running(2, 4, 3), vm_max=3)
    here.lose("e-uid-1")
    here.lose("e-uid-2")
    here.cycle()
    assert here.statuses("e") == [S.PREEMPTING, Q, Q, Q]
    here.vms |= {one.uid: one for one in idle(3)}
    here.cycle(here.heartbeat("e-uid-0", B.STOPPED), after_s=1)
    assert here.statuses("e") == [A, A, Q, Q]


def test_growth_is_counted_in_whole_members() -> None:
    """Of 21 spare GPUs a job with eight on each VM has two VMs' worth."""
    wide = Stretch("a", 8, 8, 80, 600.0, each=8)
    assert grow([wide], 21) == {"a": 24}
    assert grow([replace(wide, usual=64)], 21) == {"a": 24}
    assert grow([replace(wide, usual=64)], 80) == {"a": 80}


def test_a_lost_leader_takes_all_back() -> None:
    """Everybody knows its address."""
    here = world(running(1, 3, 3))
    here.lose("e-uid-0")
    here.cycle()
    assert here.statuses("e") == [Q, S.PREEMPTING, S.PREEMPTING]


def test_a_member_that_fails_for_good_is_done_without() -> None:
    """Until fewer are left than it needs: then the job fails, and says by whom."""
    here = world(running(2, 3, 3), vm_max=3)
    here.cycle(here.heartbeat("e-uid-2", B.FAILED, 3))
    assert here.statuses("e") == [R, R, S.FAILED]
    here.cycle(here.heartbeat("e-uid-1", B.FAILED, 4), after_s=1)
    assert here.statuses("e") == [S.STOPPING, S.FAILED, S.FAILED]
    assert here.jobs["e-uid-0"].reason == (
        "1 of 2 members are left: e.1 ended FAILED (exit code 4)"
    )


def test_the_end_of_its_first_member_is_the_end() -> None:
    """Running members get SIGTERM, waiting ones end with it."""
    here = world(running(1, 4, 2), vm_max=2)
    here.cycle(here.heartbeat("e-uid-0", B.COMPLETED, 0))
    assert here.statuses("e") == [S.SUCCEEDED, S.STOPPING, S.CANCELLED, S.CANCELLED]


def test_a_lost_vm_ends_one_that_is_not_reschedulable() -> None:
    """It does not begin again."""
    here = world(running(1, 2, 1, reschedulable=False))
    here.lose("e-uid-0")
    here.cycle()
    assert here.statuses("e") == [S.FAILED, S.FAILED]
    assert "reschedulable is false" in here.jobs["e-uid-0"].reason


# --- whatever happens -------------------------------------------------------------------

HAPPENS = st.sampled_from(["lose", "exit", "fail", "obey", "vms", "plain", "wait"])
AT_WORK = (S.ASSIGNED, S.STARTING, S.RUNNING)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(HAPPENS, st.integers(0, 3)), max_size=30),
    st.integers(1, 3),
    st.booleans(),
)
def test_its_size_is_right_whatever_happens(
    story: list[tuple[str, int]], least: int, replaceable: bool
) -> None:
    """Never fewer than it needs without beginning again, never more than it may have; the highest
    ranks give way; nobody grows while another waits; and in the end it ends."""
    here = World(elastic("e", least, 4, replace_members=replaceable, retries=1), idle(4), vm_max=4)
    chance = random.Random(len(story))
    for number, (happening, rank) in enumerate(story):
        _happen(here, happening, f"e-uid-{rank}", number)
    for round_ in range(300):
        if round_ % 5 == 0:
            _vms(here, f"late-{round_}")
        _checked(here, *_obey(here, chance), after_s=60)
        if all(job.status.final for job in here.jobs.values()):
            return
    raise AssertionError(f"it does not end: {here.statuses('e')}")


def _vms(here: World, name: str) -> None:
    """What is being deleted goes; new ones come in its place, within the limit."""
    gone = {uid for uid, one in here.vms.items() if one.state in (V.DELETING, V.GONE)}
    late = {uid: replace(here.vms[uid], state=V.GONE) for uid in gone if here.vms[uid].leases}
    here.vms = {**{uid: one for uid, one in here.vms.items() if uid not in gone}, **late}
    for number in range(here.vm_max - len(here.vms)):
        made = vm(f"{name}-{number}", zone="us-central1-a")
        here.vms[made.uid] = made


def _obey(here: World, chance: random.Random | None) -> list[Heartbeat]:
    """Workers that do as they are told. A member without a barrier before it runs at once."""
    heartbeats = []
    going = here.jobs["e-uid-0"].status is R
    for heartbeat in obey(here, chance or random.Random(1)):
        job = next(
            j for j in here.jobs.values() if j.lease and j.lease.lease_id == heartbeat.lease_id
        )
        runs = job.status is S.STARTING and (job.gang is None or going)
        if chance is not None or heartbeat.status is not B.COMPLETED:
            heartbeats.append(replace(heartbeat, status=B.RUNNING) if runs else heartbeat)
    return heartbeats


def _happen(here: World, happening: str, uid: str, number: int) -> None:
    job = here.jobs[uid]
    heartbeats: list[Heartbeat] = []
    match happening:
        case "lose" if job.lease is not None:
            here.lose(uid)
        case "exit" if job.status is R:
            heartbeats = [here.heartbeat(uid, B.COMPLETED, 0)]
        case "fail" if job.status in (S.STARTING, R):
            heartbeats = [here.heartbeat(uid, B.FAILED, 1)]
        case "obey":
            heartbeats = _obey(here, None)
        case "vms":
            _vms(here, f"made-{number}")
        case "plain":
            here.jobs = {**here.jobs, f"p{number}": plain(f"p{number}")}
    _checked(here, *heartbeats, after_s=40)


def _checked(here: World, *heartbeats: Heartbeat, after_s: float) -> None:
    before = dict(here.jobs)
    plan = here.cycle(*heartbeats, after_s=after_s)
    members = [here.jobs[f"e-uid-{rank}"] for rank in range(4)]
    spec, leader = members[0].spec, members[0]
    enough = sum(m.status in (*AT_WORK, S.STOPPING, S.SUCCEEDED) for m in members) >= spec.least
    assert leader.status is not R or enough or spec.replace_members
    gave = [b for b, a in plan.moves if a.status is S.PREEMPTING and "gives its VM" in a.reason]
    for member in gave:
        stay = [m for m in members if m.status in AT_WORK and m.gang and member.gang]
        assert all(m.gang.rank < member.gang.rank for m in stay if m.gang and member.gang)
    grown = [a for b, a in plan.moves if b.parked and a.status is S.PROVISIONING]
    if grown and before["e-uid-0"].status is R:
        assert not [j for j in here.jobs.values() if j.gang is None and j.status is Q]
    told = [m for m in here.told if isinstance(m, ResizeJob)]
    assert all(1 <= len(m.size.members) <= 4 for m in told)
