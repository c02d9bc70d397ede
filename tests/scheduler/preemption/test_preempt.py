"""Preemptions for those at the head of the queue: for a job that then starts, or none at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.changes import Charge, JobMove, JobNote, Snapshot
from core.cluster import ClusterSpec
from core.job import E, Job, Lease, Membership, S
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, new_job
from core.messages import Control, Heartbeat, HeartbeatStatus, OutMessage, StopJob
from core.queueing import QueueRule, class_of
from core.region_blocks import BlockKind, RegionBlock
from core.tenants import Tenant, Usage
from core.vm import Vm, VmState
from scheduler.cycle.heartbeats import ReceivedHeartbeat, apply_heartbeats
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.forecast.run_times import Guess, unknown
from scheduler.placement.simulation_results import Answers
from scheduler.plan_builder import PlanBuilder
from scheduler.preemption.policy import least_of_all_s
from scheduler.preemption.preempt import ASK_S, LATE_S
from tests.builders import NOW, REGIONS, RULES, at, cluster, dice, vm

LOW, NORMAL, URGENT = 100, 500, 2000
HOUR = 3600.0


class World:
    """Turns over values. `saved_s` ago every job has saved its work; None: never."""

    def __init__(self, spec: ClusterSpec, *, saved_s: float | None = 60.0, **tenants: Tenant):
        self.spec, self.tenants, self.saved_s = spec, tenants, saved_s
        self.jobs: dict[str, Job] = {}
        self.vms: dict[str, Vm] = {}
        self.now = NOW
        self.told: list[Control] = []
        self.reasons: dict[str, str] = {}
        self.blocks: tuple[RegionBlock, ...] = ()
        self.answers = Answers()
        self.usage: dict[str, Usage] = {}
        self.short: set[str] = set()
        """Jobs that are known to run for a minute."""
        self.rules = RULES
        self._ids = dice()

    def vm(self, name: str, region: str = REGIONS[0]) -> str:
        made = vm(name, region=region, zone=f"{region}-a", gpus=self.spec.gpus)
        self.vms[made.uid] = replace(made, cluster=self.spec.name)
        return made.uid

    def waits(self, name: str, priority: int = NORMAL, waited_s: float = 0.0, **spec: Any) -> Job:
        job = _job(name, self.spec.name, self.now - timedelta(seconds=waited_s), priority, **spec)
        self.jobs[job.uid] = job
        return job

    def gang(self, name: str, size: int, priority: int = NORMAL, waited_s: float = 0.0) -> None:
        since = self.now - timedelta(seconds=waited_s)
        for rank in range(size):
            job_id = f"{name}.{rank}" if rank else name
            spec = JobSpec(job_id, command=("x",), priority=priority, replicas=size)
            member = Membership(f"{name}-0", rank, size)
            self.jobs[f"{name}-{rank}"] = new_job(
                f"{name}-{rank}", spec, self.spec.name, since, gang=member
            )

    def run(self, uid: str, vm_uid: str, ran_s: float = HOUR, slots: tuple[int, ...] = (0,)) -> Job:
        """The job has run there for so long."""
        job, began = self.jobs[uid], self.now - timedelta(seconds=ran_s)
        on = self.vms[vm_uid]
        lease = Lease(f"lease-{uid}", on.name, vm_uid, on.region, on.zone, slots)
        assert job.due_at is not None
        due = job.due_at - timedelta(seconds=ran_s)
        job = replace(job, due_at=due, submitted_at=began, queued_since=began, status_since=began)
        for event in (E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED):
            job = advance(
                job,
                event,
                began,
                RULES,
                facts=EventFacts(lease=lease if event is E.PLACED else None),
            )
        self.jobs[uid] = job
        self.vms[vm_uid] = replace(on, leases=(*on.leases, lease.lease_id), idle_since=None)
        return job

    def cycle(self, *heartbeats: Heartbeat, after_s: float = 0.0) -> PlanBuilder:
        self.now += timedelta(seconds=after_s)
        self.told = []
        jobs, vms = tuple(self.jobs.values()), tuple(self.vms.values())
        tenants, usage = self.tenants, dict(self.usage)
        seen = Snapshot(self.now, jobs, vms, self.blocks, (), {}, {}, tenants=tenants, usage=usage)
        plan = PlanBuilder(seen, self.rules, self._keep)
        apply_heartbeats(
            plan, [ReceivedHeartbeat(heartbeat, self.now, "m") for heartbeat in heartbeats]
        )
        around = Circumstances(
            {self.spec.name: self.spec},
            Silence(()),
            True,
            guess=lambda job: _MINUTE if job.uid in self.short else unknown(job),
            saved_at=self._saved_at,
            answers=self.answers,
        )
        self.reasons |= {n.uid: n.why for n in plan_jobs(plan, seen, around, self._ids)}
        self.jobs, self.vms = dict(plan.jobs), dict(plan.vms)
        for change in (change for batch in plan.batches for change in batch):
            if isinstance(change, Charge):
                used = self.usage.get(change.tenant_id, Usage())
                charged = used.plus(change.gpu_s, change.at, change.half_life_s)
                self.usage[change.tenant_id] = charged
        return plan

    def _saved_at(self, job: Job) -> datetime | None:
        return None if self.saved_s is None else self.now - timedelta(seconds=self.saved_s)

    def _keep(self, message: Control) -> OutMessage:
        self.told.append(message)
        return OutMessage("control", b"")

    def asked(self) -> set[str]:
        """Who has to yield."""
        return {uid for uid, job in self.jobs.items() if job.status is S.PREEMPTING}

    def preempted(self) -> list[Heartbeat]:
        """The last words of those that have to."""
        return [
            self._heartbeat(self.jobs[uid], HeartbeatStatus.STOPPED) for uid in sorted(self.asked())
        ]

    @staticmethod
    def _heartbeat(job: Job, status: HeartbeatStatus) -> Heartbeat:
        assert job.lease is not None
        return Heartbeat(
            status,
            job.lease.vm_name,
            job.spec.job_id,
            attempt=job.attempt,
            lease_id=job.lease.lease_id,
            boot_nonce="nonce",
        )


_MINUTE = Guess((50.0,) * 9, "9 past runs")


def _job(name: str, where: str, since: datetime, priority: int, **spec: Any) -> Job:
    words = {"command": ("true",), "priority": priority, **spec}
    return new_job(name, JobSpec(name, **words), where, since)


def full(vms: int, priority: int = LOW, ran_s: float = HOUR, **more: Any) -> World:
    """A cluster whose VMs all run a job."""
    world = World(cluster(vm_max=vms), **more)
    for number in range(vms):
        world.waits(f"old-{number}", priority)
        world.run(f"old-{number}", world.vm(f"vm-{number}"), ran_s)
    return world


def status(world: World, uid: str) -> S:
    return world.jobs[uid].status


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
    assert (back.failures, back.losses, back.preemptions, back.evictions) == (0, 0, 0, 1)


def test_both_timelines_hold_the_receipt() -> None:
    """Who yields to whom, why, by when, and what it costs, in the same words everywhere."""
    world = full(1)
    world.waits("now", URGENT)
    plan = world.cycle()
    changes = [change for batch in plan.batches for change in batch]
    (note,) = [change for change in changes if isinstance(change, JobNote)]
    assert (note.uid, note.entry.event) == ("now", "room_made")
    assert note.entry.reason.startswith("old-0 yields 1 GPU to it, by 12:01:")
    (moved,) = [c for c in changes if isinstance(c, JobMove) and c.after.uid == "old-0"]
    words = moved.entries[0].reason
    assert words.startswith("yields 1 GPU to job now: class urgent goes before low")
    assert "60 s since its last checkpoint" in words
    assert moved.entries[0].data["made_room_for"] == "now"
    assert world.reasons["now"] == "waits for the places of others that yield or end"


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


def test_a_gang_is_evicted_whole() -> None:
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
    """Admitted, no VM comes, and lower classes run: after a while one of them yields."""
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


def test_a_job_that_would_not_fit_even_then_evicts_nobody() -> None:
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
def test_whatever_stands_in_the_way_nobody_yields(spoil: Any) -> None:
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
    """Nobody yields within ten minutes of its start, to whomever."""
    world = full(1, ran_s=RULES.queue.least_run_s - 20)
    world.waits("now", URGENT)
    world.cycle()
    assert not world.asked()
    world.cycle(after_s=21)
    assert world.asked()


def test_on_shared_vms_those_yield_whose_gpus_lie_together() -> None:
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
    """Each has half: nobody yields, however long the queues are."""
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


def test_one_that_has_had_hours_yields_to_a_new_one_of_its_own_tenant() -> None:
    """Least attained service: but only when it has saved its work, or the new one waited long."""
    world = full(1, NORMAL, ran_s=20 * HOUR, saved_s=None)
    world.waits("new", NORMAL)
    world.cycle(after_s=300)
    assert not world.asked()
    world.saved_s = 30.0
    world.cycle(after_s=11)
    assert world.asked() == {"old-0"}


# --- the promise to the one that cannot start -------------------------------------------


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
    """Small jobs fill the other VM; those that end in time may use the kept one as well."""
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


def test_one_that_has_a_place_gets_what_was_yielded_to_it() -> None:
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


def test_gang_does_not_take_what_is_yielded_to_another() -> None:
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


# --- whatever the world looks like ------------------------------------------------------

ROWS = st.tuples(
    st.sampled_from([LOW, NORMAL, 1000, URGENT]),
    st.sampled_from(["a", "b"]),
    st.floats(0, 30 * HOUR),
    st.integers(1, 4),
)


@settings(max_examples=100)
@example(  # one of a higher class was passed by another tenant's, and comes before all others
    [(LOW, "a", 68422.0, 1), (LOW, "b", 12981.0, 1), (NORMAL, "b", 51840.0, 1)],
    [(NORMAL, "a", 0.0, 1), (URGENT, "a", 0.0, 1), (URGENT, "b", 0.0, 1)],
    0.0,
    False,
    False,
)
@given(
    st.lists(ROWS, max_size=8),
    st.lists(ROWS, min_size=1, max_size=5),
    st.floats(0, HOUR),
    st.booleans(),
    st.booleans(),
)
def test_an_eviction_always_starts_the_one_it_was_made_for(
    running: list[tuple[int, str, float, int]],
    waiting: list[tuple[int, str, float, int]],
    saved_s: float,
    shared: bool,
    apart: bool,
) -> None:
    """When the victims have gone, all at once or one by one, it is placed in the same cycle; no
    victim had the better claim."""
    name = "4xl4"
    spec = cluster(name, vm_max=3, share=shared, cpus=48, memory_gb=192)
    world = World(spec, saved_s=saved_s, a=Tenant("a"), b=Tenant("b"))
    for number in range(3):
        world.vm(f"vm-{number}")
    for number, (priority, tenant, ran_s, gpus) in enumerate(running):
        _start_somewhere(world, f"run-{number}", priority, tenant, ran_s, gpus if shared else 4)
    for number, (priority, tenant, waited_s, gpus) in enumerate(waiting):
        world.waits(f"wait-{number}", priority, waited_s, tenant_id=tenant, gpu_count=gpus)
    plan = world.cycle()
    for winner, victims in _receipts(plan):
        mine = class_of(world.jobs[winner].spec.priority)
        assert all(class_of(world.jobs[uid].spec.priority) <= mine for uid in victims)
        for uid in victims:
            tenants = {world.jobs[one].spec.tenant_id for one in (winner, uid)}
            least_s = RULES.queue.least_run_s
            assert _ran_s(plan, uid) >= (least_s if len(tenants) == 1 else least_of_all_s(least_s))
    before = dict(world.jobs)
    for heartbeat in world.preempted() if apart else ():
        world.cycle(heartbeat, after_s=1)
    world.cycle(*world.preempted(), after_s=1)
    started = {u for u, j in world.jobs.items() if j.lease and before[u].lease is None}
    for winner, victims in _receipts(plan):
        assert winner in started, f"{winner} did not start for {victims}"


def _start_somewhere(
    world: World, uid: str, priority: int, tenant: str, ran_s: float, gpus: int
) -> None:
    for one in list(world.vms.values()):
        taken = {
            s
            for j in world.jobs.values()
            if j.lease and j.lease.vm_uid == one.uid
            for s in j.lease.slots
        }
        free = [slot for slot in range(4) if slot not in taken]
        if len(free) >= gpus:
            world.waits(uid, priority, tenant_id=tenant, gpu_count=gpus)
            world.run(uid, one.uid, ran_s, tuple(free[:gpus]))
            return


def _ran_s(plan: PlanBuilder, uid: str) -> float:
    started = plan.jobs[uid].started_at
    assert started is not None
    return (plan.now - started).total_seconds()


def _receipts(plan: PlanBuilder) -> Iterable[tuple[str, list[str]]]:
    for batch in plan.batches:
        for change in batch:
            if isinstance(change, JobNote) and change.entry.event == "room_made":
                victims = change.entry.data["victims"]
                assert isinstance(victims, list)
                yield change.uid, victims
