"""What heartbeats mean. Pure: heartbeats and the plan builder of a cycle in, steps out.

Whatever does not match the live lease changes nothing, and its sender is told to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from core.changes import JobNote, JobProgress, VmHeartbeat
from core.job import E, Job, JobEvent, JobStatus, S, TimelineEntry
from core.job_steps import EventFacts
from core.messages import NOTHING_READ, ContinueJob, Heartbeat, HeartbeatStatus, StopJob
from core.vm import Vm, VmEvent
from core.worker_identity import ProvenKeys
from scheduler.cycle.unhealthy_vms import note_end, note_readings
from scheduler.plan_builder import PlanBuilder, address_of, stop_message
from scheduler.v1.worker_messages import ENDS, Claims, note, retire

log = structlog.get_logger("heartbeats")
B = HeartbeatStatus
_SPEAKS_FOR_A_JOB = frozenset({B.FOUND_VM, B.RUNNING, B.FROZEN})


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest of what is only to be known, by VM and by job."""

    heartbeats: dict[str, VmHeartbeat]
    progress: dict[str, JobProgress]
    boots: dict[str, int] = field(default_factory=dict)
    """VM → the place of the atomic batch by which its new boot becomes known."""

    def is_news(self, vm: Vm, heartbeat: Heartbeat) -> bool:
        """Whether the boot has not said anything later. What comes again, or late, shows no life:
        a heartbeat that somebody kept would make a dead VM look alive. v1 workers number
        nothing."""
        known = self.heartbeats.get(vm.uid)
        return heartbeat.version == 1 or heartbeat.seq > max(
            vm.heard_seq, known.seq if known else 0
        )

    def hear(self, uid: str, item: ReceivedHeartbeat, *, signed: bool) -> None:
        known, seq = self.heartbeats.get(uid), item.heartbeat.seq
        if known is None or item.published > known.at:
            readings = item.heartbeat.readings
            # A faulty GPU takes its VM out of use: that is signed.
            if not signed and any(gpu.fault or gpu.ecc_errors for gpu in readings.gpus):
                readings = NOTHING_READ
            self.heartbeats[uid] = VmHeartbeat(uid, item.published, readings, seq)
        elif seq > known.seq:
            self.heartbeats[uid] = replace(known, seq=seq)

    def heard_since(self, vm: Vm, moment: datetime) -> bool:
        """Whether the VM has spoken then or later."""
        known = self.heartbeats.get(vm.uid)
        times = (vm.last_beat_at, known.at if known else None)
        return any(at is not None and moment <= at for at in times)

    def put(self, plan: PlanBuilder) -> None:
        """Into the plan builder, one for each VM and job."""
        for uid, heartbeat in self.heartbeats.items():
            plan.heartbeats[uid] = heartbeat.at
            if (place := self.boots.get(uid)) is not None:
                # A boot that is not accepted after all has not been heard: its numbers begin anew.
                plan.batches[place] = (*plan.batches[place], heartbeat)
            else:
                plan.add(heartbeat)
            note_readings(plan, uid, heartbeat.readings)
        for progress in self.progress.values():
            plan.add(progress)
            plan.progress.append(progress)

    def learn(self, job: Job, item: ReceivedHeartbeat) -> None:
        """What a newer word does not mention stays as an older one said."""
        heartbeat, known = item.heartbeat, self.progress.get(job.uid)
        said = JobProgress(
            job.uid, job.attempt, heartbeat.progress, heartbeat.checkpoint_step, item.published
        )
        same = known is not None and known.attempt == job.attempt
        self.progress[job.uid] = said.joined(known) if same else said


@dataclass(frozen=True, slots=True)
class ReceivedHeartbeat:
    """A heartbeat with what the bus says of it."""

    heartbeat: Heartbeat
    published: datetime
    message_id: str
    body: bytes = b""
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Proven:
    """What is known of a heartbeat's sender."""

    signed: bool
    """Else a MAC: it shows life and progress, and changes no state."""
    keys: ProvenKeys | None = None
    """Of a boot that was not known before."""


Check = Callable[[Vm, ReceivedHeartbeat], Proven | None]
"""Who sent a heartbeat that names the VM; None: nobody that is known."""


def apply_heartbeats(
    plan: PlanBuilder,
    heartbeats: Iterable[ReceivedHeartbeat],
    check: Check,
    v1: Collection[str] = (),
) -> None:
    """Fold heartbeats into the plan builder, in the order they came. Of what only tells that a
    worker lives and how far it is, the newest word is enough: a backlog holds many of each. `v1`:
    clusters whose workers send no lease."""
    claims = Claims(plan, v1)
    if v1:
        # v1 workers number nothing: what was said first is heard first, as far as it has come.
        heartbeats = sorted(heartbeats, key=lambda item: item.published)
    latest = Latest({}, {})
    vms, leases = plan.active.names, plan.active.leases
    for item in heartbeats:
        uid = vms.get(item.heartbeat.vm_name)
        if uid is None:
            log.info(
                "heartbeat of an unknown VM",
                vm=item.heartbeat.vm_name,
                status=str(item.heartbeat.status),
            )
            continue
        job_uid, known = leases.get(item.heartbeat.lease_id or ""), plan.vms[uid]
        if known.cluster in v1 or known.speaks_v1:
            # v1 workers prove nothing: only clusters of trusted tenants have them.
            said = claims.translate(known, item.heartbeat)
            if said is None:
                continue
            item, job_uid = replace(item, heartbeat=said.heartbeat), said.uid  # noqa: PLW2901
            proven: Proven | None = _V1
        else:
            proven = check(known, item)
        if proven is None:
            continue
        vm = _identify(plan, plan.vms[uid], item, latest, proven)
        if vm is None:
            continue
        news = latest.is_news(vm, item.heartbeat)
        _vm_heartbeat(plan, vm, item, latest, proven, news=news)
        if item.heartbeat.job_id is not None and (proven.signed or news):
            _job_heartbeat(plan, vm, item, job_uid, latest, signed=proven.signed)
    latest.put(plan)


_V1 = Proven(signed=True)


# --- the VM ------------------------------------------------------------------------------


def _identify(
    plan: PlanBuilder, vm: Vm, item: ReceivedHeartbeat, latest: Latest, proven: Proven
) -> Vm | None:
    """The VM if the sender really is it: same machine, same boot. A new boot is a new worker."""
    heartbeat = item.heartbeat
    if vm.instance_id and heartbeat.instance_id and vm.instance_id != heartbeat.instance_id:
        log.info("heartbeat of an older VM of this name", vm=vm.name, id=heartbeat.instance_id)
        return None
    if not vm.boot_nonce or vm.boot_nonce == heartbeat.boot_nonce:
        return vm
    if heartbeat.status is not B.READY or latest.heard_since(vm, item.published):
        log.info("heartbeat of another boot", vm=vm.name, nonce=heartbeat.boot_nonce)
        _stray(plan, heartbeat)
        return None
    for job in plan.jobs_on(vm.uid):
        plan.step(job, E.VM_LOST, f"the worker on {vm.name} started anew")
    current = plan.vms[vm.uid]
    latest.heartbeats.pop(vm.uid, None)
    latest.boots[vm.uid] = len(plan.batches)
    return plan.learn_vm(
        current, boot_nonce=heartbeat.boot_nonce, worker_keys=proven.keys, heard_seq=0
    )


def _vm_heartbeat(
    plan: PlanBuilder,
    vm: Vm,
    item: ReceivedHeartbeat,
    latest: Latest,
    proven: Proven,
    *,
    news: bool,
) -> None:
    heartbeat = item.heartbeat
    if news:
        latest.hear(vm.uid, item, signed=proven.signed)
    if not proven.signed:
        return
    if heartbeat.status is B.UNREADY:
        _give_up_unready(plan, plan.vms[vm.uid], heartbeat, proven)
        return
    if vm.state.in_flight:
        plan.advance_vm(
            plan.vms[vm.uid],
            VmEvent.WORKER_READY,
            "its worker is ready",
            instance_id=heartbeat.instance_id or vm.instance_id,
            boot_nonce=heartbeat.boot_nonce,
            worker_keys=proven.keys or vm.worker_keys,
            heard_seq=heartbeat.seq,
            zone=heartbeat.zone or vm.zone,
            address=heartbeat.address,
            running_since=vm.running_since or plan.now,
        )
    if heartbeat.status is B.PREEMPTED and not vm.taken:
        _preemption_notice(plan, plan.vms[vm.uid], heartbeat.reason)


def _give_up_unready(plan: PlanBuilder, vm: Vm, heartbeat: Heartbeat, proven: Proven) -> None:
    """It is paid for and cannot work: deleted, and its place is judged by it (cloud_unready)."""
    if vm.state.beyond_use:
        return
    plan.advance_vm(
        vm,
        VmEvent.DELETE_ASKED,
        f"its worker cannot work: {heartbeat.reason}",
        instance_id=heartbeat.instance_id or vm.instance_id,
        boot_nonce=heartbeat.boot_nonce,
        worker_keys=proven.keys or vm.worker_keys,
        zone=heartbeat.zone or vm.zone,
        running_since=vm.running_since or plan.now,
        health=replace(vm.health, unready=heartbeat.reason or "it says no more"),
    )


def _preemption_notice(plan: PlanBuilder, vm: Vm, cause: str) -> None:
    """The cloud will take this VM soon: no new work; its jobs checkpoint now. `cause`: what takes
    it, if it is not a reclaim of a spot VM."""
    reason = cause or "spot notice: the cloud takes it back"
    plan.advance_vm(vm, VmEvent.RECLAIM_NOTICED, reason, taken=True)
    for job in plan.jobs_on(vm.uid):
        note = TimelineEntry(
            at=plan.now,
            event="spot_notice",
            from_status=job.status,
            to_status=job.status,
            attempt=job.attempt,
            reason=f"{cause or 'the cloud takes the VM back'}: SIGTERM sent, checkpoint now",
            vm_name=vm.name,
            region=vm.region,
            dedup_key=f"spot-notice-{job.attempt}",
        )
        plan.add(JobNote(job.uid, note))


# --- the job -----------------------------------------------------------------------------


def _job_heartbeat(
    plan: PlanBuilder,
    vm: Vm,
    item: ReceivedHeartbeat,
    uid: str | None,
    latest: Latest,
    *,
    signed: bool,
) -> None:
    heartbeat = item.heartbeat
    job = plan.jobs.get(uid) if uid else None
    lease = job.lease if job else None
    ours = lease is not None and (lease.lease_id, lease.vm_uid) == (heartbeat.lease_id, vm.uid)
    if job is None or not ours or heartbeat.attempt != job.attempt:
        _stray(plan, heartbeat)
        return
    if heartbeat.progress is not None or heartbeat.checkpoint_step is not None:
        latest.learn(job, item)
        plan.hear(latest.progress[job.uid])
    if heartbeat.status is B.FROZEN:
        _answer_frozen(plan, job, heartbeat)
        return
    if not signed:
        return
    if heartbeat.status is B.FOUND_VM:
        plan.claims.add(job.uid)
    if not isinstance(heartbeat.status, HeartbeatStatus):
        note(plan, job, heartbeat, item.message_id)
        return
    for event, reason in _events(job, heartbeat, plan.vms[vm.uid]):
        current = plan.jobs[job.uid]
        plan.step(current, event, reason, facts=EventFacts(exit_code=heartbeat.exit_code))
        note_end(plan, vm.uid, current, event)
        if event is E.VM_LOST:
            # The worker goes away with its machine: nothing more is placed there.
            plan.retire_vm(plan.vms[vm.uid], "its worker was stopped")
    if heartbeat.version == 1 and heartbeat.status in ENDS:
        retire(plan, vm.uid, plan.jobs[job.uid])


def _stray(plan: PlanBuilder, heartbeat: Heartbeat) -> None:
    """It works for a lease that is no more: tell it to stop, change nothing."""
    if (
        heartbeat.status not in _SPEAKS_FOR_A_JOB
        or heartbeat.lease_id is None
        or heartbeat.job_id is None
    ):
        return
    log.info("heartbeat for a lease that ended", vm=heartbeat.vm_name, job=heartbeat.job_id)
    plan.tell(
        StopJob(
            vm_name=heartbeat.vm_name,
            boot_nonce=heartbeat.boot_nonce,
            job_id=heartbeat.job_id,
            user_id=heartbeat.user_id,
            attempt=heartbeat.attempt or 0,
            lease_id=heartbeat.lease_id,
            grace_s=0,
            reason="this lease is not live any more",
        )
    )


def _answer_frozen(plan: PlanBuilder, job: Job, heartbeat: Heartbeat) -> None:
    if job.status is JobStatus.STOPPING:
        plan.tell(stop_message(job, heartbeat.boot_nonce, job.reason))
        return
    plan.tell(ContinueJob(**address_of(job, heartbeat.boot_nonce), answers=heartbeat.seq))


def _events(job: Job, heartbeat: Heartbeat, vm: Vm) -> list[tuple[JobEvent, str]]:
    """The steps that a heartbeat stands for. A heartbeat that overtook its elders implies them: an
    exit from ASSIGNED means that the worker had claimed it."""
    claimed = [(E.CLAIMED, f"claimed by {heartbeat.vm_name}")] if job.status is S.ASSIGNED else []
    if heartbeat.version == 1 and claimed:
        claimed = [(E.STARTED, f"running on {heartbeat.vm_name}")]
    match heartbeat.status:
        case B.FOUND_VM if heartbeat.version == 1:
            return []  # the claim itself has bound it
        case B.FOUND_VM:
            return [(E.CLAIMED, f"claimed by {heartbeat.vm_name}")]
        case B.RUNNING:
            return [(E.STARTED, f"running on {heartbeat.vm_name}")]
        case B.COMPLETED:
            return [*claimed, (E.EXITED_OK, "exit code 0")]
        case B.FAILED if heartbeat.exit_code is None:
            # It never ran: the worker refused it (draining, busy). Not the user's failure.
            return [(E.VM_LOST, heartbeat.reason or f"{heartbeat.vm_name} refused the job")]
        case B.FAILED:
            event = E.PREEMPTED if job.status is S.PREEMPTING else E.EXITED_ERROR
            return [*claimed, (event, heartbeat.reason or f"exit code {heartbeat.exit_code}")]
        case B.STOPPED:
            return _stopped(job, heartbeat)
        case B.PREEMPTED:
            return [(E.RECLAIMED, vm.reclaimed_words)]
        case _:
            return []


def _stopped(job: Job, heartbeat: Heartbeat) -> list[tuple[JobEvent, str]]:
    if job.status is S.STOPPING:
        return [(E.STOPPED, job.reason or "stopped")]
    if job.status is S.PREEMPTING:
        return [(E.PREEMPTED, "gave its VM back")]
    # The worker itself was told to go (its machine shuts down), or never had the lease: the job
    # did nothing wrong.
    return [(E.VM_LOST, heartbeat.reason or f"the worker on {heartbeat.vm_name} was stopped")]
