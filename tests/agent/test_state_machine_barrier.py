"""A member of a gang claims its part and begins when all are there."""

from __future__ import annotations

from dataclasses import replace

from agent.events import (
    Exited,
    Listening,
    ReclaimNotice,
    Signal,
    SignalGroup,
    Started,
    StartProcess,
    Tick,
)
from core.messages import GoJob, StartJob
from tests.agent.orders import ME, TIMERS, Bench, said, start, stop

GO = GoJob(ME.vm_name, ME.boot_nonce, "job-l1", "u1", 1, "l1")


def order() -> StartJob:
    return replace(start(), rank=1, world_size=2, leader_address="10.0.0.1:20001", barrier=True)


def waiting() -> Bench:
    """A bench with l1 at the barrier."""
    bench = Bench()
    bench.feed(Listening())
    out = bench.hear(order())
    assert said(out) == ["FOUND_VM"]
    assert not [o for o in out if isinstance(o, StartProcess)]
    return bench


def test_nothing_runs_before_go() -> None:
    """It is claimed at once and says so with every heartbeat; `go` starts it, once."""
    bench = waiting()
    assert said(bench.later(TIMERS.heartbeat_s, Tick())) == ["FOUND_VM"]
    assert StartProcess(order()) in bench.hear(GO)
    assert StartProcess(order()) not in bench.hear(GO)
    assert said(bench.feed(Started("l1"))) == ["RUNNING"]


def test_go_for_another_lease_or_boot_means_nothing() -> None:
    """Fenced as every order is."""
    bench = waiting()
    assert not bench.hear(replace(GO, lease_id="l2"))
    assert not bench.hear(replace(GO, boot_nonce="older"))


def test_a_stop_at_the_barrier_ends_it_at_once() -> None:
    """There is no process to wait for; a late `go` does not bring it to life."""
    bench = waiting()
    assert said(bench.hear(stop())) == ["STOPPED", "READY"]
    assert not [o for o in bench.hear(GO) if isinstance(o, StartProcess)]


def test_a_preempted_vm_gives_its_part_back() -> None:
    """An interruption, not a failure of the job."""
    bench = waiting()
    assert "PREEMPTED" in said(bench.feed(ReclaimNotice()))
    assert not bench.machine.jobs


def test_a_frozen_member_does_not_begin() -> None:
    """Its lease may have been given away while the bus was gone."""
    bench = waiting()
    bench.bus_works = False
    bench.later(TIMERS.self_stop_after_s, Tick())
    out = bench.later(TIMERS.self_stop_after_s, Tick())
    assert bench.machine.jobs["l1"].frozen_since is not None, out
    assert not [o for o in bench.hear(GO) if isinstance(o, StartProcess)]


def test_after_go_it_is_a_job_like_any_other() -> None:
    """SIGTERM and its grace."""
    bench = waiting()
    bench.hear(GO)
    bench.feed(Started("l1"))
    assert SignalGroup("l1", Signal.TERM) in bench.hear(stop())
    assert "STOPPED" in said(bench.feed(Exited("l1", 143, "terminated")))
