"""One attempt of a job on this VM, as the machine remembers it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from agent.events import Progressed
from core.job_tokens import Tokens
from core.messages import HeartbeatStatus, Progress, StartJob
from core.slots import slots_of

B = HeartbeatStatus
SHORT_JOB_S = 0.5
SHORT_JOBS_APART_S = 1.0
EARLY_WORDS_WAIT_S = 0.1


class EndingKind(Enum):
    """Who ends an attempt."""

    STOP = auto()
    """The scheduler, or the worker that lost the bus for too long."""
    RECLAIM = auto()
    """The cloud takes the VM back."""
    SHUT_DOWN = auto()
    """The agent is told to stop."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an attempt is ended from outside."""

    kind: EndingKind
    words: str


RECLAIMED = Ending(EndingKind.RECLAIM, "preempted")


@dataclass(slots=True)
class Work:
    """One attempt on this VM."""

    order: StartJob
    since: float = 0.0
    """When its start was heard."""
    waiting: bool = False
    """At the barrier: claimed, but nothing runs before all members of its gang are there."""
    started: bool = False
    frozen_since: float | None = None
    ending: Ending | None = None
    """Why we end it; None while its exit is its own."""
    kill_at: float = math.inf
    killed: bool = False
    progress: Progress | None = None
    checkpoint_step: float | None = None

    @property
    def status(self) -> HeartbeatStatus:
        """What a heartbeat about it says now."""
        if self.frozen_since is not None:
            return B.FROZEN
        return B.RUNNING if self.started else B.FOUND_VM

    def final_word(self, exit_code: int | None) -> HeartbeatStatus:
        """Exit code 0 of a job that nobody stopped means that its work is done, also when the VM
        is being taken; anything else on such a VM is an interruption, not the job's failure."""
        if self.ending is not None and self.ending.kind is not EndingKind.RECLAIM:
            return B.STOPPED
        if exit_code == 0:
            return B.COMPLETED
        return B.PREEMPTED if self.ending else B.FAILED

    def moments(self, computes_until: float, frozen_max_s: float) -> list[float]:
        """When something is due to it: a kill, and a freeze or the end of one."""
        if self.killed:
            return []  # nothing more is done to it, whatever the clock says
        if self.frozen_since is None:
            return [self.kill_at, computes_until]
        return [self.kill_at, self.frozen_since + frozen_max_s]

    def renew(self, tokens: Tokens) -> bool:
        """Whether somebody uses them already: a job at the barrier begins with them."""
        self.order = replace(self.order, tokens={**self.order.tokens, **tokens})
        return not self.waiting

    def learn(self, news: Progressed) -> None:
        """What the job says of itself; what it does not mention stays."""
        self.progress = news.progress or self.progress
        if news.checkpoint_step is not None:
            self.checkpoint_step = news.checkpoint_step


@dataclass(slots=True)
class JobPace:
    """Jobs that end at once come in numbers. The next one of them tells that it was claimed, runs
    and has ended in one batch, if it ends as soon; a VM that had no such job a moment ago tells
    everything at once."""

    _short_until: float = -math.inf

    def ended(self, work: Work, now: float) -> None:
        short = now - work.since < SHORT_JOB_S
        self._short_until = now + SHORT_JOBS_APART_S if short else -math.inf

    def words_wait_until(self, work: Work, now: float) -> float:
        """How long its first words may wait for the others; somebody waits for a gang's."""
        if work.waiting or now >= self._short_until:
            return -math.inf
        return now + EARLY_WORDS_WAIT_S


def slots_refusal(order: StartJob, held: Iterable[StartJob], gpu_count: int) -> str:
    """Why the order cannot have its slots; empty if it can. A VM without GPUs has one slot."""
    slot_count = slots_of(gpu_count)
    if order.gpus and not gpu_count:
        return f"slots: got GPUs {order.gpus}, but this VM has none"
    wrong = [slot for slot in order.slots if not 0 <= slot < slot_count]
    if wrong or len(set(order.slots)) != len(order.slots):
        return f"slots: got {order.slots}, expected different ones below {slot_count}"
    for other in held:
        if set(other.slots) & set(order.slots):
            return (
                f"busy: attempt {other.attempt} of job {other.spec.job_id} has slots {other.slots}"
            )
    return ""
