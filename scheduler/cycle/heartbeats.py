"""What heartbeats mean. Pure: beats and the draft of a turn in, steps out.

Whatever does not match the live lease changes nothing, and its sender is told to stop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from core.changes import JobNote, JobProgress, VmBeat
from core.job import E, Job, JobEvent, JobStatus, S, TimelineEntry
from core.messages import BeatStatus, ContinueJob, Heartbeat, StopJob
from core.vm import VM_TRANSITIONS, Vm, VmState
from scheduler.cycle.unhealthy_vms import note_end, note_readings
from scheduler.plan_builder import Draft, stop_message
from scheduler.v1.worker_messages import ENDS, Claims, note, retire

log = structlog.get_logger("beats")
B = BeatStatus
_SPEAKS_FOR_A_JOB = frozenset({B.FOUND_VM, B.RUNNING, B.FROZEN})


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest of what is only to be known, by VM and by job."""

    beats: dict[str, VmBeat]
    progress: dict[str, JobProgress]

    def hear(self, uid: str, item: Beat) -> None:
        known = self.beats.get(uid)
        if known is None or item.published > known.at:
            self.beats[uid] = VmBeat(uid, item.published, item.beat.gpus)

    def heard_since(self, vm: Vm, moment: datetime) -> bool:
        """Whether the VM has spoken then or later."""
        known = self.beats.get(vm.uid)
        times = (vm.last_beat_at, known.at if known else None)
        return any(at is not None and moment <= at for at in times)

    def put(self, draft: Draft) -> None:
        """Into the draft, one for each VM and job."""
        for uid, beat in self.beats.items():
            draft.beats[uid] = beat.at
            draft.add(beat)
            note_readings(draft, uid, beat.gpus)
        for progress in self.progress.values():
            draft.add(progress)
            draft.progress.append(progress)

    def learn(self, job: Job, item: Beat) -> None:
        """What a newer word does not mention stays as an older one said."""
        beat, known = item.beat, self.progress.get(job.uid)
        said = JobProgress(
            job.uid, job.attempt, beat.progress, beat.checkpoint_step, item.published
        )
        if known is None or known.attempt != job.attempt:
            self.progress[job.uid] = said
            return
        older, newer = (known, said) if known.at <= said.at else (said, known)
        step = newer.checkpoint_step
        self.progress[job.uid] = replace(
            newer,
            progress=newer.progress or older.progress,
            checkpoint_step=older.checkpoint_step if step is None else step,
        )


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat with what the bus says of it."""

    beat: Heartbeat
    published: datetime
    message_id: str


def apply_beats(draft: Draft, beats: Iterable[Beat], v1: Collection[str] = ()) -> None:
    """Fold beats into the draft, in the order they came. Of what only tells that a worker lives
    and how far it is, the newest word is enough: a backlog holds many of each. `v1`: clusters whose
    workers send no lease."""
    claims = Claims(draft, v1)
    if v1:
        # v1 workers number nothing: what was said first is heard first, as far as it has come.
        beats = sorted(beats, key=lambda item: item.published)
    latest = Latest({}, {})
    vms, leases = draft.living.names, draft.living.leases
    for item in beats:
        uid = vms.get(item.beat.vm_name)
        if uid is None:
            log.info("beat of an unknown VM", vm=item.beat.vm_name, status=str(item.beat.status))
            continue
        job_uid = leases.get(item.beat.lease_id or "")
        if draft.vms[uid].cluster in v1 or draft.vms[uid].speaks_v1:
            said = claims.translate(draft.vms[uid], item.beat)
            if said is None:
                continue
            item, job_uid = replace(item, beat=said.beat), said.uid  # noqa: PLW2901
        vm = _identify(draft, draft.vms[uid], item, latest)
        if vm is None:
            continue
        _vm_beat(draft, vm, item, latest)
        if item.beat.job_id is not None:
            _job_beat(draft, vm, item, job_uid, latest)
    latest.put(draft)


# --- the VM ------------------------------------------------------------------------------


def _identify(draft: Draft, vm: Vm, item: Beat, latest: Latest) -> Vm | None:
    """The VM if the sender really is it: same machine, same boot. A new boot is a new worker."""
    beat = item.beat
    if vm.instance_id and beat.instance_id and vm.instance_id != beat.instance_id:
        log.info("beat of an older machine under this name", vm=vm.name, id=beat.instance_id)
        return None
    if not vm.boot_nonce or vm.boot_nonce == beat.boot_nonce:
        return vm
    if beat.status is not B.READY or latest.heard_since(vm, item.published):
        log.info("beat of another boot", vm=vm.name, nonce=beat.boot_nonce)
        _stray(draft, beat)
        return None
    for job in draft.jobs_on(vm.uid):
        draft.step(job, E.VM_LOST, f"the worker on {vm.name} started anew")
    current = draft.vms[vm.uid]
    renewed = replace(current, version=current.version + 1, boot_nonce=beat.boot_nonce)
    draft.put_vm(current, renewed)
    return renewed


def _vm_beat(draft: Draft, vm: Vm, item: Beat, latest: Latest) -> None:
    beat = item.beat
    latest.hear(vm.uid, item)
    if beat.status is B.UNREADY:
        _give_up_unready(draft, draft.vms[vm.uid], beat)
        return
    if vm.state in (VmState.REQUESTED, VmState.BOOTING):
        draft.move_vm(
            draft.vms[vm.uid],
            VmState.READY,
            "its worker is ready",
            instance_id=beat.instance_id or vm.instance_id,
            boot_nonce=beat.boot_nonce,
            zone=beat.zone or vm.zone,
            address=beat.address,
            running_since=vm.running_since or draft.now,
        )
    if beat.status is B.PREEMPTED and not vm.taken:
        _preemption_notice(draft, draft.vms[vm.uid], beat.reason)


def _give_up_unready(draft: Draft, vm: Vm, beat: Heartbeat) -> None:
    """It is paid for and cannot work: deleted, and its place is judged by it (cloud_unready)."""
    if VmState.DELETING not in VM_TRANSITIONS[vm.state]:
        return
    draft.move_vm(
        vm,
        VmState.DELETING,
        f"its worker cannot work: {beat.reason}",
        instance_id=beat.instance_id or vm.instance_id,
        boot_nonce=beat.boot_nonce,
        zone=beat.zone or vm.zone,
        running_since=vm.running_since or draft.now,
        health=replace(vm.health, unready=beat.reason or "it says no more"),
    )


def _preemption_notice(draft: Draft, vm: Vm, cause: str) -> None:
    """The cloud will take this VM soon: no new work; its jobs checkpoint now. `cause`: what takes
    it, if it is not a reclaim of a spot VM."""
    if vm.state is VmState.READY:
        reason = cause or "spot notice: the cloud takes it back"
        draft.move_vm(vm, VmState.DRAINING, reason, taken=True)
    else:
        draft.put_vm(vm, replace(vm, version=vm.version + 1, taken=True))
    for job in draft.jobs_on(vm.uid):
        note = TimelineEntry(
            at=draft.now,
            event="spot_notice",
            from_status=job.status,
            to_status=job.status,
            attempt=job.attempt,
            reason=f"{cause or 'the cloud takes the VM back'}: SIGTERM sent, checkpoint now",
            vm_name=vm.name,
            region=vm.region,
            dedup_key=f"spot-notice-{job.attempt}",
        )
        draft.add(JobNote(job.uid, note))


# --- the job -----------------------------------------------------------------------------


def _job_beat(draft: Draft, vm: Vm, item: Beat, uid: str | None, latest: Latest) -> None:
    beat = item.beat
    job = draft.jobs.get(uid) if uid else None
    lease = job.lease if job else None
    ours = lease is not None and (lease.lease_id, lease.vm_uid) == (beat.lease_id, vm.uid)
    if job is None or not ours or beat.attempt != job.attempt:
        _stray(draft, beat)
        return
    if beat.progress is not None or beat.checkpoint_step is not None:
        latest.learn(job, item)
        draft.hear(latest.progress[job.uid])
    if beat.status is B.FROZEN:
        _answer_frozen(draft, job, beat)
        return
    if beat.status is B.FOUND_VM:
        draft.claims.add(job.uid)
    if not isinstance(beat.status, BeatStatus):
        note(draft, job, beat, item.message_id)
        return
    for event, reason in _events(job, beat, draft.vms[vm.uid]):
        current = draft.jobs[job.uid]
        draft.step(current, event, reason, exit_code=beat.exit_code)
        note_end(draft, vm.uid, current, event)
        if event is E.VM_LOST:
            # The worker goes away with its machine: nothing more is placed there.
            draft.distrust(draft.vms[vm.uid], "its worker was stopped")
    if beat.version == 1 and beat.status in ENDS:
        retire(draft, vm.uid, draft.jobs[job.uid])


def _stray(draft: Draft, beat: Heartbeat) -> None:
    """It works for a lease that is no more: tell it to stop, change nothing."""
    if beat.status not in _SPEAKS_FOR_A_JOB or beat.lease_id is None or beat.job_id is None:
        return
    log.info("beat for a lease that is not live", vm=beat.vm_name, job=beat.job_id)
    draft.tell(
        StopJob(
            vm_name=beat.vm_name,
            boot_nonce=beat.boot_nonce,
            job_id=beat.job_id,
            user_id=beat.user_id,
            attempt=beat.attempt or 0,
            lease_id=beat.lease_id,
            grace_s=0,
            reason="this lease is not live any more",
        )
    )


def _answer_frozen(draft: Draft, job: Job, beat: Heartbeat) -> None:
    if job.status is JobStatus.STOPPING:
        draft.tell(stop_message(job, beat.boot_nonce, job.reason))
        return
    draft.tell(
        ContinueJob(
            vm_name=beat.vm_name,
            boot_nonce=beat.boot_nonce,
            job_id=job.spec.job_id,
            user_id=job.spec.user_id,
            attempt=job.attempt,
            lease_id=beat.lease_id or "",
            answers=beat.seq,
        )
    )


def _events(job: Job, beat: Heartbeat, vm: Vm) -> list[tuple[JobEvent, str]]:
    """The steps that a beat stands for. A beat that overtook its elders implies them: an exit
    from ASSIGNED means that the worker had claimed it."""
    claimed = [(E.CLAIMED, f"claimed by {beat.vm_name}")] if job.status is S.ASSIGNED else []
    if beat.version == 1 and claimed:
        claimed = [(E.STARTED, f"running on {beat.vm_name}")]
    match beat.status:
        case B.FOUND_VM if beat.version == 1:
            return []  # the claim itself has bound it
        case B.FOUND_VM:
            return [(E.CLAIMED, f"claimed by {beat.vm_name}")]
        case B.RUNNING:
            return [(E.STARTED, f"running on {beat.vm_name}")]
        case B.COMPLETED:
            return [*claimed, (E.EXITED_OK, "exit code 0")]
        case B.FAILED if beat.exit_code is None:
            # It never ran: the worker refused it (draining, busy). Not the user's failure.
            return [(E.VM_LOST, beat.reason or f"{beat.vm_name} refused the job")]
        case B.FAILED:
            event = E.YIELDED if job.status is S.PREEMPTING else E.EXITED_ERROR
            return [*claimed, (event, beat.reason or f"exit code {beat.exit_code}")]
        case B.STOPPED:
            return _stopped(job, beat)
        case B.PREEMPTED:
            return [(E.SPOT_TAKEN, vm.taken_words)]
        case _:
            return []


def _stopped(job: Job, beat: Heartbeat) -> list[tuple[JobEvent, str]]:
    if job.status is S.STOPPING:
        return [(E.STOPPED, job.reason or "stopped")]
    if job.status is S.PREEMPTING:
        return [(E.YIELDED, "yielded its VM")]
    # The worker itself was told to go (its machine shuts down), or never had the lease: the job
    # did nothing wrong.
    return [(E.VM_LOST, beat.reason or f"the worker on {beat.vm_name} was stopped")]
