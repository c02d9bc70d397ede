"""What went wrong: VMs that fell silent, jobs whose VM is gone, deadlines that passed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from core.job import BLOCKED_MAX_S, DEADLINE_EVENT, E, Job, JobEvent, S
from core.vm import GivenUp
from scheduler.cycle.silence import Silence
from scheduler.placement.gang import joins_later
from scheduler.plan_builder import PlanBuilder, stop_message

# While the bus is away a worker's word cannot reach us: these clocks stand still. A job that leaves
# these states runs again elsewhere, so it must not be able to run where it is: that
# worker is given up.
_NEEDS_THE_BUS = {
    S.ASSIGNED: GivenUp.UNCLAIMED,
    S.STARTING: GivenUp.UNSTARTED,
    S.PREEMPTING: GivenUp.NOT_YIELDED,
}
# After this the worker did not do as told: its VM is not trusted with another job.
_RETIRES = frozenset({E.STOP_GRACE_OVER})


def lose_vms(plan: PlanBuilder, silence: Silence) -> None:
    """Silent VMs are lost: their names are deleted, their jobs go back."""
    for vm in silence.lost:
        plan.delete_vm(plan.vms[vm.uid], "silent for too long")


def requeue_lost(plan: PlanBuilder, silence: Silence) -> None:
    """Jobs whose VM is gone, or going with no worker alive on it. A VM that is only being deleted
    may still compute: its job waits until it is observed off or gone, falls silent, or its worker
    has spoken. That costs seconds, and two VMs never compute the same job."""
    silent = dict.fromkeys(vm.uid for vm in silence.lost)
    doubtful = (*plan.active.beyond_use, *plan.vms.news)
    dead = [uid for uid in doubtful if not plan.vms[uid].worker_may_run]
    places = dict.fromkeys((*dead, *silent, *plan.active.homeless))
    for job in [job for uid in places for job in plan.jobs_on(uid)]:
        assert job.lease is not None, "chosen so"
        vm = plan.vms.get(job.lease.vm_uid)
        # A silent worker has frozen what it ran; a start that is still on its way to it has not
        # been frozen by anybody. v1 workers freeze nothing: only the end of their VM is theirs.
        frozen = job.status is not S.ASSIGNED and job.lease.vm_uid in silent
        frozen = frozen and not (vm is not None and vm.speaks_v1)
        if vm is not None and not frozen and vm.worker_may_run:
            continue
        if vm is not None and vm.taken:
            plan.step(job, E.RECLAIMED, vm.reclaimed_words)
            continue
        cause = f": {vm.reason}" if vm is not None and vm.reason else ""
        plan.step(job, _loss_event(job, plan.now), f"{job.lease.vm_name} was lost{cause}")


def end_refused(plan: PlanBuilder, refused: Mapping[str, str]) -> None:
    """Jobs whose start message the bus refuses for what it says, or whose secrets cannot be
    had: another VM would not get it either. `refused`: lease of the message → why."""
    if not refused:
        return
    for job in list(plan.active.jobs.values()):
        holds = job.lease if job.status is S.ASSIGNED else job.offer
        if holds is not None and holds.lease_id in refused:
            now = plan.jobs[job.uid]
            if now.status is job.status:
                plan.step(now, E.START_REFUSED, refused[holds.lease_id])


def _loss_event(job: Job, now: datetime) -> JobEvent:
    """A VM that was deleted because its worker did not do as told is that deadline's loss."""
    late = job.deadline_at is not None and job.deadline_at <= now
    return DEADLINE_EVENT[job.status] if late and job.status in _NEEDS_THE_BUS else E.VM_LOST


def meet_deadlines(
    plan: PlanBuilder,
    bus_steady: bool,
    deaf: Collection[str] = frozenset(),
    unsent: Collection[str] = frozenset(),
    withheld: Collection[str] = frozenset(),
) -> None:
    """Every state that is not final moves by itself in the end. `deaf`: clusters whose workers
    could not be told anything of late; `unsent`: VMs that one order could not be sent to;
    `withheld`: leases whose start waits for its secrets. Nobody is blamed for what he could not
    hear."""
    late = (job.uid for job in plan.active.due(plan.now))
    for job in [plan.jobs[uid] for uid in dict.fromkeys((*late, *plan.jobs.news))]:
        if job.deadline_at is None or job.deadline_at > plan.now:
            continue
        if job.status in _NEEDS_THE_BUS:
            waits = job.lease is not None and job.lease.lease_id in withheld
            if bus_steady and job.cluster not in deaf and not waits:
                _give_up_worker(plan, job, unsent)
            continue
        if joins_later(plan, job):
            continue
        event = DEADLINE_EVENT[job.status]
        vm = plan.vms.get(job.lease.vm_uid) if job.lease else None
        reason = _deadline_reason(job, event)
        tell = [stop_message(job, vm.boot_nonce if vm else "", reason)] if job.lease else []
        plan.step(job, event, reason, tell=tell)
        if vm is not None and event in _RETIRES:
            plan.retire_vm(plan.vms[vm.uid], reason)


def _give_up_worker(plan: PlanBuilder, job: Job, unsent: Collection[str]) -> None:
    """It did not claim, start or stop the job in time, but may be about to: it is told to stop and
    its VM goes; the job goes back once nothing can run there. A worker that has other jobs as well
    is asked first: its answer frees the job, and only without one are its neighbours lost."""
    assert job.lease is not None, f"a job that is {job.status} holds a lease"
    vm = plan.vms.get(job.lease.vm_uid)
    if vm is None or vm.state.beyond_use:
        return
    kind, reason = _NEEDS_THE_BUS[job.status], _deadline_reason(job, DEADLINE_EVENT[job.status])
    if vm.name in unsent:
        kind, reason = GivenUp.UNREACHABLE, "the bus refuses its orders"
    elif vm.speaks_v1 and job.status is S.ASSIGNED:  # it has claimed the job: FOUND_VM
        kind, reason = GivenUp.UNSTARTED, "its v1 worker did not begin to run the job in time"
    answer_s = job.spec.stop_grace_s + plan.rules.timers.stop_margin_s
    asked = vm.state.draining and vm.given_up is kind
    if asked and len(vm.leases) > 1 and plan.now - vm.state_since < timedelta(seconds=answer_s):
        return
    if not vm.speaks_v1:  # a v1 stop that its VM does not live to see would end the next attempt
        plan.tell(stop_message(job, vm.boot_nonce, reason))
    if vm.state.ready:
        plan.retire_vm(vm, reason, job.lease.lease_id, given_up=kind)
    else:
        plan.delete_vm(vm, reason, given_up=kind)


def _deadline_reason(job: Job, event: JobEvent) -> str:
    match event:
        case JobEvent.QUEUE_TIMEOUT if job.out_of_queue:
            return f"what it waits for did not end within {BLOCKED_MAX_S / 86400:g} days"
        case JobEvent.QUEUE_TIMEOUT:
            return f"did not start within {job.spec.queue_timeout_s:g} s"
        case JobEvent.CLAIM_TIMEOUT:
            return "the VM did not claim the job in time"
        case JobEvent.START_TIMEOUT:
            return "the job did not start to run in time"
        case JobEvent.MAX_RUNTIME:
            return f"ran longer than its max runtime of {job.spec.max_runtime_s:g} s"
        case JobEvent.STOP_GRACE_OVER:
            return job.reason or "the worker did not stop the job in time"
        case _:
            return "the worker did not stop the job in time"
