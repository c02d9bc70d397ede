"""Gangs: several jobs that run at once or not at all. Pure.

Each member is a job of its own, with its own lease and VM, so everything that holds for a job holds
for it. What couples them is here: they are admitted together, begin behind a barrier, and a member
that goes back takes the others along. The job with rank 0 is the gang to the outside: its end is
theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from core.job import WAITING, E, Job, JobEvent, S, StopReason
from core.messages import GoJob, StopJob
from scheduler.plan_builder import PlanBuilder, address_of, stop_message

_HERE = frozenset({S.STARTING, S.RUNNING})
"""At the barrier, or past it."""
_PREEMPTIONS = frozenset({S.ASSIGNED, S.STARTING, S.RUNNING})
PAUSE_S = 30.0
"""First pause of a gang that could not be brought together; doubles with each time."""
PAUSE_MAX_S = 600.0
JOINS_LATER = "optional replica: starts when spare capacity is free"


# --- after something happened -----------------------------------------------------------


def settle_gangs(plan: PlanBuilder) -> None:
    """What happened to one member, for the others. Everything follows from where they are now, so
    whatever a lost commit left undone is done in the next cycle."""
    for members in plan.gangs():
        leader, others = members[0], members[1:]
        if leader.status.final or leader.status is S.STOPPING:
            _follow_leader(plan, leader, others)
        elif leader.spec.elastic:
            _bend(plan, members)
        elif (lost := next((m for m in others if _is_lost(m)), None)) is not None:
            _fail(plan, members, f"member {lost.spec.job_id} ended {lost.status}: {lost.reason}")
        elif any(goes_back(m) for m in members):
            _break_up(plan, members)
        else:
            _open_barrier(plan, members)


def _is_lost(member: Job) -> bool:
    """Ended, and not because its work was done."""
    return member.status in (S.FAILED, S.CANCELLED)


def goes_back(member: Job) -> bool:
    return member.status in WAITING or member.status is S.PREEMPTING


def _follow_leader(plan: PlanBuilder, leader: Job, others: Sequence[Job]) -> None:
    failed = leader.status is S.FAILED or (
        leader.status is S.STOPPING and leader.stop_reason is not StopReason.USER
    )
    event = E.GANG_FAILED if failed else E.STOP_ASKED
    word = "is being stopped" if leader.status is S.STOPPING else f"ended {leader.status}"
    reason = f"{leader.spec.job_id}, the gang's first member, {word}: {leader.reason}"
    for member in others:
        _end(plan, member, event, reason)


def _fail(plan: PlanBuilder, members: Sequence[Job], reason: str) -> None:
    for member in members:
        _end(plan, member, E.GANG_FAILED, reason)


def _end(plan: PlanBuilder, member: Job, event: JobEvent, reason: str) -> None:
    if member.status.final or member.status is S.STOPPING:
        return
    plan.step(member, event, reason, tell=preemption_message(plan, member, reason))


def _break_up(plan: PlanBuilder, members: Sequence[Job]) -> None:
    """They run together or not at all. The first member cannot be replaced: all others know its
    address."""
    done = next((m for m in members if m.status is S.SUCCEEDED), None)
    if done is not None:
        back = next(m for m in members if goes_back(m))
        words = f"{back.spec.job_id} must begin again, but {done.spec.job_id} has ended already"
        _fail(plan, members, words)
        return
    if may_replace(members):
        _open_barrier(plan, members)
        return
    _begin_again(plan, members, next(m for m in members if goes_back(m)))


def _begin_again(plan: PlanBuilder, members: Sequence[Job], gone: Job) -> None:
    reason = f"its gang begins again: {gone.spec.job_id} is {gone.status.lower()} ({gone.reason})"
    for member in members:
        if member.status in _PREEMPTIONS:
            ask_to_yield(plan, member, reason)


def _bend(plan: PlanBuilder, members: Sequence[Job]) -> None:
    """An elastic job goes on with fewer members, as long as the members it needs are there. Without
    its first one, or before all that began together have begun, it does as every gang."""
    leader, least = members[0], members[0].spec.least
    able = [m for m in members if not _is_lost(m)]
    if len(able) < least or (goes_back(leader) and len(active(members)) < least):
        ended = [m for m in members if m.status.final]
        _fail(plan, members, f"{len(able)} of {least} members are left: {_ends(ended)}")
        return
    back = [m for m in able if goes_back(m)]
    enough = len(able) - len(back) >= least or may_replace(members)
    if not goes_back(leader) and enough:
        _open_barrier(plan, members)
        return
    latest = max(back, key=lambda m: (m.status_since, m.uid))
    _begin_again(plan, members, leader if goes_back(leader) else latest)


def _ends(ended: Sequence[Job]) -> str:
    """The last of them, in words."""
    last = max(ended, key=lambda m: (m.status_since, m.uid))
    return f"{last.spec.job_id} ended {last.status} ({last.reason})"


def joins_later(plan: PlanBuilder, job: Job) -> bool:
    """A member of an elastic job that runs without it: nobody waits for its start."""
    if job.gang is None or not job.spec.elastic or job.status not in WAITING:
        return False
    return plan.gang(job.gang.uid)[0].lease is not None


def active(members: Sequence[Job]) -> list[Job]:
    return [m for m in members if not m.status.final]


def gang_of(members: Sequence[Job]) -> Sequence[Job]:
    """Members that begin together: of an elastic job as many as it needs."""
    return active(members)[: members[0].spec.least] if members[0].spec.elastic else members


def may_replace(members: Sequence[Job]) -> bool:
    """Whether it goes on while a member is replaced: its first member must be past the barrier."""
    return members[0].spec.replace_members and members[0].status is S.RUNNING


def _open_barrier(plan: PlanBuilder, members: Sequence[Job]) -> None:
    """All are there: each that waits at the barrier is told to go, when the last one came and again
    whenever one says that it still waits."""
    here = active(members)
    if members[0].spec.elastic:  # those without a VM are not waited for
        here = [m for m in here if m.status in _PREEMPTIONS]
    if not all(m.status in _HERE for m in here):
        return
    moved = {after.uid for _, after in plan.moves if after.status is S.STARTING}
    complete = any(m.uid in moved for m in here)
    for member in here:
        if member.status is S.STARTING and (complete or member.uid in plan.claims):
            assert member.lease is not None, "a job that is STARTING holds a lease"
            vm = plan.vms.get(member.lease.vm_uid)
            if vm is not None:
                plan.tell(GoJob(**address_of(member, vm.boot_nonce)))


def preemption_message(plan: PlanBuilder, member: Job, reason: str) -> list[StopJob]:
    """Its worker is told to end it; nothing if it has none."""
    if member.lease is None:
        return []
    vm = plan.vms.get(member.lease.vm_uid)
    return [stop_message(member, vm.boot_nonce if vm else "", reason)]


def ask_to_yield(plan: PlanBuilder, member: Job, reason: str) -> None:
    """It shall save its work and go back to the queue."""
    tell = preemption_message(plan, member, reason)
    plan.step(member, E.PREEMPTION_ASKED, reason, tell=tell)


# --- who may be admitted with whom ------------------------------------------------------


class Gangs:
    """Jobs that get their places together."""

    def __init__(self, plan: PlanBuilder) -> None:
        self._plan = plan

    def of(self, job: Job) -> Sequence[Job] | None:
        """All that must be admitted with the job, itself among them; None: not now."""
        if job.gang is None:
            return (job,)
        members = self._plan.gang(job.gang.uid)
        if job.spec.elastic:
            return self._of_elastic(job, members)
        if all(m.status in WAITING and m.blocked is None for m in members):
            return members if self._free(job, members) else None
        return (job,) if may_replace(members) else None

    def _of_elastic(self, job: Job, members: Sequence[Job]) -> Sequence[Job] | None:
        """The members it needs. One that is lost while the others run on is as good as any that it
        does not need: that is not for the queue, unless too few are left."""
        gang = gang_of(members)
        if all(m.status in WAITING and m.blocked is None for m in active(members)):
            return gang if job in gang and self._free(job, members) else None
        here = sum(not goes_back(m) and not _is_lost(m) for m in members)
        return (job,) if here < job.spec.least and may_replace(members) else None

    def _free(self, job: Job, members: Sequence[Job]) -> bool:
        now = self._plan.now
        if any(member.is_backing_off(now) for member in members):
            return False
        return job.status is S.PROVISIONING or pause_until(members[0]) <= now

    def leader_of(self, job: Job) -> Job:
        """The first member of its gang."""
        assert job.gang is not None, f"{job.spec.job_id} is no gang's"
        return self._plan.gang(job.gang.uid)[0]


def pause_until(job: Job) -> datetime:
    """A gang that could not be brought together waits a while, so that others can use what it
    would have kept."""
    if job.holds == 0:
        return job.status_since
    pause_s = min(PAUSE_S * 2 ** min(job.holds - 1, 16), PAUSE_MAX_S)
    return job.status_since + timedelta(seconds=pause_s)
