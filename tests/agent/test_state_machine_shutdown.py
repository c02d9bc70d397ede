"""The agent's state machine at a drain, a reclaim and a shutdown."""

from __future__ import annotations

import pytest

from agent.events import (
    Exit,
    Exited,
    ExitKind,
    Input,
    ParentGone,
    ReclaimNotice,
    ShutDown,
    Signal,
    SignalGroup,
    StartProcess,
    Tick,
)
from agent.state_machine import LAST_WORDS_S, SHUT_DOWN_GRACE_S, SPOT_OFF_GRACE_S
from tests.agent.leases import DONE, frozen, running
from tests.agent.orders import TIMERS, Bench, drain, heartbeats, only, said, start

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
