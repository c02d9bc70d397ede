"""Who runs next, on what, and why the others wait. Pure: a draft in, steps out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from core.capacity import VM_TRANSITIONS, ClusterSpec, Trouble, Vm, VmState, take_lease
from core.changes import JobWhy, View
from core.job import DEADLINE_EVENT, E, Job, JobEvent, JobStatus, Lease, S
from core.messages import StartJob
from core.ports import Ids
from scheduler.draft import Draft, stop_message
from scheduler.silence import Silence

V = VmState
# While the bus is away a worker's word cannot reach us: these clocks stand still.
_NEEDS_THE_BUS = frozenset({S.ASSIGNED, S.STARTING})
# After these the worker did not do as told: its VM is not trusted with another job.
_DISTRUST = frozenset({E.STOP_GRACE_OVER, E.YIELD_GRACE_OVER})


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the plan must know besides the rows."""

    clusters: Mapping[str, ClusterSpec]
    silence: Silence
    bus_steady: bool


def plan_jobs(draft: Draft, view: View, around: Circumstances, ids: Ids) -> list[JobWhy]:
    """All steps of a turn, in order; returns the news about why jobs wait."""
    lose_vms(draft, around.silence)
    requeue_lost(draft, around.silence)
    meet_deadlines(draft, around.bus_steady)
    waiting = in_order(draft.jobs.values())
    for name, jobs in _by_cluster(waiting).items():
        spec = around.clusters.get(name)
        if spec is not None:
            admit(draft, spec, jobs)
            place(draft, spec, ids)
    return explain(draft, view, around.clusters)


# --- what went wrong ---------------------------------------------------------------------


def lose_vms(draft: Draft, silence: Silence) -> None:
    """Silent VMs are lost: their names are deleted, their jobs go back."""
    for vm in silence.lost:
        draft.doom(draft.vms[vm.uid], "silent for too long")


def requeue_lost(draft: Draft, silence: Silence) -> None:
    """Jobs whose VM is gone, or going with no worker alive on it. A VM that is only being deleted
    may still compute: its job waits until it is observed off or gone, falls silent, or its worker
    has spoken. That costs seconds, and two VMs never compute the same job."""
    silent = {vm.uid for vm in silence.lost}
    for job in list(draft.jobs.values()):
        if job.lease is None:
            continue
        vm = draft.vms.get(job.lease.vm_uid)
        # A silent worker has frozen what it ran; a start that is still on its way to it has not
        # been frozen by anybody.
        frozen = job.status is not S.ASSIGNED and job.lease.vm_uid in silent
        if vm is not None and not frozen and not _is_dead(vm):
            continue
        if vm is not None and vm.taken:
            draft.step(job, E.SPOT_TAKEN, f"{vm.name} was taken back by the cloud (spot)")
            continue
        cause = f": {vm.reason}" if vm is not None and vm.reason else ""
        draft.step(job, _loss_event(job, draft.now), f"{job.lease.vm_name} was lost{cause}")


def _is_dead(vm: Vm) -> bool:
    return vm.state is V.GONE or (vm.state is V.DELETING and not vm.boot_nonce)


def _loss_event(job: Job, now: datetime) -> JobEvent:
    """A VM that was given up because its worker did not do as told is that deadline's loss."""
    late = job.deadline_at is not None and job.deadline_at <= now
    return DEADLINE_EVENT[job.status] if late and job.status in _NEEDS_THE_BUS else E.VM_LOST


def meet_deadlines(draft: Draft, bus_steady: bool) -> None:
    """Every state that is not final moves by itself in the end."""
    for job in list(draft.jobs.values()):
        if job.deadline_at is None or job.deadline_at > draft.now:
            continue
        if job.status in _NEEDS_THE_BUS:
            if bus_steady:
                _give_up_worker(draft, job)
            continue
        event = DEADLINE_EVENT[job.status]
        vm = draft.vms.get(job.lease.vm_uid) if job.lease else None
        reason = _deadline_reason(job, event)
        tell = [stop_message(job, vm.boot_nonce if vm else "", reason)] if job.lease else []
        draft.step(job, event, reason, tell=tell)
        if vm is not None and event in _DISTRUST:
            draft.doom(draft.vms[vm.uid], reason)


def _give_up_worker(draft: Draft, job: Job) -> None:
    """It did not claim or start the job in time, but it may be about to: it is told to stop and
    its VM goes; the job goes back once nothing can run there."""
    assert job.lease is not None, f"a job that is {job.status} holds a lease"
    vm = draft.vms.get(job.lease.vm_uid)
    if vm is None or V.DELETING not in VM_TRANSITIONS[vm.state]:
        return
    reason = _deadline_reason(job, DEADLINE_EVENT[job.status])
    draft.tell(stop_message(job, vm.boot_nonce, reason))
    draft.doom(vm, reason)


def _deadline_reason(job: Job, event: JobEvent) -> str:
    match event:
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
            return "the worker did not yield the job in time"


# --- who is next -------------------------------------------------------------------------


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Waiting jobs, the next one first: priority, then arrival."""
    waiting = [job for job in jobs if job.status in (S.QUEUED, S.PROVISIONING)]
    waiting.sort(key=lambda job: (-job.spec.priority, job.queued_since, job.uid))
    return waiting


def _by_cluster(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.cluster, []).append(job)
    return groups


def admit(draft: Draft, spec: ClusterSpec, jobs: Sequence[Job]) -> None:
    """The first `room` waiting jobs count as demand; one that lost its rank goes back."""
    leased = sum(j.cluster == spec.name and j.status.leased for j in draft.jobs.values())
    room = max(0, spec.vm_max - leased)
    for rank, job in enumerate(jobs):
        if rank < room and job.status is S.QUEUED:
            draft.step(job, E.ADMITTED, f"admitted to {spec.name}")
        elif rank >= room and job.status is S.PROVISIONING:
            draft.step(job, E.WITHDRAWN, "another job goes first, or the limit was lowered")


def place(draft: Draft, spec: ClusterSpec, ids: Ids) -> None:
    """Idle VMs serve the queue first: the cheapest that fits, one job each."""
    idle = sorted(
        (vm for vm in draft.vms.values() if vm.cluster == spec.name and _may_work(vm)),
        key=attrgetter("usd_per_hour", "name"),
    )
    admitted = (j for j in draft.jobs.values() if j.cluster == spec.name)
    for job in in_order(j for j in admitted if j.status is S.PROVISIONING):
        vm = next((vm for vm in idle if _fits(job, vm)), None)
        if vm is None:
            continue
        idle.remove(vm)
        _assign(draft, job, vm, ids)


def _may_work(vm: Vm) -> bool:
    return vm.idle and not vm.taken and bool(vm.boot_nonce)


def _fits(job: Job, vm: Vm) -> bool:
    return job.spec.gpu_count <= vm.gpus and (not job.spec.regions or vm.region in job.spec.regions)


def _assign(draft: Draft, job: Job, vm: Vm, ids: Ids) -> None:
    lease = Lease(
        lease_id=ids.token(),
        vm_name=vm.name,
        vm_uid=vm.uid,
        region=vm.region,
        zone=vm.zone,
        slots=tuple(range(job.spec.gpu_count)),
    )
    start = StartJob(
        vm_name=vm.name,
        boot_nonce=vm.boot_nonce,
        spec=job.spec,
        cluster=job.cluster,
        region=vm.region,
        attempt=job.attempt + 1,
        lease_id=lease.lease_id,
        slots=lease.slots,
        resume=job.attempt > 0,
    )
    held = take_lease(vm, lease.lease_id)
    reason = f"placed on {vm.name} in {vm.region}"
    draft.step(job, E.PLACED, reason, lease=lease, vm=held, tell=[start], slots=list(lease.slots))


# --- why the others wait -----------------------------------------------------------------


def explain(draft: Draft, view: View, clusters: Mapping[str, ClusterSpec]) -> list[JobWhy]:
    """The why of every waiting job whose words changed. No durations and no counts of jobs in the
    text: a sentence that changes with each job that ends would be written for the whole queue."""
    news: list[JobWhy] = []
    for name, jobs in _by_cluster(in_order(draft.jobs.values())).items():
        spec = clusters.get(name)
        supply: dict[tuple[str, ...], str] = {}
        for job in jobs:
            wish = job.spec.regions
            if spec is not None and wish not in supply:
                supply[wish] = _supply_words(draft, view.troubles, spec, wish)
            why = _why(job, spec, supply.get(wish, ""))
            if view.whys.get(job.uid) != why:
                news.append(JobWhy(job.uid, why))
    return news


def _why(job: Job, spec: ClusterSpec | None, supply: str) -> str:
    if spec is None:
        return f"cluster {job.cluster} is not in the configuration any more"
    if job.status is JobStatus.PROVISIONING:
        return supply
    return f"cluster {spec.name} is at its limit of {spec.vm_max} VMs, and other jobs are ahead"


def _supply_words(
    draft: Draft, troubles: Sequence[Trouble], spec: ClusterSpec, wish: tuple[str, ...]
) -> str:
    """What keeps VMs from jobs that allow these regions (none named: any)."""
    vms = [vm for vm in draft.vms.values() if vm.cluster == spec.name]
    in_flight = (vm for vm in vms if vm.state in (V.REQUESTED, V.BOOTING))
    coming = sorted({vm.region for vm in in_flight if not wish or vm.region in wish})
    blocked = [
        f"{t.region} {t.kind} until {t.until:%H:%M:%S} UTC"
        for t in sorted(troubles, key=attrgetter("region"))
        if _concerns(t, spec, draft.now) and (not wish or t.region in wish)
    ]
    words = [f"waits for a VM in {', '.join(coming)}" if coming else "waits for a VM"]
    if blocked:
        words.append("; ".join(blocked))
    counted = sum(vm.counted for vm in vms)
    if not coming and counted >= spec.vm_max:
        words.append(f"cluster limit {spec.vm_max} reached")
    return "; ".join(words)


def _concerns(trouble: Trouble, spec: ClusterSpec, now: datetime) -> bool:
    place = (trouble.machine_type, trouble.spot) == (spec.machine_type, spec.spot)
    return place and trouble.blocks(now) and any(r.region == trouble.region for r in spec.regions)
