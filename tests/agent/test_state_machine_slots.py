"""The agent's state machine with several leases on one VM."""

from __future__ import annotations

from agent.events import (
    Exited,
    Output,
    ReclaimNotice,
    ShutDown,
    Signal,
    SignalGroup,
    Started,
    StartProcess,
    Tick,
)
from tests.agent.leases import DONE, bus_returns, running
from tests.agent.orders import TIMERS, Bench, drain, go_on, heartbeats, only, said, start, stop

# --- neighbours --------------------------------------------------------------------------


def neighbours() -> Bench:
    """A bench with jobs l1 and l2 running side by side."""
    bench = running()
    bench.hear(start("l2", (1, 2)))
    bench.feed(Started("l2"))
    return bench


def signals(outputs: list[Output], kind: Signal) -> set[str]:
    return {out.lease_id for out in only(outputs, SignalGroup) if out.signal is kind}


def test_each_lease_has_its_own_heartbeat() -> None:
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
