"""An agent state machine with one lease, in the states that the tests begin with."""

from __future__ import annotations

from agent.events import (
    Exited,
    HeartbeatsAnswered,
    Signal,
    SignalGroup,
    Started,
    Tick,
)
from agent.state_machine import RETRY_S
from tests.agent.orders import TIMERS, Bench, said, start

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
        bench.feed(HeartbeatsAnswered(send.number, confirmed=False))
    bench.unanswered.clear()
    return said(bench.later(RETRY_S, Tick()))
