"""v1 workers at the edge: what they say, in the words of our own workers. Pure.

A v1 worker sends no token, so it is known by its VM. It takes a start message by itself; its first
word about the job is the claim, and binds job and VM. After that its heartbeats are those of any
other worker. A worker that speaks for a job that is not its VM's changes nothing and is removed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from core.changes import JobNote
from core.job import E, Job, Lease, S, TimelineEntry
from core.job_steps import EventFacts, offered
from core.messages import Heartbeat, HeartbeatStatus, StopJob
from core.vm import Vm, VmEvent, take_lease
from scheduler.plan_builder import PlanBuilder

log = structlog.get_logger("v1")
_BOOT_NONCE = "v1"
"""v1 workers send none; every VM with a worker has one."""
B = HeartbeatStatus
FAILED_CODE = 1
"""v1 workers tell that a job has failed, not how."""
ENDS = frozenset({B.COMPLETED, B.FAILED, B.STOPPED})
_SPEAKS_OF_WORK = frozenset({B.FOUND_VM, B.RUNNING})


@dataclass(frozen=True, slots=True)
class WorkerMessage:
    """What a v1 worker said, and for which job."""

    heartbeat: Heartbeat
    uid: str


class Claims:
    """Who works for whom on v1 clusters, as one cycle's heartbeats tell it."""

    def __init__(self, plan: PlanBuilder, clusters: Collection[str]) -> None:
        self._plan = plan
        self._clusters = clusters
        self._by_key: dict[tuple[str, str], str] | None = None

    def translate(self, vm: Vm, heartbeat: Heartbeat) -> WorkerMessage | None:
        """The heartbeat with the proof of its lease, after the claim if it is one; None: it changes
        nothing."""
        if heartbeat.version != 1 or heartbeat.job_id is None:
            log.warning(
                "not a v1 heartbeat, from a v1 cluster", vm=vm.name, status=str(heartbeat.status)
            )
            return None
        if vm.kept_until is not None:
            return None  # its one job is over: a late word, or a repeat
        job = self._job(vm, (heartbeat.user_id, heartbeat.job_id))
        if job is not None and job.lease is None:
            job = self._claim(job, vm)
        if job is None or job.lease is None or job.lease.vm_uid != vm.uid:
            self._refuse(vm, heartbeat)
            return None
        proven = replace(
            heartbeat,
            attempt=job.attempt,
            lease_id=job.lease.lease_id,
            boot_nonce=_BOOT_NONCE,
            exit_code=FAILED_CODE if heartbeat.status is B.FAILED else None,
        )
        return WorkerMessage(proven, job.uid)

    def _index(self) -> dict[tuple[str, str], str]:
        """All that a v1 worker may speak for. Made when the first of them speaks."""
        if self._by_key is None:
            plan = self._plan
            waiting = [job for job in plan.waiting() if job.cluster in self._clusters]
            leased = [job for name in sorted(self._clusters) for job in plan.leased_in(name)]
            self._by_key = {job.v1_key: job.uid for job in (*waiting, *leased)}
        return self._by_key

    def _job(self, vm: Vm, key: tuple[str, str]) -> Job | None:
        for job in self._plan.jobs_on(vm.uid):
            if job.v1_key == key:
                return job
        uid = self._index().get(key)
        return self._plan.jobs[uid] if uid is not None else None

    def _claim(self, job: Job, vm: Vm) -> Job | None:
        """The first that speaks for a waiting job has it. None: this one cannot."""
        if job.status is not S.PROVISIONING or job.cluster != vm.cluster or vm.leases:
            return None
        if not vm.state.in_flight:
            # It goes already, with the message: who waits for its end must know whose end.
            self._change_places(job, vm)
            return None
        plan = self._plan
        lease = Lease(
            lease_id=job.offer.lease_id if job.offer else f"{job.uid}-{job.attempt + 1}",
            vm_name=vm.name,
            vm_uid=vm.uid,
            region=vm.region,
            zone=vm.zone,
            slots=tuple(range(vm.slots)),
        )
        with plan.together():
            self._change_places(job, vm)
            ready = plan.advance_vm(
                vm,
                VmEvent.WORKER_READY,
                "its v1 worker has taken a job",
                boot_nonce=_BOOT_NONCE,
                worker="v1",
                running_since=vm.running_since or plan.now,
            )
            held = take_lease(ready, lease.lease_id)
            reason = f"taken by the v1 worker on {vm.name} in {vm.region}"
            return plan.step(
                plan.jobs[job.uid], E.FOUND_BY_V1, reason, facts=EventFacts(lease=lease), vm=held
            )

    def _change_places(self, job: Job, vm: Vm) -> None:
        """The message that was sent for this VM is still to be had by the one that this job's was
        sent for."""
        out = job.offer
        if out is None or out.vm_uid == vm.uid:
            return
        plan = self._plan
        other = next(
            (
                waits
                for waits in plan.waiting()
                if waits.offer is not None and waits.offer.vm_uid == vm.uid
            ),
            None,
        )
        if other is not None and other.offer is not None:
            plan.put_job(other, offered(other, replace(other.offer, vm_uid=out.vm_uid)))
        plan.put_job(job, offered(job, replace(out, vm_uid=vm.uid)))

    def _refuse(self, vm: Vm, heartbeat: Heartbeat) -> None:
        """The job is over, waits in the queue again, or is another VM's."""
        if vm.leases:
            log.info("word about a job that is not this VM's", vm=vm.name, job=heartbeat.job_id)
            return
        if vm.state.deleting:
            return
        log.info(
            "claim lost, its VM goes",
            vm=vm.name,
            job=heartbeat.job_id,
            status=str(heartbeat.status),
        )
        # A stop names no VM and no user: while anybody works under this id, it would find the
        # wrong one. The VM is deleted either way.
        if heartbeat.status in _SPEAKS_OF_WORK and not self._is_at_work(heartbeat.job_id):
            self._plan.tell(_stop(vm, heartbeat))
        self._plan.delete_vm(vm, f"its v1 worker took job {heartbeat.job_id}, which is not its own")

    def _is_at_work(self, job_id: str | None) -> bool:
        same = (uid for (_, known), uid in self._index().items() if known == job_id)
        jobs = (self._plan.jobs[uid] for uid in same)
        return any(job.lease or job.offer for job in jobs)


def _stop(vm: Vm, heartbeat: Heartbeat) -> StopJob:
    return StopJob(
        vm_name=vm.name,
        boot_nonce=_BOOT_NONCE,
        job_id=heartbeat.job_id or "",
        user_id=heartbeat.user_id,
        attempt=0,
        lease_id="",
        grace_s=0,
        reason="this job is not this VM's",
    )


def retire(plan: PlanBuilder, vm_uid: str, job: Job) -> None:
    """A v1 worker has one job and deletes its VM. It has a moment for that; with keep_alive the VM
    is its owner's for as long as is allowed, and is deleted then."""
    vm, timers = plan.vms[vm_uid], plan.rules.timers.of_worker("v1")
    if not vm.idle:
        return
    kept = job.spec.keep_alive and job.status.final
    until = plan.now + timedelta(seconds=timers.keep_alive_s if kept else timers.stop_margin_s)
    words = (
        f"kept for {job.spec.user_id} until {until:%Y-%m-%d %H:%M:%S} UTC (keep_alive of job "
        f"{job.spec.job_id})"
        if kept
        else "its v1 worker has done its one job"
    )
    plan.advance_vm(vm, VmEvent.DRAIN_ASKED, words, kept_until=until)


def note(plan: PlanBuilder, job: Job, heartbeat: Heartbeat, message_id: str) -> None:
    """A progress note of a workflow: on the timeline, and nothing else."""
    entry = TimelineEntry(
        at=plan.now,
        event=str(heartbeat.status),
        from_status=job.status,
        to_status=job.status,
        attempt=job.attempt,
        reason="",
        vm_name=heartbeat.vm_name,
        data=dict(heartbeat.note),
        dedup_key=f"note-{message_id}",
    )
    plan.add(JobNote(job.uid, entry))
