"""What heartbeats mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.changes import JobMove, JobNote, JobProgress, VmHeartbeat, VmMove
from core.job import E, Job, JobStatus, S
from core.messages import (
    ContinueJob,
    Control,
    Heartbeat,
    HeartbeatStatus,
    OutMessage,
    Progress,
    StopJob,
)
from core.vm import Vm, VmState
from scheduler.cycle.heartbeats import ReceivedHeartbeat, apply_heartbeats
from scheduler.plan_builder import PlanBuilder
from tests.builders import RULES, at, job, snapshot, vm
from tests.workers import trusted

B, V = HeartbeatStatus, VmState


def heartbeat(status: HeartbeatStatus, **words: object) -> ReceivedHeartbeat:
    said = {"vm_name": "vm-1", "boot_nonce": "nonce", "seq": 1, **words}
    return ReceivedHeartbeat(Heartbeat(status=status, **said), at(10), "m-1")  # type: ignore[arg-type]


def job_heartbeat(status: HeartbeatStatus, **words: object) -> ReceivedHeartbeat:
    return heartbeat(status, **{"job_id": "job-1", "attempt": 1, "lease_id": "lease-1", **words})


class Heard:
    """Heartbeats folded over a job on its VM."""

    def __init__(self, held: Job | None, on: Vm, *heartbeats: ReceivedHeartbeat) -> None:
        self.told: list[Control] = []
        self.plan = PlanBuilder(snapshot((held,) if held else (), (on,)), RULES, self._encode)
        apply_heartbeats(self.plan, heartbeats, trusted)

    def _encode(self, message: Control) -> OutMessage:
        self.told.append(message)
        return OutMessage("control", b"")

    @property
    def job(self) -> Job:
        return self.plan.jobs["job-uid-0001"]

    @property
    def vm(self) -> Vm:
        return self.plan.vms["uid-vm-1"]


def assigned() -> tuple[Job, Vm]:
    return job(1, E.ADMITTED, E.PLACED), vm("vm-1", leases=("lease-1",), idle_since=None)


def running() -> tuple[Job, Vm]:
    return job(1, E.ADMITTED, E.PLACED, E.STARTED), assigned()[1]


def test_ready_heartbeat_makes_a_booting_vm_ready() -> None:
    """With the identity of that boot."""
    heard = Heard(None, vm("vm-1", V.BOOTING), heartbeat(B.READY, instance_id="7", zone="z"))
    assert (heard.vm.state, heard.vm.boot_nonce, heard.vm.zone) == (V.READY, "nonce", "z")
    assert any(isinstance(change, VmHeartbeat) for batch in heard.plan.batches for change in batch)


def test_claim_run_and_success_are_three_heartbeats() -> None:
    """The VM is idle after the last one."""
    heard = Heard(
        *assigned(),
        job_heartbeat(B.FOUND_VM),
        job_heartbeat(B.RUNNING),
        job_heartbeat(B.COMPLETED, exit_code=0),
    )
    assert (heard.job.status, heard.job.exit_code) == (S.SUCCEEDED, 0)
    assert heard.vm.idle


def test_heartbeats_that_overtake_each_other_come_to_the_same_end() -> None:
    """COMPLETED first, RUNNING late: the late one finds no lease and changes nothing."""
    heard = Heard(*assigned(), job_heartbeat(B.COMPLETED, exit_code=0), job_heartbeat(B.RUNNING))
    assert heard.job.status is S.SUCCEEDED
    assert _history(heard) == [S.STARTING, S.SUCCEEDED]


def _history(heard: Heard) -> list[JobStatus]:
    changes = [change for batch in heard.plan.batches for change in batch]
    return [change.after.status for change in changes if isinstance(change, JobMove)]


def test_failure_keeps_the_exit_code_and_the_workers_words() -> None:
    """No retries: FAILED."""
    heard = Heard(*running(), job_heartbeat(B.FAILED, exit_code=3, reason="exit code 3"))
    assert (heard.job.status, heard.job.exit_code, heard.job.reason) == (S.FAILED, 3, "exit code 3")


@pytest.mark.parametrize(
    "wrong", [{"lease_id": "lease-0"}, {"attempt": 7}, {"lease_id": "lease-0", "attempt": 7}]
)
def test_heartbeat_of_another_lease_changes_nothing_and_is_told_to_stop(
    wrong: dict[str, object],
) -> None:
    """A zombie cannot touch the job."""
    heard = Heard(*running(), job_heartbeat(B.RUNNING, **wrong))
    assert heard.job.status is S.RUNNING
    (stop,) = heard.told
    assert isinstance(stop, StopJob)


def test_final_word_of_a_zombie_changes_nothing() -> None:
    """Not even told to stop: it has ended."""
    heard = Heard(*running(), job_heartbeat(B.COMPLETED, lease_id="lease-0", exit_code=0))
    assert heard.job.status is S.RUNNING
    assert heard.told == []


def test_heartbeat_of_another_boot_or_machine_is_ignored() -> None:
    """Names come back on other machines."""
    held, on = running()
    on = replace(on, instance_id="7")
    heard = Heard(held, on, job_heartbeat(B.COMPLETED, instance_id="8", exit_code=0))
    assert heard.job.status is S.RUNNING
    heard = Heard(held, on, job_heartbeat(B.COMPLETED, boot_nonce="old", exit_code=0))
    assert heard.job.status is S.RUNNING


def test_worker_that_started_anew_lost_its_job() -> None:
    """A READY with a new nonce: nobody works for that lease any more."""
    heard = Heard(*running(), heartbeat(B.READY, boot_nonce="second"))
    assert (heard.job.status, heard.job.losses) == (S.QUEUED, 1)
    assert (heard.vm.boot_nonce, heard.vm.leases, heard.vm.state) == ("second", (), V.READY)


def test_a_new_boot_is_heard_only_if_it_becomes_known() -> None:
    """Its first heartbeat stands or falls with the step that names it: a VM that moved meanwhile
    still has the numbers of its old boot."""
    heard = Heard(*running(), heartbeat(B.READY, boot_nonce="second"))
    (batch,) = [b for b in heard.plan.batches if any(isinstance(c, VmHeartbeat) for c in b)]
    assert [type(change) for change in batch] == [VmMove, VmHeartbeat]


def test_a_vm_that_cannot_work_is_given_up_with_its_reason() -> None:
    """UNREADY never makes a VM READY: it is deleted, billed from now, and remembers why."""
    said = heartbeat(B.UNREADY)
    told = replace(said, heartbeat=replace(said.heartbeat, reason="no NVIDIA driver"))
    heard = Heard(None, vm("vm-1", V.BOOTING, running_since=None), told, told)
    assert (heard.vm.state, heard.vm.ready_at) == (V.DELETING, None)
    assert heard.vm.running_since == heard.plan.now
    assert heard.vm.health.unready == "no NVIDIA driver"
    assert heard.vm.reason == "its worker cannot work: no NVIDIA driver"


def test_maintenance_of_the_host_is_named() -> None:
    """It takes a VM as a reclaim does; the VM and the job say what it was."""
    cause = "host maintenance: the cloud stops it"
    said = heartbeat(B.PREEMPTED)
    told = replace(said, heartbeat=replace(said.heartbeat, reason=cause))
    heard = Heard(*running(), told, job_heartbeat(B.PREEMPTED, exit_code=143))
    assert heard.vm.reason == cause
    assert heard.job.status is S.QUEUED
    assert heard.job.reason == f"{heard.vm.name} was taken back by the cloud ({cause})"


def test_spot_notice_drains_the_vm_and_the_job_goes_back_when_it_has_ended() -> None:
    """First the notice with a note on the timeline, then the job's own last word."""
    heard = Heard(*running(), heartbeat(B.PREEMPTED))
    assert (heard.vm.state, heard.vm.taken, heard.job.status) == (V.DRAINING, True, S.RUNNING)
    assert any(isinstance(c, JobNote) for batch in heard.plan.batches for c in batch)
    heard = Heard(*running(), heartbeat(B.PREEMPTED), job_heartbeat(B.PREEMPTED, exit_code=143))
    assert (heard.job.status, heard.job.preemptions, heard.job.failures) == (S.QUEUED, 1, 0)


def test_work_that_was_done_before_the_vm_was_taken_counts() -> None:
    """Exit 0 is success, notice or not."""
    heard = Heard(*running(), heartbeat(B.PREEMPTED), job_heartbeat(B.COMPLETED, exit_code=0))
    assert heard.job.status is S.SUCCEEDED


def test_frozen_worker_with_a_live_lease_may_go_on() -> None:
    """And one whose job is being stopped is told to stop."""
    held, on = running()
    (answer,) = Heard(held, on, job_heartbeat(B.FROZEN, seq=7)).told
    assert isinstance(answer, ContinueJob)
    assert answer.answers == 7, "the worker must know which freeze is meant"
    stopping = replace(held, status=S.STOPPING)
    (answer,) = Heard(stopping, on, job_heartbeat(B.FROZEN)).told
    assert isinstance(answer, StopJob)


def test_stopped_ends_a_stop_but_a_worker_that_goes_away_is_a_loss() -> None:
    """Its machine shuts down: the job did nothing wrong."""
    held, on = running()
    stopping = replace(held, status=S.STOPPING)
    assert Heard(stopping, on, job_heartbeat(B.STOPPED)).job.status is S.CANCELLED
    gone = Heard(held, on, job_heartbeat(B.STOPPED, reason="agent shut down"))
    assert (gone.job.status, gone.job.losses) == (S.QUEUED, 1)
    assert gone.vm.state is V.DELETING


def test_stop_of_a_lease_that_never_came_is_no_claim() -> None:
    """A start that its stop overtook was never taken: its history must not say so."""
    heard = Heard(*assigned(), job_heartbeat(B.STOPPED, reason="no such lease on this VM"))
    assert heard.job.status is S.QUEUED
    moves = [c for batch in heard.plan.batches for c in batch if isinstance(c, JobMove)]
    assert [entry.event for move in moves for entry in move.entries] == [E.VM_LOST]


def test_refused_start_is_not_the_users_failure() -> None:
    """The worker never ran it: back to the queue, and not to that VM."""
    heard = Heard(*assigned(), job_heartbeat(B.FAILED, reason="the agent is draining"))
    assert (heard.job.status, heard.job.failures, heard.job.losses) == (S.QUEUED, 0, 1)
    assert heard.vm.state is V.DELETING


def test_progress_is_kept_and_heartbeats_of_unknown_vms_are_dropped() -> None:
    """Unknown names change nothing."""
    heard = Heard(*running(), job_heartbeat(B.RUNNING, progress=Progress(3, 10)))
    assert any(isinstance(c, JobProgress) for batch in heard.plan.batches for c in batch)
    heard = Heard(*running(), heartbeat(B.READY, vm_name="nobody"))
    assert heard.plan.batches == []
