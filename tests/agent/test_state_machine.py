"""The agent's state machine: one fact per rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.events import (
    ControlReceived,
    Exit,
    Exited,
    ExitKind,
    GpusRead,
    HeartbeatsConfirmed,
    HeartbeatsFailed,
    Input,
    Listening,
    Output,
    ParentGone,
    Progressed,
    PublishHeartbeats,
    ReclaimNotice,
    ShutDown,
    Signal,
    SignalGroup,
    Started,
    StartFailed,
    StartProcess,
    Tick,
)
from agent.state_machine import LAST_WORDS_S, RETRY_S, SHUT_DOWN_GRACE_S, SPOT_OFF_GRACE_S
from core.messages import GpuReading, Progress
from tests.agent.orders import ME, TIMERS, Bench, drain, go_on, heartbeats, only, said, start, stop

DONE = Exited("l1", 0, "exit code 0")


def running(bench: Bench | None = None) -> Bench:
    """A bench with job l1 running."""
    bench = bench or Bench()
    bench.feed(Tick())
    bench.hear(start())
    bench.feed(Started("l1"))
    return bench


def frozen() -> Bench:
    """A bench whose job l1 froze because the bus went away; the bus is still away."""
    bench = running()
    bench.bus_works = False
    bench.later(TIMERS.self_stop_after_s / 2, Tick())  # its RUNNING heartbeat is never confirmed
    out = bench.later(TIMERS.self_stop_after_s / 2, Tick())
    assert SignalGroup("l1", Signal.STOP) in out
    return bench


def bus_returns(bench: Bench) -> list[str]:
    """The sends in flight fail, the next one succeeds; what it says."""
    bench.bus_works = True
    for send in bench.unanswered:
        bench.feed(HeartbeatsFailed(send.number))
    bench.unanswered.clear()
    return said(bench.later(RETRY_S, Tick()))


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


def test_beats_carry_gpu_readings() -> None:
    """The newest readings ride on every heartbeat."""
    bench = Bench()
    bench.feed(GpusRead((GpuReading(0, util=50.0),)))
    (heartbeat,) = heartbeats(bench.later(TIMERS.heartbeat_s, Tick()))
    assert heartbeat.gpus == (GpuReading(0, util=50.0),)


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
    """After a stop exit 0 means a clean yield, not success."""
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


# --- the bus is away --------------------------------------------------------------------


def test_one_send_at_a_time() -> None:
    """While a send is unanswered nothing else is sent; what came meanwhile goes with the next."""
    bench = Bench()
    bench.bus_works = False
    (first,) = only(bench.feed(Tick()), PublishHeartbeats)
    bench.hear(start())
    bench.feed(Started("l1"))
    assert only(bench.outputs, PublishHeartbeats) == [first]
    bench.bus_works = True
    assert said(bench.feed(HeartbeatsConfirmed(first.number))) == ["FOUND_VM", "RUNNING"]


def test_unsent_beat_is_replaced() -> None:
    """Several missed intervals leave one RUNNING heartbeat to send, the newest."""
    bench = running()
    bench.bus_works = False
    for step in range(4):
        bench.feed(Progressed("l1", Progress(step), None))
        bench.later(TIMERS.heartbeat_s, Tick())
    bench.bus_works = True
    bench.feed(HeartbeatsFailed(bench.unanswered.pop().number))
    (heartbeat,) = heartbeats(bench.later(RETRY_S, Tick()))
    assert (heartbeat.status, heartbeat.progress) == ("RUNNING", Progress(3))


def test_final_beat_is_repeated_until_confirmed() -> None:
    """COMPLETED is sent again after each failure, under the same number, and no more after."""
    bench = running()
    bench.bus_works = False
    bench.feed(DONE)
    numbers = set()
    for _ in range(4):
        send = bench.unanswered.pop()
        bench.feed(HeartbeatsFailed(send.number))
        bench.later(RETRY_S, Tick())
        numbers |= {b.seq for b in bench.unanswered[-1].heartbeats if b.status == "COMPLETED"}
    assert len(numbers) == 1
    bench.bus_works = True
    assert "COMPLETED" not in said(bench.feed(HeartbeatsConfirmed(bench.unanswered.pop().number)))
    assert said(bench.later(TIMERS.heartbeat_s, Tick())) == ["READY"]


def test_waiting_final_beat_is_never_replaced() -> None:
    """A start that comes again while COMPLETED still waits does not make a second one."""
    bench = running()
    bench.bus_works = False
    (first,) = [
        heartbeat for heartbeat in heartbeats(bench.feed(DONE)) if heartbeat.status == "COMPLETED"
    ]
    bench.hear(start())
    bench.bus_works = True
    bench.feed(HeartbeatsFailed(bench.unanswered.pop().number))
    again = heartbeats(bench.later(RETRY_S, Tick()))
    assert [heartbeat for heartbeat in again if heartbeat.status == "COMPLETED"] == [first]


def test_unsent_ready_is_forgotten_at_a_start() -> None:
    """A VM that has taken work does not say READY late."""
    bench = Bench()
    bench.bus_works = False
    bench.feed(Tick())
    bench.hear(start())
    assert bus_returns(bench) == ["FOUND_VM"]


def test_failed_send_waits_before_the_next() -> None:
    """After a failure the next try comes after a pause, and wake_at() knows."""
    bench = Bench()
    bench.bus_works = False
    (send,) = only(bench.feed(Tick()), PublishHeartbeats)
    assert bench.feed(HeartbeatsFailed(send.number)) == []
    assert bench.machine.wake_at() == bench.now + RETRY_S
    assert only(bench.later(RETRY_S, Tick()), PublishHeartbeats) != []


def test_stale_answer_is_ignored() -> None:
    """An answer to a send that is not in flight confirms nothing."""
    bench = Bench()
    bench.bus_works = False
    (send,) = only(bench.feed(Tick()), PublishHeartbeats)
    bench.feed(HeartbeatsFailed(send.number))
    bench.later(RETRY_S, Tick())
    assert bench.feed(HeartbeatsConfirmed(send.number)) == []


def test_freeze_counts_from_the_send_time() -> None:
    """The clock of the freeze is when the last confirmed heartbeat was sent, not when confirmed."""
    bench = running()
    bench.bus_works = False
    bench.later(TIMERS.heartbeat_s, Tick())
    sent_at = bench.now
    bench.later(9, HeartbeatsConfirmed(bench.unanswered.pop().number))
    assert bench.machine.wake_at() <= sent_at + TIMERS.self_stop_after_s
    bench.now = sent_at + TIMERS.self_stop_after_s - 0.01
    bench.feed(Tick())
    assert SignalGroup("l1", Signal.STOP) not in bench.outputs
    bench.now = sent_at + TIMERS.self_stop_after_s
    assert SignalGroup("l1", Signal.STOP) in bench.feed(Tick())


def test_frozen_job_reports_its_lease() -> None:
    """When the bus returns, FROZEN with the lease is said instead of RUNNING; nothing thaws."""
    bench = frozen()
    assert bus_returns(bench) == ["FROZEN"]
    (heartbeat,) = heartbeats(bench.later(TIMERS.heartbeat_s, Tick()))
    assert (heartbeat.status, heartbeat.lease_id) == ("FROZEN", "l1")
    assert only(bench.outputs, SignalGroup) == [SignalGroup("l1", Signal.STOP)]


def test_continue_thaws() -> None:
    """`continue` is SIGCONT and RUNNING at once."""
    bench = frozen()
    bus_returns(bench)
    out = bench.hear(go_on())
    assert only(out, SignalGroup) == [SignalGroup("l1", Signal.CONT)]
    assert said(out) == ["RUNNING"]


def test_old_continue_does_not_thaw() -> None:
    """A `continue` that comes while no heartbeat of ours is confirmed cannot know of this
    freeze."""
    bench = frozen()
    assert only(bench.hear(go_on()), SignalGroup) == []


def test_late_continue_of_an_earlier_freeze_does_not_thaw() -> None:
    """What answers a heartbeat from before the bus was lost again may speak of a lease that was
    given away since; an answer to a heartbeat of now thaws."""
    bench = frozen()
    bus_returns(bench)
    (early,) = heartbeats(bench.later(TIMERS.heartbeat_s, Tick()))
    bench.bus_works = False
    bench.later(TIMERS.self_stop_after_s + 1, Tick())
    bus_returns(bench)
    assert only(bench.hear(go_on(answers=early.seq)), SignalGroup) == []
    (late,) = heartbeats(bench.later(TIMERS.heartbeat_s, Tick()))
    out = bench.hear(go_on(answers=late.seq))
    assert only(out, SignalGroup) == [SignalGroup("l1", Signal.CONT)]


def test_continue_of_a_running_job_changes_nothing() -> None:
    """`continue` for a job that is not frozen, or not here, is no news."""
    bench = running()
    assert bench.hear(go_on()) == []
    assert bench.hear(go_on("other")) == []


def test_stop_kills_a_frozen_job() -> None:
    """A frozen job is killed on stop without a grace: thawing it could compute twice."""
    bench = frozen()
    bus_returns(bench)
    assert only(bench.hear(stop(grace_s=60)), SignalGroup) == [SignalGroup("l1", Signal.KILL)]
    assert said(bench.feed(Exited("l1", 137, "killed by SIGKILL"))) == ["STOPPED", "READY"]


def test_the_clock_may_round_as_it_likes() -> None:
    """At the very moment that it asked to be woken at, the job freezes, and later is killed: the
    sum of two times is not always their difference away."""
    confirmed_at = 255.069
    assert confirmed_at + TIMERS.self_stop_after_s - confirmed_at < TIMERS.self_stop_after_s
    bench = Bench()
    bench.machine.booted_at = bench.now = confirmed_at
    bench.machine.__post_init__()
    running(bench)
    bench.bus_works = False
    bench.now = bench.machine.computes_until
    assert SignalGroup("l1", Signal.STOP) in bench.feed(Tick())
    assert bench.machine.wake_at() > bench.now


def test_frozen_max_kills() -> None:
    """After frozen_max_s a frozen job is killed once, and says why it ended."""
    bench = frozen()
    out = bench.later(TIMERS.frozen_max_s, Tick())
    assert only(out, SignalGroup) == [SignalGroup("l1", Signal.KILL)]
    assert only(bench.later(1, Tick()), SignalGroup) == []
    bench.feed(Exited("l1", 137, "killed by SIGKILL"))
    assert "STOPPED" in bus_returns(bench)


def test_stop_in_grace_freezes_too() -> None:
    """A job in its grace time freezes with the others and is still killed when the grace ends."""
    bench = running()
    bench.bus_works = False
    bench.hear(stop(grace_s=100))
    assert SignalGroup("l1", Signal.STOP) in bench.later(TIMERS.self_stop_after_s, Tick())
    assert SignalGroup("l1", Signal.KILL) in bench.later(40, Tick())


def test_job_started_without_a_bus_is_frozen_at_once() -> None:
    """A start that comes when our lease may be over already does not compute."""
    bench = Bench()
    bench.bus_works = False
    bench.feed(Tick())
    out = bench.later(TIMERS.self_stop_after_s, ControlReceived(start()))
    assert SignalGroup("l1", Signal.STOP) in out


# --- drain, preemption, shutdown --------------------------------------------------------


def test_drain_idle() -> None:
    """An idle VM that is drained says DRAINED, again every interval, and takes no work."""
    bench = Bench()
    bench.feed(Tick())
    assert said(bench.hear(drain())) == ["DRAINED"]
    assert said(bench.later(TIMERS.heartbeat_s, Tick())) == ["DRAINED"]
    out = bench.hear(start())
    assert only(out, StartProcess) == []
    assert said(out) == ["FAILED"]


def test_drain_busy() -> None:
    """A busy VM finishes its job first, then says DRAINED instead of READY."""
    bench = running()
    assert bench.hear(drain()) == []
    assert said(bench.feed(DONE)) == ["COMPLETED", "DRAINED"]


def test_preemption_is_told_for_job_and_vm() -> None:
    """A notice is SIGTERM to the job and PREEMPTED for the VM; the job's word comes at its end."""
    bench = running()
    out = bench.feed(ReclaimNotice())
    assert only(out, SignalGroup) == [SignalGroup("l1", Signal.TERM)]
    assert [(b.status, b.lease_id) for b in heartbeats(out)] == [("PREEMPTED", None)]
    assert bench.feed(ReclaimNotice()) == []


def test_preempted_exit_is_still_told() -> None:
    """Exit 0 is success, anything else an interruption; READY is not said."""
    bench = running()
    bench.feed(ReclaimNotice())
    out = bench.feed(Exited("l1", 143, "killed by SIGTERM"))
    assert said(out) == ["PREEMPTED", "PREEMPTED"]
    assert (heartbeats(out)[0].lease_id, heartbeats(out)[0].exit_code) == ("l1", 143)
    bench = running()
    bench.feed(ReclaimNotice())
    out = bench.feed(DONE)
    assert said(out) == ["COMPLETED", "PREEMPTED"]
    assert heartbeats(out)[0].lease_id == "l1"
    assert only(bench.hear(start("l2")), StartProcess) == []


def test_preempted_frozen_job_stays_frozen() -> None:
    """A preemption neither thaws nor kills a frozen job."""
    bench = frozen()
    assert only(bench.feed(ReclaimNotice()), SignalGroup) == [SignalGroup("l1", Signal.TERM)]


def test_shutdown_of_an_idle_agent() -> None:
    """An idle agent that owes nothing goes at once."""
    bench = Bench()
    bench.feed(Tick())
    (end,) = only(bench.feed(ShutDown("SIGTERM")), Exit)
    assert end.kind is ExitKind.SHUT_DOWN


def test_shutdown_ends_jobs_first() -> None:
    """Jobs get SIGTERM, a short grace, SIGKILL; the agent goes when their end is confirmed."""
    bench = running()
    out = bench.feed(ShutDown("SIGTERM"))
    assert only(out, SignalGroup) == [SignalGroup("l1", Signal.TERM)]
    assert SignalGroup("l1", Signal.KILL) in bench.later(SHUT_DOWN_GRACE_S, Tick())
    out = bench.feed(Exited("l1", 137, "killed by SIGKILL"))
    assert said(out) == ["STOPPED"]
    assert only(out, Exit) != []


@pytest.mark.parametrize("order", [("notice", "sigterm"), ("sigterm", "notice")])
def test_a_reclaimed_vm_gives_its_job_the_whole_notice(order: tuple[str, str]) -> None:
    """Google cuts the power 30 s after the soft off. SIGTERM by systemd comes with the notice, in
    either order: the job is killed only when the last heartbeats need the rest."""
    bench = running()
    events: dict[str, Input] = {"notice": ReclaimNotice(), "sigterm": ShutDown("SIGTERM")}
    out = [output for name in order for output in bench.feed(events[name])]
    assert only(out, SignalGroup) == [SignalGroup("l1", Signal.TERM)]
    assert only(bench.later(SPOT_OFF_GRACE_S - 1, Tick()), SignalGroup) == []
    assert SignalGroup("l1", Signal.KILL) in bench.later(1, Tick())
    assert SPOT_OFF_GRACE_S + LAST_WORDS_S < 30
    out = bench.feed(Exited("l1", 137, "killed by SIGKILL"))
    assert (heartbeats(out)[0].status, heartbeats(out)[0].lease_id) == ("PREEMPTED", "l1")
    assert only(bench.outputs, Exit) != []


def test_a_machine_that_goes_off_gives_its_jobs_that_time() -> None:
    """SIGTERM of a shutdown that is no reclaim: until the machine is off the jobs may go on."""
    bench = running()
    bench.feed(ShutDown("SIGTERM", grace_s=2 * SHUT_DOWN_GRACE_S))
    assert only(bench.later(2 * SHUT_DOWN_GRACE_S - 1, Tick()), SignalGroup) == []
    assert SignalGroup("l1", Signal.KILL) in bench.later(1, Tick())


def test_what_takes_the_vm_is_said() -> None:
    """Maintenance of the host is not a reclaim: the VM's heartbeat names it."""
    bench = running()
    out = bench.feed(ReclaimNotice("host maintenance: the cloud stops it"))
    assert heartbeats(out)[0].reason == "host maintenance: the cloud stops it"


def test_shutdown_does_not_wait_for_ever() -> None:
    """Without a bus the agent goes after a bounded time all the same."""
    bench = running()
    bench.bus_works = False
    bench.feed(ShutDown("SIGTERM"))
    bench.feed(Exited("l1", 143, "killed by SIGTERM"))
    assert only(bench.outputs, Exit) == []
    assert only(bench.later(2 * SHUT_DOWN_GRACE_S + LAST_WORDS_S, Tick()), Exit) != []


def test_parent_gone_kills_and_goes() -> None:
    """When the pretend VM dies, jobs are killed and the agent goes in the same breath."""
    out = running().feed(ParentGone())
    assert out == [
        SignalGroup("l1", Signal.KILL),
        Exit(ExitKind.PARENT_GONE, "the parent process is gone"),
    ]


# --- neighbours --------------------------------------------------------------------------


def neighbours() -> Bench:
    """A bench with jobs l1 and l2 running side by side."""
    bench = running()
    bench.hear(start("l2", (1, 2)))
    bench.feed(Started("l2"))
    return bench


def signals(outputs: list[Output], kind: Signal) -> set[str]:
    return {out.lease_id for out in only(outputs, SignalGroup) if out.signal is kind}


def test_each_neighbour_has_its_own_beat() -> None:
    """And the VM says nothing of being idle until the last of them has ended."""
    bench = neighbours()
    out = bench.later(TIMERS.heartbeat_s, Tick())
    assert [(b.status, b.lease_id) for b in heartbeats(out)] == [
        ("RUNNING", "l1"),
        ("RUNNING", "l2"),
    ]
    assert said(bench.feed(DONE)) == ["COMPLETED"]
    assert said(bench.feed(Exited("l2", 0, "exit code 0"))) == ["COMPLETED", "READY"]


def test_stop_of_one_leaves_the_other_alone() -> None:
    """Its grace and its kill are its own; its GPUs can be given away while the other computes."""
    bench = neighbours()
    bench.hear(stop("l2", 5.0))
    out = bench.later(6.0, Tick())
    assert signals(out, Signal.KILL) == {"l2"}
    bench.feed(Exited("l2", 137, "killed"))
    assert only(bench.hear(start("l3", (2,))), StartProcess)


def test_silence_freezes_all_and_each_is_thawed_by_its_own_word() -> None:
    """A lease may have been given away while its neighbour's was not."""
    bench = neighbours()
    bench.bus_works = False
    bench.later(TIMERS.self_stop_after_s / 2, Tick())
    out = bench.later(TIMERS.self_stop_after_s / 2, Tick())
    assert signals(out, Signal.STOP) == {"l1", "l2"}
    bus_returns(bench)
    assert signals(bench.hear(go_on("l2")), Signal.CONT) == {"l2"}
    assert signals(bench.hear(stop("l1", 30.0)), Signal.KILL) == {"l1"}


def test_spot_notice_and_shutdown_reach_all() -> None:
    """Each has what is left for its checkpoint."""
    assert signals(neighbours().feed(ReclaimNotice()), Signal.TERM) == {"l1", "l2"}
    assert signals(neighbours().feed(ShutDown("SIGTERM")), Signal.TERM) == {"l1", "l2"}


def test_drained_only_when_all_are_gone() -> None:
    """The word that lets the VM be deleted."""
    bench = neighbours()
    bench.hear(drain())
    assert "DRAINED" not in said(bench.feed(DONE))
    assert "DRAINED" in said(bench.feed(Exited("l2", 1, "exit code 1")))
