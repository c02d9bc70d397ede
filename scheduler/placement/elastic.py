"""Elastic jobs: they grow into what nobody waits for, and shrink before anybody is preempted. Pure.

A job that runs with more members than it needs gives them back, the highest ranks first, as soon as
somebody waits who could use their place. What is spare goes to the jobs that gain most by it
(scheduler/placement/elastic_growth.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from core.cluster import ClusterSpec
from core.job import WAITING, E, Job, S, by_gang
from core.job_steps import EventFacts
from core.ports import Ids
from core.region_blocks import RegionBlock
from core.tenants import told_name
from scheduler.placement.elastic_growth import Stretch, grow, worth
from scheduler.placement.gang import ask_to_yield
from scheduler.placement.gang_placement import blocked_regions, stands_in_for
from scheduler.placement.simulation import LEAVING
from scheduler.placement.single import place_gang
from scheduler.placement.slots import Room, Slots, free_gpus, held_in
from scheduler.plan_builder import PlanBuilder
from scheduler.queue.quotas import Quotas

LATE_S = 120.0
"""A job that was admitted and has found no VM for this long does not wait for the cloud: others
that could do with less give it theirs."""
RUN_MIN_S = 600.0
"""What is left of a job that has just begun: it has had nothing that could stand for it."""
_AT_WORK = frozenset({S.ASSIGNED, S.STARTING, S.RUNNING})


@dataclass(frozen=True, slots=True)
class Bending:
    """An elastic job that runs, with all members that it needs."""

    leader: Job
    here: Sequence[Job]
    """With a VM, by rank."""
    waiting: Sequence[Job]
    """Could join, the next one first."""
    done: int
    """Members whose work is over."""

    @property
    def extra(self) -> Sequence[Job]:
        """The members that it can do without, the highest rank first."""
        if not self.leader.spec.reschedulable:
            return ()
        return self.here[: max(1, self.leader.spec.least - self.done) - 1 : -1]


def bending(plan: PlanBuilder) -> dict[str, list[Bending]]:
    """Cluster → its elastic jobs whose size may change."""
    found: dict[str, list[Bending]] = {}
    for uid in plan.gang_uids():
        job = look_at(plan.gang(uid), plan.now) if plan.jobs[uid].spec.elastic else None
        if job is not None:
            found.setdefault(job.leader.cluster, []).append(job)
    return found


def look_at(members: Sequence[Job], now: datetime) -> Bending | None:
    """None: it does not run, or with too few: then it goes back, or its lost member is replaced in
    its place in the queue. A member that waits for the moment of its next attempt cannot join
    yet."""
    leader = members[0]
    here = [m for m in members if m.status in _AT_WORK]
    done = sum(m.status is S.SUCCEEDED for m in members)
    if leader.status is not S.RUNNING or len(here) + done < leader.spec.least:
        return None
    waiting = sorted(
        (m for m in members if m.status in WAITING and not m.is_backing_off(now)),
        key=lambda m: (m.status is S.QUEUED, m.gang.rank if m.gang else 0),
    )
    return Bending(leader, here, waiting, done)


def surplus(plan: PlanBuilder, spec: ClusterSpec, jobs: Sequence[Bending]) -> list[Job]:
    """Members that may go without their job going with them; the member that is worth least goes
    first."""
    offers = [
        (worth(stretch, (count - 1) * stretch.each, stretch.each), place, -count, member)
        for place, job in enumerate(jobs)
        for stretch in (_stretch(plan, spec, job),)
        for count, member in zip(range(len(job.here), 0, -1), job.extra, strict=False)
    ]
    return [member for _, _, _, member in sorted(offers, key=lambda offer: offer[:3])]


def _stretch(plan: PlanBuilder, spec: ClusterSpec, job: Bending) -> Stretch:
    """What it was written for is not known: its least."""
    each = job.leader.spec.slots if spec.share else spec.slots
    began = job.leader.started_at or plan.now
    had_s = job.leader.attained_gpu_s / job.leader.spec.slots
    ran_s = had_s + (plan.now - began).total_seconds()
    most = len(job.here) + len(job.waiting)
    usual = job.leader.spec.least * each
    return Stretch(
        job.leader.uid, len(job.here) * each, usual, most * each, max(RUN_MIN_S, ran_s), each
    )


# --- a cycle -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Left:
    """What a cluster's queue has left over, and who found nothing in it."""

    room: Room
    slots: Slots
    quotas: Quotas
    short: Sequence[Sequence[Job]]
    """Gangs without room or quota, in order."""
    late: Sequence[Sequence[Job]]
    """Gangs that have a place and no VMs, for too long."""
    blocks: Sequence[RegionBlock] = ()
    held: Collection[str] = ()
    """Tenants that may begin nothing new."""


def resize(
    plan: PlanBuilder, spec: ClusterSpec, jobs: Sequence[Bending], left: Left, ids: Ids
) -> set[str]:
    """Smaller if somebody waits, larger if nobody does. Returns the jobs (of a gang the first
    member) for which room is being made."""
    if left.short or left.late:
        stay_small(plan, jobs)
        extra = surplus(plan, spec, jobs)
        result = ShrinkSimulation(plan, spec, left.room, left.quotas, extra)
        served = shrink(plan, result, left.short, left.late)
        result.close()
        return served
    free = [job for job in jobs if job.leader.spec.tenant_id not in left.held]
    if len(free) > 1:
        even_out(plan, spec, free, left.room)
    expand(plan, spec, free, left, ids)
    return set()


def late_gangs(plan: PlanBuilder, admitted: Sequence[str]) -> list[Sequence[Job]]:
    """Gangs that have had a place for long and found no VMs, in order."""
    since = plan.now - timedelta(seconds=LATE_S)
    jobs = map(plan.jobs.__getitem__, admitted)
    gangs = by_gang(job for job in jobs if job.status is S.PROVISIONING).values()
    return [gang for gang in gangs if all(job.status_since <= since for job in gang)]


# --- smaller ----------------------------------------------------------------------------


def _leaving(plan: PlanBuilder, spec: ClusterSpec) -> list[Job]:
    return [j for j in plan.leased_in(spec.name) if j.status in LEAVING]


class ShrinkSimulation:
    """Whose place serves whom: counted before any member is preempted. A member on its way out
    already counts as gone: nobody is asked twice for the same need."""

    def __init__(
        self, plan: PlanBuilder, spec: ClusterSpec, room: Room, quotas: Quotas, extra: Sequence[Job]
    ) -> None:
        self._plan, self._spec, self._quotas = plan, spec, quotas
        self._room, self._extra = room, list(extra)
        self._before = room.save()
        self._counted: list[tuple[Job, int]] = []
        """What was only tried, of quotas."""
        self._held = held_in(plan, spec)
        self.leaving = _leaving(plan, spec)
        for job in self.leaving:
            self._let_go(job)

    def serve(self, gang: Sequence[Job]) -> list[Job] | None:
        """Which members are preempted so that the gang is admitted: nobody, if those who leave are
        enough; None: all that may be preempted would not be enough."""
        if self._admits(gang):
            return []
        for some in self._choices(gang):
            room, counted, taken = self._room.save(), len(self._counted), []
            for member in some:
                self._let_go(member)
                taken.append(member)
                if self._admits(gang):
                    self._extra = [m for m in self._extra if m not in taken]
                    return taken
            self._room.restore(room)
            self._forget(counted)
        return None

    def close(self) -> None:
        """Nobody has gone yet: rooms and quotas are as they were."""
        self._room.restore(self._before)
        self._forget(0)

    def _count(self, job: Job, sign: int) -> None:
        self._quotas.take(job, sign)
        self._counted.append((job, sign))

    def _forget(self, before: int) -> None:
        while len(self._counted) > before:
            job, sign = self._counted.pop()
            self._quotas.take(job, -sign)

    def hand_over(self, gang: Sequence[Job]) -> list[Job] | None:
        """The same for a gang that is admitted and has found no VMs: those of others fit as they
        are, or not at all."""
        for some in self._choices(gang, whole=True) or [[]]:
            idle = sum(self._serves(vm_uid, gang[0]) for vm_uid in self._idle(gang[0]))
            leaving = [job for job in self.leaving if self._could_use(gang[0], job)]
            lacking = len(gang) - idle - len(leaving)
            if lacking <= len(some):
                self.leaving = [job for job in self.leaving if job not in leaving[: len(gang)]]
                taken = list(some[: max(0, lacking)])
                self._extra = [m for m in self._extra if m not in taken]
                return taken
        return None

    def _admits(self, gang: Sequence[Job]) -> bool:
        if self._quotas.take_all(gang) is not None:
            return False
        self._counted += [(member, 1) for member in gang]
        if self._room.take_all(member.spec for member in gang):
            return True
        self._forget(len(self._counted) - len(gang))
        return False

    def _choices(self, gang: Sequence[Job], *, whole: bool = False) -> list[list[Job]]:
        """Of those whose VM the gang could use; a gang's must be in one region."""
        first = gang[0]
        able = [m for m in self._extra if self._could_use(first, m)]
        if not whole and any(self._quotas.lacks(member) for member in gang):
            able = [m for m in able if m.spec.tenant_id == first.spec.tenant_id]
        if first.gang is None:
            return [able] if able else []
        regions = Counter(m.lease.region for m in able if m.lease is not None)
        return [
            [m for m in able if m.lease is not None and m.lease.region == name]
            for name, _ in regions.most_common()
        ]

    def _could_use(self, job: Job, member: Job) -> bool:
        lease = member.lease
        enough = not self._spec.share or job.spec.slots <= member.spec.slots
        if lease is None or not enough or not self._serves(lease.vm_uid, job):
            return False
        return self._is_alone_with(lease.vm_uid, job, member)

    def _serves(self, vm_uid: str, job: Job) -> bool:
        vm = self._plan.vms.get(vm_uid)
        return vm is not None and stands_in_for(job, vm, self._plan.now)

    def _is_alone_with(self, vm_uid: str, job: Job, member: Job) -> bool:
        """Whether the VM has jobs of the job's tenant alone once the member is gone."""
        stay = (other for other in self._plan.jobs_on(vm_uid) if other.uid != member.uid)
        return not self._spec.keeps_tenants_apart or all(
            other.spec.tenant_id == job.spec.tenant_id for other in stay
        )

    def _idle(self, job: Job) -> list[str]:
        """Kept for a gang while the others come."""
        if job.gang is None:
            return []
        vms = self._plan.vms_of(self._spec.name)
        return [vm.uid for vm in vms if vm.idle and vm.region == job.gang_region]

    def _let_go(self, member: Job) -> None:
        self._count(member, -1)
        vm = self._plan.vms.get(member.lease.vm_uid) if member.lease else None
        if vm is None or not self._spec.share:
            self._room.free_up(self._spec.slots)
            return
        beside = len(free_gpus(vm, self._held.get(vm.uid)))
        self._room.free_up(member.spec.slots, beside, member.spec.tenant_id)


def shrink(
    plan: PlanBuilder,
    result: ShrinkSimulation,
    short: Sequence[Sequence[Job]],
    late: Sequence[Sequence[Job]],
) -> set[str]:
    """Those who wait, in their order: members that others can do without are preempted for them.
    Returns the first member of each gang for which room is being made."""
    served: set[str] = set()
    for gangs, ask in ((late, result.hand_over), (short, result.serve)):
        for gang in gangs:
            preemptible = ask(gang)
            if preemptible is None:
                continue
            served.add(gang[0].uid)
            for member in preemptible:
                ask_to_yield(plan, member, f"gives its VM to job {_named(gang[0], member)}")
    return served


def even_out(plan: PlanBuilder, spec: ClusterSpec, jobs: Sequence[Bending], room: Room) -> None:
    """Who grew first must not keep it all: members that would be worth more to another job that
    could grow are preempted for it, once they have run for a while."""
    now = {job.leader.uid: _stretch(plan, spec, job) for job in jobs}
    bare = [replace(now[j.leader.uid], least=_kept(j) * now[j.leader.uid].each) for j in jobs]
    extra = sum(stretch.least for stretch in now.values()) - sum(job.least for job in bare)
    fair = grow(bare, extra)
    poor = next((j.leader for j in jobs if fair[j.leader.uid] > now[j.leader.uid].least), None)
    if poor is None or room.gpus or _leaving(plan, spec):
        return  # what is free, or about to be, goes there first
    since = plan.now - timedelta(seconds=RUN_MIN_S)
    for job in jobs:
        stretch = now[job.leader.uid]
        over = (stretch.least - fair[job.leader.uid]) // stretch.each
        for member in job.extra[: max(0, over)]:
            if member.started_at is not None and member.started_at <= since:
                reason = f"gives its VM to job {_named(poor, member)}, which gains more by it"
                ask_to_yield(plan, member, reason)


def _named(job: Job, reader: Job) -> str:
    """The job, as the timeline of the other one may name it."""
    return told_name(job.spec.job_id, job.spec.tenant_id, reader.spec.tenant_id)


def _kept(job: Bending) -> int:
    """Members that it keeps whatever comes."""
    return len(job.here) - len(job.extra)


# --- larger -----------------------------------------------------------------------------


def expand(
    plan: PlanBuilder, spec: ClusterSpec, jobs: Sequence[Bending], spare: Left, ids: Ids
) -> None:
    """Members join where they are worth most; members that had a place and lost it go back."""
    sizes = grow([_stretch(plan, spec, job) for job in jobs], spare.room.gpus)
    blocked = blocked_regions(spec, spare.blocks, plan.now)
    for job in jobs:
        stretch = _stretch(plan, spec, job)
        more = (sizes[job.leader.uid] - stretch.least) // stretch.each
        for member in job.waiting:
            joins = more > 0 and _may_join(plan, job, member, spare, blocked)
            if joins:
                more -= 1
                _join(plan, spec, member, job.leader, spare, ids)
            elif member.status is S.PROVISIONING:
                plan.step(member, E.WITHDRAWN, "its place is needed elsewhere")


def _may_join(
    plan: PlanBuilder, job: Bending, member: Job, spare: Left, blocked: Collection[str]
) -> bool:
    """`blocked`: regions that have nothing to give: only VMs that are there can be had."""
    lease = job.leader.lease
    assert lease is not None, "a job that is RUNNING holds a lease"
    if member.status is S.QUEUED and _resized_just_now(plan, job):
        return False
    if lease.region in blocked and spare.slots.best(member.spec) is None:
        return False
    if spare.quotas.lacks(member) is not None or not spare.room.take(member.spec):
        return False
    spare.quotas.take(member)
    return True


def _resized_just_now(plan: PlanBuilder, job: Bending) -> bool:
    """Each new size makes its processes form their group anew: not for every moment of room."""
    pause = timedelta(seconds=plan.rules.queue.grow_pause_s)
    return plan.now - max(m.status_since for m in job.here) < pause


def _join(
    plan: PlanBuilder, spec: ClusterSpec, member: Job, leader: Job, spare: Left, ids: Ids
) -> None:
    assert leader.lease is not None, "a job that is RUNNING holds a lease"
    region = leader.lease.region
    if member.status is S.QUEUED:
        words = f"joins {leader.spec.job_id}: there is room in {spec.name} that nobody waits for"
        also = [spare.quotas.reserve(member)]
        member = plan.step(
            member, E.ADMITTED, words, also=also, facts=EventFacts(gang_region=region)
        )
    place_gang(plan, spec, spare.slots, [member], leader, ids)


def stay_small(plan: PlanBuilder, jobs: Sequence[Bending]) -> None:
    """Somebody waits: members that have no VM yet leave the place to them."""
    for job in jobs:
        for member in job.waiting:
            if member.status is S.PROVISIONING:
                plan.step(member, E.WITHDRAWN, "others wait for its place")
