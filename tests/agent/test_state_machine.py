"""The agent's state machine: idle, start, end, stop. One fact per rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.attempt import EARLY_WORDS_WAIT_S, SHORT_JOB_S, SHORT_JOBS_APART_S
from agent.events import (
    ControlReceived,
    Exit,
    Exited,
    ExitKind,
    Listening,
    Progressed,
    PublishHeartbeats,
    ReadingsTaken,
    Signal,
    SignalGroup,
    Started,
    StartFailed,
    StartProcess,
    Tick,
)
from core.messages import GpuReading, Progress, VmReadings
from tests.agent.leases import DONE, running
from tests.agent.orders import ME, TIMERS, Bench, heartbeats, only, said, start, stop

# --- idle -------------------------------------------------------------------------------


def test_boot_says_ready() -> None:
    """The first thing a VM says is READY, with its whole identity."""
    (heartbeat,) = heartbeats(Bench().feed(Tick()))
    assert heartbeat.status == "READY"
    assert (heartbeat.vm_name, heartbeat.instance_id, heartbeat.boot_nonce, heartbeat.zone) == (
        ME.vm_name,
        ME.instance_id,
        ME.boot_nonce,
        ME.zone,
    )
    assert (heartbeat.job_id, heartbeat.lease_id, heartbeat.version) == (None, None, 2)


def test_deaf_vm_is_silent() -> None:
    """READY is not said before the control subscription exists; a VM that stays deaf goes off."""
    bench = Bench()
    bench.machine.listening = False
    assert said(bench.feed(Tick())) == []
    assert said(bench.later(TIMERS.heartbeat_s, Tick())) == []
    assert said(bench.feed(Listening())) == ["READY"]
    deaf = Bench()
    deaf.machine.listening = False
    assert only(deaf.later(TIMERS.agent_idle_off_s, Tick()), Exit) != []


def test_a_machine_that_cannot_work_is_not_ready() -> None:
    """It says UNREADY and why, again and again, takes no job, and goes off when nobody comes."""
    bench = Bench()
    bench.machine.unready = "the driver sees 2 of 4 GPUs"
    (heartbeat,) = heartbeats(bench.feed(Tick()))
    assert (heartbeat.status, heartbeat.reason) == ("UNREADY", "the driver sees 2 of 4 GPUs")
    out = bench.hear(start())
    assert only(out, StartProcess) == []
    assert (said(out), heartbeats(out)[0].reason) == (["FAILED"], "the driver sees 2 of 4 GPUs")
    assert said(bench.later(TIMERS.heartbeat_s, Tick())) == ["UNREADY"]


def test_ready_comes_every_interval() -> None:
    """While idle, READY is repeated every heartbeat_s and not in between."""
    bench = Bench()
    bench.feed(Tick())
    assert bench.machine.wake_at() == bench.now + TIMERS.heartbeat_s
    assert said(bench.later(TIMERS.heartbeat_s / 2, Tick())) == []
    assert said(bench.later(TIMERS.heartbeat_s / 2, Tick())) == ["READY"]


def test_seq_grows() -> None:
    """Every heartbeat of a boot has a higher number than the one before."""
    bench = running()
    bench.feed(DONE)
    numbers = [heartbeat.seq for heartbeat in heartbeats(bench.outputs)]
    assert numbers == sorted(set(numbers))


def test_heartbeats_carry_gpu_readings() -> None:
    """The newest readings ride on every heartbeat."""
    bench = Bench()
    bench.feed(ReadingsTaken(VmReadings((GpuReading(0, util=50.0),))))
    (heartbeat,) = heartbeats(bench.later(TIMERS.heartbeat_s, Tick()))
    assert heartbeat.readings.gpus == (GpuReading(0, util=50.0),)


def test_idle_vm_powers_off() -> None:
    """Without work and control messages for agent_idle_off_s the VM is powered off."""
    bench = Bench()
    bench.feed(Tick())
    bench.later(TIMERS.agent_idle_off_s - 1, Tick())
    assert only(bench.outputs, Exit) == []
    (end,) = only(bench.later(1, Tick()), Exit)
    assert end.kind is ExitKind.POWER_OFF
    assert bench.feed(Tick()) == []


def test_control_message_keeps_idle_vm() -> None:
    """A control message for this boot starts the idle time anew; one for another does not."""
    bench = Bench()
    bench.later(TIMERS.agent_idle_off_s - 1, ControlReceived(stop("none")))
    bench.later(
        TIMERS.agent_idle_off_s - 1, ControlReceived(replace(stop("none"), boot_nonce="other"))
    )
    assert only(bench.outputs, Exit) == []
    assert only(bench.later(1, Tick()), Exit) != []


def test_unsent_result_delays_power_off() -> None:
    """A result that the bus has not taken keeps the VM beyond the idle time, up to frozen_max_s."""
    bench = running()
    bench.bus_works = False
    bench.feed(DONE)
    bench.later(TIMERS.agent_idle_off_s + 1, Tick())
    assert only(bench.outputs, Exit) == []
    assert only(bench.later(TIMERS.frozen_max_s, Tick()), Exit) != []


# --- start and end ----------------------------------------------------------------------


def test_start_claims_and_starts() -> None:
    """A start for us is claimed with FOUND_VM, and the process is started."""
    bench = Bench()
    bench.feed(Tick())
    out = bench.hear(start())
    (claim,) = heartbeats(out)
    assert (claim.status, claim.job_id, claim.user_id) == ("FOUND_VM", "job-l1", "u1")
    assert (claim.attempt, claim.lease_id) == (1, "l1")
    assert only(out, StartProcess) == [StartProcess(start())]


@pytest.mark.parametrize("wrong", [{"vm_name": "other"}, {"boot_nonce": "older"}])
def test_order_for_another_is_ignored(wrong: dict[str, str]) -> None:
    """What is not for our name and our boot changes nothing and is not answered."""
    bench = Bench()
    bench.feed(Tick())
    assert bench.hear(replace(start(), **wrong)) == []  # type: ignore[arg-type]  # two str fields
    assert bench.machine.jobs == {}


def test_only_a_stop_may_come_without_a_nonce() -> None:
    """A start that names no boot is ignored; a stop is fenced by its lease."""
    bench = Bench()
    bench.feed(Tick())
    assert bench.hear(replace(start(), boot_nonce="")) == []
    bench.hear(start())
    assert SignalGroup("l1", Signal.TERM) in bench.hear(replace(stop(), boot_nonce=""))


def test_running_at_once_then_every_interval() -> None:
    """RUNNING is said when the process runs and every heartbeat_s after, with progress."""
    bench = Bench()
    bench.feed(Tick())
    bench.hear(start())
    assert said(bench.feed(Started("l1"))) == ["RUNNING"]
    bench.feed(Progressed("l1", Progress(3, 9), 2.0))
    (heartbeat,) = heartbeats(bench.later(TIMERS.heartbeat_s, Tick()))
    assert (heartbeat.status, heartbeat.progress, heartbeat.checkpoint_step) == (
        "RUNNING",
        Progress(3, 9),
        2.0,
    )


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (Exited("l1", 0, "exit code 0"), "COMPLETED"),
        (Exited("l1", 3, "exit code 3"), "FAILED"),
        (Exited("l1", 139, "killed by SIGSEGV"), "FAILED"),
        (Exited("l1", None, "the outputs could not be stored: no access"), "FAILED"),
        (StartFailed("l1", 127, "command not found: foo"), "FAILED"),
    ],
)
def test_end_is_told_with_its_reason(end: Exited | StartFailed, status: str) -> None:
    """An end becomes COMPLETED or FAILED with exit code, reason and lease, then READY at once."""
    last, ready = heartbeats(running().feed(end))
    assert (last.status, last.exit_code, last.reason) == (status, end.exit_code, end.reason)
    assert (last.lease_id, last.attempt) == ("l1", 1)
    assert ready.status == "READY"


def test_next_job_after_the_end() -> None:
    """A VM that has finished a job takes the next one on the same slots."""
    bench = running()
    bench.feed(DONE)
    assert only(bench.hear(start("l2", attempt=2)), StartProcess) != []


def test_words_of_short_jobs_go_together() -> None:
    """After a job that ended at once the next one's words wait for its end, but not for long."""
    bench = running()
    bench.later(0.2, DONE)
    assert said(bench.hear(start("l2", attempt=2))) == []
    assert said(bench.feed(Started("l2"))) == []
    words = said(bench.feed(Exited("l2", 0, "exit code 0")))
    assert words == ["FOUND_VM", "RUNNING", "COMPLETED", "READY"]
    assert said(bench.hear(start("l3", attempt=3))) == []
    assert bench.machine.wake_at() == bench.now + EARLY_WORDS_WAIT_S
    assert said(bench.later(EARLY_WORDS_WAIT_S, Tick())) == ["FOUND_VM"]


def test_words_of_a_lone_job_go_at_once() -> None:
    """Neither after a job that took its time, nor a while after a short one does a claim wait."""
    for ran_s, pause_s in ((SHORT_JOB_S, 0.0), (0.0, SHORT_JOBS_APART_S)):
        bench = running()
        bench.later(ran_s, DONE)
        bench.later(pause_s, Tick())
        assert said(bench.hear(start("l2", attempt=2))) == ["FOUND_VM"]


def test_repeated_start_is_idempotent() -> None:
    """The same start again starts nothing; it is answered with the state at hand."""
    bench = running()
    out = bench.hear(start())
    assert only(out, StartProcess) == []
    assert said(out) == ["RUNNING"]
    bench.feed(DONE)
    out = bench.hear(start())
    assert only(out, StartProcess) == []
    assert said(out) == ["COMPLETED"]


def test_busy_slots_are_refused() -> None:
    """Another lease on taken slots is told FAILED busy; the running job does not notice."""
    bench = running()
    out = bench.hear(start("l2", slots=(0, 1)))
    (refusal,) = heartbeats(out)
    assert (refusal.status, refusal.lease_id) == ("FAILED", "l2")
    assert refusal.reason.startswith("busy")
    assert [output for output in out if not isinstance(output, PublishHeartbeats)] == []
    assert bench.machine.jobs.keys() == {"l1"}


def test_refused_lease_never_runs() -> None:
    """A start that was refused is not run when it comes again later: its lease is settled."""
    bench = running()
    bench.hear(start("l2"))
    bench.feed(DONE)
    assert only(bench.hear(start("l2")), StartProcess) == []


def test_disjoint_slots_run_together() -> None:
    """Two jobs on different slots run at once, and READY waits for both to end."""
    bench = running()
    assert only(bench.hear(start("l2", slots=(1, 2))), StartProcess) != []
    assert said(bench.feed(DONE)) == ["COMPLETED"]
    assert said(bench.feed(Exited("l2", 0, "exit code 0"))) == ["COMPLETED", "READY"]


@pytest.mark.parametrize("slots", [(4,), (-1,), (0, 0)])
def test_impossible_slots_are_refused(slots: tuple[int, ...]) -> None:
    """Slots that the VM does not have, or has once, are refused with the number of GPUs."""
    (refusal,) = heartbeats(Bench().hear(start(slots=slots)))[:1]
    assert refusal.status == "FAILED"
    assert "below 4" in refusal.reason


# --- stop -------------------------------------------------------------------------------


def test_stop_is_term_then_kill() -> None:
    """A stop is SIGTERM at once, SIGKILL after the grace, STOPPED with the reason at the end."""
    bench = running()
    assert only(bench.hear(stop(grace_s=30)), SignalGroup) == [SignalGroup("l1", Signal.TERM)]
    assert only(bench.later(29, Tick()), SignalGroup) == []
    assert only(bench.later(1, Tick()), SignalGroup) == [SignalGroup("l1", Signal.KILL)]
    last = heartbeats(bench.feed(Exited("l1", 137, "killed by SIGKILL")))[0]
    assert (last.status, last.exit_code) == ("STOPPED", 137)
    assert last.reason == "user; killed by SIGKILL"


def test_stopped_job_that_exits_zero_is_stopped() -> None:
    """After a stop exit 0 means a clean stop, not success."""
    bench = running()
    bench.hear(stop())
    assert said(bench.feed(DONE))[0] == "STOPPED"


def test_repeated_stop_signals_once() -> None:
    """A second stop sends no second SIGTERM, but a shorter grace counts."""
    bench = running()
    bench.hear(stop(grace_s=100))
    assert only(bench.hear(stop(grace_s=100)), SignalGroup) == []
    assert only(bench.hear(stop(grace_s=0)), SignalGroup) == [SignalGroup("l1", Signal.KILL)]


def test_later_stop_gives_no_more_time() -> None:
    """A second stop with a longer grace does not move the kill that is already due."""
    bench = running()
    bench.hear(stop(grace_s=10))
    bench.later(5, ControlReceived(stop(grace_s=100)))
    assert only(bench.later(5, Tick()), SignalGroup) == [SignalGroup("l1", Signal.KILL)]


def test_unknown_lease_is_stopped() -> None:
    """A stop for a lease we do not have is answered STOPPED, and that lease cannot start later."""
    bench = Bench()
    bench.feed(Tick())
    (answer,) = heartbeats(bench.hear(stop("gone")))
    assert (answer.status, answer.lease_id, answer.job_id) == ("STOPPED", "gone", "job-gone")
    out = bench.hear(start("gone"))
    assert only(out, StartProcess) == []
    assert said(out) == ["STOPPED"]


def test_stop_of_a_finished_lease_repeats_its_end() -> None:
    """A stop that comes after the end is answered with how it ended."""
    bench = running()
    bench.feed(DONE)
    assert said(bench.hear(stop())) == ["COMPLETED"]


def test_stop_before_the_process_runs() -> None:
    """A stop between claim and start is passed on at once; the end is STOPPED."""
    bench = Bench()
    bench.hear(start())
    assert SignalGroup("l1", Signal.TERM) in bench.hear(stop())
    assert said(bench.feed(StartFailed("l1", 127, "command not found: x")))[0] == "STOPPED"
