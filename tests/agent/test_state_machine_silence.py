"""The agent's state machine while the bus is away: sends, freezes, thaws."""

from __future__ import annotations

from agent.events import (
    ControlReceived,
    Exited,
    HeartbeatsAnswered,
    Progressed,
    PublishHeartbeats,
    Signal,
    SignalGroup,
    Started,
    Tick,
)
from agent.state_machine import RETRY_S
from core.messages import Progress
from tests.agent.leases import DONE, bus_returns, frozen, running
from tests.agent.orders import TIMERS, Bench, go_on, heartbeats, only, said, start, stop

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
    assert said(bench.feed(HeartbeatsAnswered(first.number, confirmed=True))) == [
        "FOUND_VM",
        "RUNNING",
    ]


def test_unsent_heartbeat_is_replaced() -> None:
    """Several missed intervals leave one RUNNING heartbeat to send, the newest."""
    bench = running()
    bench.bus_works = False
    for step in range(4):
        bench.feed(Progressed("l1", Progress(step), None))
        bench.later(TIMERS.heartbeat_s, Tick())
    bench.bus_works = True
    bench.feed(HeartbeatsAnswered(bench.unanswered.pop().number, confirmed=False))
    (heartbeat,) = heartbeats(bench.later(RETRY_S, Tick()))
    assert (heartbeat.status, heartbeat.progress) == ("RUNNING", Progress(3))


def test_final_heartbeat_is_repeated_until_confirmed() -> None:
    """COMPLETED is sent again after each failure, under the same number, and no more after."""
    bench = running()
    bench.bus_works = False
    bench.feed(DONE)
    numbers = set()
    for _ in range(4):
        send = bench.unanswered.pop()
        bench.feed(HeartbeatsAnswered(send.number, confirmed=False))
        bench.later(RETRY_S, Tick())
        numbers |= {b.seq for b in bench.unanswered[-1].heartbeats if b.status == "COMPLETED"}
    assert len(numbers) == 1
    bench.bus_works = True
    assert "COMPLETED" not in said(
        bench.feed(HeartbeatsAnswered(bench.unanswered.pop().number, confirmed=True))
    )
    assert said(bench.later(TIMERS.heartbeat_s, Tick())) == ["READY"]


def test_waiting_final_heartbeat_is_never_replaced() -> None:
    """A start that comes again while COMPLETED still waits does not make a second one."""
    bench = running()
    bench.bus_works = False
    (first,) = [
        heartbeat for heartbeat in heartbeats(bench.feed(DONE)) if heartbeat.status == "COMPLETED"
    ]
    bench.hear(start())
    bench.bus_works = True
    bench.feed(HeartbeatsAnswered(bench.unanswered.pop().number, confirmed=False))
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
    assert bench.feed(HeartbeatsAnswered(send.number, confirmed=False)) == []
    assert bench.machine.wake_at() == bench.now + RETRY_S
    assert only(bench.later(RETRY_S, Tick()), PublishHeartbeats) != []


def test_stale_answer_is_ignored() -> None:
    """An answer to a send that is not in flight confirms nothing."""
    bench = Bench()
    bench.bus_works = False
    (send,) = only(bench.feed(Tick()), PublishHeartbeats)
    bench.feed(HeartbeatsAnswered(send.number, confirmed=False))
    bench.later(RETRY_S, Tick())
    assert bench.feed(HeartbeatsAnswered(send.number, confirmed=True)) == []


def test_freeze_counts_from_the_send_time() -> None:
    """The clock of the freeze is when the last confirmed heartbeat was sent, not when confirmed."""
    bench = running()
    bench.bus_works = False
    bench.later(TIMERS.heartbeat_s, Tick())
    sent_at = bench.now
    bench.later(9, HeartbeatsAnswered(bench.unanswered.pop().number, confirmed=True))
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
