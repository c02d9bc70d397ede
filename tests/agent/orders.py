"""Orders and machines for tests of the agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from agent.events import (
    ControlReceived,
    HeartbeatsAnswered,
    Identity,
    Input,
    Output,
    PublishHeartbeats,
)
from agent.state_machine import AgentMachine
from core.job_fields import WorkerSpec
from core.messages import ContinueJob, Control, DrainVm, Heartbeat, StartJob, StopJob
from core.timers import Timers

ME = Identity("zen-vm", "4242", "us-central1-a", "nonce1")
TIMERS = Timers()
T = TypeVar("T")


def start(lease_id: str = "l1", slots: tuple[int, ...] = (0,), attempt: int = 1) -> StartJob:
    spec = WorkerSpec(f"job-{lease_id}", user_id="u1", command=("true",))
    return StartJob(
        ME.vm_name, ME.boot_nonce, spec, "4xl4", "us-central1", attempt, lease_id, slots
    )


def stop(lease_id: str = "l1", grace_s: float = 30.0, reason: str = "user") -> StopJob:
    job_id = f"job-{lease_id}"
    return StopJob(ME.vm_name, ME.boot_nonce, job_id, "u1", 1, lease_id, grace_s, reason)


def go_on(lease_id: str = "l1", answers: int = 1_000_000) -> ContinueJob:
    return ContinueJob(ME.vm_name, ME.boot_nonce, f"job-{lease_id}", "u1", 1, lease_id, answers)


def drain() -> DrainVm:
    return DrainVm(ME.vm_name, ME.boot_nonce, "scale in")


class Bench:
    """A machine on a bench: a clock of its own, and a bus that confirms unless told not to."""

    def __init__(self, *, timers: Timers = TIMERS, gpu_count: int = 4) -> None:
        self.now = 1000.0
        self.machine = AgentMachine(ME, timers, gpu_count, self.now)
        self.bus_works = True
        self.outputs: list[Output] = []
        self.unanswered: list[PublishHeartbeats] = []

    def feed(self, event: Input) -> list[Output]:
        """The outputs of the event; sends are confirmed at once while the bus works."""
        came = self.machine.handle(event, self.now)
        self.outputs += came
        for output in list(came):
            if isinstance(output, PublishHeartbeats) and self.bus_works:
                came = came + self.feed(HeartbeatsAnswered(output.number, confirmed=True))
            elif isinstance(output, PublishHeartbeats):
                self.unanswered.append(output)
        return came

    def hear(self, control: Control) -> list[Output]:
        return self.feed(ControlReceived(control))

    def later(self, seconds: float, event: Input) -> list[Output]:
        self.now += seconds
        return self.feed(event)


def heartbeats(outputs: Sequence[Output]) -> list[Heartbeat]:
    return [heartbeat for send in only(outputs, PublishHeartbeats) for heartbeat in send.heartbeats]


def said(outputs: Sequence[Output]) -> list[str]:
    return [str(heartbeat.status) for heartbeat in heartbeats(outputs)]


def only(outputs: Sequence[Output], kind: type[T]) -> list[T]:
    return [output for output in outputs if isinstance(output, kind)]
