"""Gangs: all members or none, in one region, behind one barrier, and back together."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.changes import JobMove
from core.job import E, Job, JobEvent, Lease, Membership, S
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, new_job
from core.messages import Control, GoJob, Heartbeat, HeartbeatStatus, OutMessage, StartJob, StopJob
from core.region_blocks import BlockKind, RegionBlock
from core.vm import Vm, VmState
from orchestrator.planning.plan_input import demand_of
from scheduler.cycle.heartbeats import ReceivedHeartbeat, apply_heartbeats
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.placement.gang import PAUSE_S
from scheduler.placement.single import place
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, REGIONS, RULES, cluster, dice, snapshot, vm

B, V = HeartbeatStatus, VmState
HOLD_S = RULES.timers.gang_hold_s


def gang(name: str, size: int, now: datetime = NOW, **spec: object) -> list[Job]:
    """A gang as it is submitted."""
    words = {"command": ("true",), "replicas": size, **spec}
    return [
        new_job(
            f"{name}-uid-{rank}",
            JobSpec(job_id=f"{name}.{rank}" if rank else name, **words),  # type: ignore[arg-type]
            "1xl4",
            now,
            gang=Membership(f"{name}-uid-0", rank, size),
        )
        for rank in range(size)
    ]


def placed(members: Iterable[Job], *events: JobEvent) -> list[Job]:
    """The members on VMs of their own, after the events."""
    made = []
    for fresh in members:
        member = fresh
        assert member.gang is not None
        name = f"vm-{member.gang.rank}"
        lease = Lease(f"lease-{name}", name, f"uid-{name}", REGIONS[0], f"{REGIONS[0]}-a", (0,))
        for event in (E.ADMITTED, E.PLACED, *events):
            given = lease if event is E.PLACED else None
            member = advance(member, event, NOW, RULES, facts=EventFacts(lease=given))
        made.append(member)
    return made


def holders(members: Iterable[Job]) -> list[Vm]:
    leases = [member.lease for member in members if member.lease is not None]
    return [vm(x.vm_name, leases=(x.lease_id,), idle_since=None, zone=x.zone) for x in leases]


class World:
    """Turns over jobs and VMs that are only values."""

    def __init__(self, jobs: Iterable[Job], vms: Iterable[Vm] = (), vm_max: int = 8) -> None:
        self.jobs = {job.uid: job for job in jobs}
        self.vms = {one.uid: one for one in vms}
        self.vm_max = vm_max
        self.now = NOW
        self.told: list[Control] = []
        self.blocks: tuple[RegionBlock, ...] = ()
        self._ids = dice()

    def cycle(self, *heartbeats: Heartbeat, after_s: float = 0.0) -> PlanBuilder:
        """What is decided; the world is as decided afterwards."""
        self.now += timedelta(seconds=after_s)
        self.told = []
        seen = snapshot(tuple(self.jobs.values()), tuple(self.vms.values()), self.blocks, self.now)
        plan = PlanBuilder(seen, RULES, self._keep)
        apply_heartbeats(
            plan, [ReceivedHeartbeat(heartbeat, self.now, "m") for heartbeat in heartbeats]
        )
        around = Circumstances({"1xl4": cluster(vm_max=self.vm_max)}, Silence(()), True)
        plan_jobs(plan, seen, around, self._ids)
        self.jobs, self.vms = dict(plan.jobs), dict(plan.vms)
        return plan

    def _keep(self, message: Control) -> OutMessage:
        self.told.append(message)
        return OutMessage("control", b"")

    def heartbeat(self, uid: str, status: HeartbeatStatus, code: int | None = None) -> Heartbeat:
        job = self.jobs[uid]
        assert job.lease is not None
        return Heartbeat(
            status,
            job.lease.vm_name,
            job.spec.job_id,
            attempt=job.attempt,
            lease_id=job.lease.lease_id,
            boot_nonce="nonce",
            exit_code=code,
        )

    def lose(self, uid: str) -> None:
        """The member's VM is gone."""
        lease = self.jobs[uid].lease
        assert lease is not None
        self.vms[lease.vm_uid] = replace(self.vms[lease.vm_uid], state=V.GONE, gone_at=self.now)

    def statuses(self, name: str) -> list[S]:
        members = [j for j in self.jobs.values() if j.uid.startswith(f"{name}-uid-")]
        return [j.status for j in sorted(members, key=lambda j: j.gang.rank if j.gang else 0)]


def idle(count: int, region: str = REGIONS[0], address: str = "") -> list[Vm]:
    zone = f"{region}-a"
    return [vm(f"{region}-{n}", region=region, zone=zone, address=address) for n in range(count)]


# --- together or not at all -------------------------------------------------------------


def test_all_members_are_placed_in_one_unit() -> None:
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


def test_all_wishes_name_the_same_region() -> None:
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
    assert [message.vm_name for message in world.told] == ["vm-0"], "whoever still waits is told"


# --- back together ----------------------------------------------------------------------


@pytest.mark.parametrize("events", [(), (E.CLAIMED,), (E.CLAIMED, E.STARTED)])
def test_a_lost_member_takes_the_others_back(events: tuple[JobEvent, ...]) -> None:
    """They are told to yield, wherever they are, and are placed again when all of them wait."""
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
    """Whoever must run again would wait for one that never comes: the gang fails, and says so."""
    members = placed(gang("g", 2), E.CLAIMED, E.STARTED)
    world = World(members, holders(members))
    world.cycle(world.heartbeat("g-uid-1", B.COMPLETED, 0))
    world.lose("g-uid-0")
    world.cycle()
    assert world.statuses("g") == [S.FAILED, S.SUCCEEDED]
    assert "g must begin again, but g.1 has ended already" in world.jobs["g-uid-0"].reason


# --- partial capacity -------------------------------------------------------------------


def test_partial_capacity_is_let_go_at_the_deadline() -> None:
    """A gang of 32 of which one VM never boots: released at the deadline, its VMs serve others,
    and its next try is elsewhere, after a pause."""
    stuck = vm("stuck", V.BOOTING)
    small = new_job("small", JobSpec("small", command=("true",)), "1xl4", NOW)
    world = World([*gang("g", 32, NOW - timedelta(hours=9)), small], [*idle(31), stuck], 40)
    world.cycle()
    assert world.statuses("g") == [S.PROVISIONING] * 32
    world.cycle(after_s=HOLD_S - 1)
    assert (world.statuses("g"), world.jobs["small"].status) == (
        [S.PROVISIONING] * 32,
        S.PROVISIONING,
    )
    plan = world.cycle(after_s=1)
    assert world.statuses("g") == [S.QUEUED] * 32
    assert len([c for c in plan.batches[-1] if isinstance(c, JobMove)]) == 32
    assert (
        world.jobs["g-uid-0"].reason == "32 VMs in us-central1 did not come together within 600 s"
    )
    world.cycle(after_s=1)
    assert world.jobs["small"].status is S.ASSIGNED
    assert world.statuses("g") == [S.QUEUED] * 32
    world.cycle(after_s=PAUSE_S)
    assert world.statuses("g") == [S.PROVISIONING] * 32
    assert {j.gang_region for j in world.jobs.values() if j.gang} == {REGIONS[1]}


def test_a_region_without_capacity_is_left_at_once() -> None:
    """There is no sense in waiting where nothing is to be had while another region may have it."""
    block = RegionBlock(
        *(REGIONS[0], "", "g2-standard-4", False, BlockKind.STOCKOUT),
        *(NOW, NOW, NOW + timedelta(minutes=5), 1, "no capacity"),
    )
    world = World(gang("g", 3), idle(1))
    world.cycle()
    assert {j.gang_region for j in world.jobs.values()} == {REGIONS[0]}
    world.blocks = (block,)
    world.cycle(after_s=5)
    assert world.jobs["g-uid-0"].reason == "3 VMs in us-central1 did not come together (stockout)"
    world.cycle(after_s=PAUSE_S)
    assert {(j.status, j.gang_region) for j in world.jobs.values()} == {
        (S.PROVISIONING, REGIONS[1])
    }


class Supply:
    """VMs for the VM requests of a world: few in each region, slow, and some never boot."""

    BOOT_S, GIVE_UP_S, IDLE_S = 40.0, 400.0, 60.0

    def __init__(self, world: World, room: int, seed: int) -> None:
        self._world, self._room, self._dice = world, room, random.Random(seed)
        self._stuck: set[str] = set()
        self._made = 0

    def step(self) -> None:
        world, now = self._world, self._world.now
        for one in list(world.vms.values()):
            age_s = (now - one.state_since).total_seconds()
            if one.state is V.BOOTING and age_s >= self.GIVE_UP_S:
                del world.vms[one.uid]
            elif one.state is V.BOOTING and age_s >= self.BOOT_S and one.uid not in self._stuck:
                facts = {"boot_nonce": "nonce", "idle_since": now, "state_since": now}
                world.vms[one.uid] = replace(one, state=V.READY, version=9, **facts)  # type: ignore[arg-type]
            elif (
                one.idle and one.idle_since and (now - one.idle_since).total_seconds() > self.IDLE_S
            ):
                del world.vms[one.uid]
        there = Counter(one.region for one in world.vms.values())
        demand = demand_of("1xl4", world.jobs.values())
        for region, wanted in Counter(w.regions[0] for w in demand.requests if w.regions).items():
            free = [o for o in world.vms.values() if o.region == region and not o.leases]
            for _ in range(
                min(wanted - len(free), self._room - there[region], world.vm_max - len(world.vms))
            ):
                self._made += 1
                name = f"{region}-made-{self._made}"
                world.vms[f"uid-{name}"] = vm(name, V.BOOTING, region=region, state_since=now)
                if self._dice.random() < 0.05:
                    self._stuck.add(f"uid-{name}")


def obey(world: World, dice_: random.Random) -> list[Heartbeat]:
    """Workers that do as they are told: claim, wait for `go`, run, end."""
    going = {m.lease_id for m in world.told if isinstance(m, GoJob)}
    stopping = {m.lease_id for m in world.told if isinstance(m, StopJob)}
    heartbeats = []
    for job in world.jobs.values():
        if job.lease is None:
            continue
        if job.lease.lease_id in stopping or job.status in (S.PREEMPTING, S.STOPPING):
            heartbeats.append(world.heartbeat(job.uid, B.STOPPED))
        elif job.status is S.ASSIGNED:
            heartbeats.append(world.heartbeat(job.uid, B.FOUND_VM))
        elif job.status is S.STARTING:
            heartbeats.append(
                world.heartbeat(job.uid, B.RUNNING if job.lease.lease_id in going else B.FOUND_VM)
            )
        elif job.status is S.RUNNING and dice_.random() < 0.2:
            heartbeats.append(world.heartbeat(job.uid, B.COMPLETED, 0))
    return heartbeats


def test_a_hundred_gangs_that_compete_all_end() -> None:
    """Scarce regions, VMs that never boot: whoever holds in vain lets go, so all gangs run."""
    chance = random.Random(7)
    sizes = [chance.randint(2, 6) for _ in range(100)]
    jobs = [job for n, size in enumerate(sizes) for job in gang(f"g{n}", size)]
    world = World(jobs, vm_max=18)
    supply = Supply(world, room=7, seed=3)
    for _ in range(4000):
        world.cycle(*obey(world, chance), after_s=10)
        supply.step()
        if all(world.jobs[f"g{n}-uid-0"].status.final for n in range(100)):
            break
    ends = Counter(world.jobs[f"g{n}-uid-0"].status for n in range(100))
    assert ends == {S.SUCCEEDED: 100}, ends


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


def test_whoever_does_not_yield_runs_nowhere_else_before_its_vm_is_gone() -> None:
    """Told to yield and silent about it: the VM is deleted, and the member waits until nothing
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
