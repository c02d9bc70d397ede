"""What a pretend job does on a VM: how long it computes, how it ends, how it takes SIGTERM. All of
it follows from the seed and the job's name, never from the order of events."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from agent.events import Exited, Input, Progressed, Signal, Started, StartFailed
from agent.status_file import READ_MAX, Status, StatusLines
from core.job_tokens import Tokens
from core.messages import Size, StartJob

TERM_CODE = 143
KILL_CODE = 137


class OnTerm(StrEnum):
    """How a job takes SIGTERM."""

    LEAVE = "leave"
    IGNORE = "ignore"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Nature:
    """One attempt of one job."""

    start_s: float
    compute_s: float
    exit_code: int
    on_term: OnTerm
    leave_s: float
    start_fails: bool
    hangs_at_start: bool
    checkpoint_s: float


def nature_of(seed: int, job_id: str, attempt: int) -> Nature:
    """The same for every run of the seed."""
    job = random.Random(f"{seed}/job/{job_id}")
    # Gangs run long enough to grow and to shrink.
    often = (0, 2, 3, 1) if job_id.startswith("gang-") else (4, 4, 3, 1)
    length = job.choices((8.0, 25.0, 90.0, 240.0), often)[0] * job.uniform(0.5, 1.5)
    manners = job.choices(list(OnTerm), (6, 2, 1))[0]
    this = random.Random(f"{seed}/job/{job_id}/{attempt}")
    return Nature(
        start_s=this.uniform(0.1, 3.0),
        compute_s=length,
        exit_code=0 if this.random() < 0.85 else 1,
        on_term=manners,
        leave_s=this.uniform(0.2, 8.0),
        start_fails=this.random() < 0.02,
        hangs_at_start=this.random() < 0.03,
        checkpoint_s=30.0,
    )


class ComputeLog(Protocol):
    """Hears of every span of computation, when it happens."""

    def begins(self, order: StartJob, vm: str) -> None: ...
    def pauses(self, lease_id: str) -> None: ...
    def goes_on(self, lease_id: str) -> None: ...
    def ends(self, lease_id: str, code: int | None) -> None: ...
    def resized(self, order: StartJob, size: Size) -> None: ...


@dataclass(slots=True)
class _Run:
    order: StartJob
    nature: Nature
    done_s: float
    """Seconds of work behind it, with those of earlier attempts up to their last checkpoint."""
    begun: bool = False
    going_since: float | None = None
    stopped: bool = False
    waiting: list[Signal] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    leaving: asyncio.TimerHandle | None = None
    status: StatusLines = field(default_factory=StatusLines)
    lines: int = 0
    """How many it has written."""


class PretendRunner:
    """`agent.driver.Runner` without processes."""

    def __init__(
        self,
        nature: Callable[[str, int], Nature],
        vm: str,
        post: Callable[[Input], None],
        log: ComputeLog,
        checkpoints: dict[str, float],
    ) -> None:
        self._nature, self._vm, self._post, self._log = nature, vm, post, log
        self._checkpoints = checkpoints
        self._runs: dict[str, _Run] = {}
        self._loop = asyncio.get_running_loop()

    def start(self, order: StartJob) -> None:
        job_id = order.spec.job_id
        nature = self._nature(job_id, order.attempt)
        done_s = self._checkpoints.get(job_id, 0.0) if order.resume else 0.0
        run = _Run(order, nature, done_s)
        self._log.begins(order, self._vm)
        self._runs[order.lease_id] = run
        if not nature.hangs_at_start:
            run.timer = self._loop.call_later(nature.start_s, self._begin, run)

    def signal(self, lease_id: str, name: Signal) -> None:
        run = self._runs.get(lease_id)
        if run is None:
            return
        match name:
            case Signal.STOP:
                self._pause(run)
            case Signal.CONT:
                self._go_on(run)
            case Signal.KILL:
                self._leave(run, 0.05, KILL_CODE)
            case Signal.TERM if run.stopped:
                run.waiting.append(name)
            case Signal.TERM:
                self._term(run)

    def resize(self, lease_id: str, size: Size) -> None:
        """What it computes does not depend on how many compute with it."""
        run = self._runs.get(lease_id)
        if run is not None:
            self._log.resized(run.order, size)

    def give(self, lease_id: str, tokens: Tokens) -> None:
        """Nothing is stored here."""

    def renew(self, until: float) -> None:
        """Here the agent's logic and its jobs stand still together: there is nothing to watch."""

    def fail(self, lease_id: str) -> bool:
        """It ends now with an error of its own, if it runs."""
        run = self._runs.get(lease_id)
        if run is None or not run.begun or run.stopped:
            return False
        self._exit(run, 1)
        return True

    def close(self) -> None:
        """The machine or its agent is gone, and its jobs with it."""
        for lease_id in list(self._runs):
            self._drop(self._runs[lease_id], None)

    # --- the life of a run -----------------------------------------------------------------

    def _begin(self, run: _Run) -> None:
        lease_id = run.order.lease_id
        if run.nature.start_fails:
            self._drop(run, 127)
            self._post(StartFailed(lease_id, 127, "command not found: pretend"))
            return
        run.begun = True
        self._post(Started(lease_id))
        if not run.stopped:
            self._proceed(run)

    def _proceed(self, run: _Run) -> None:
        """Work on until the next checkpoint or the end."""
        run.going_since = self._loop.time()
        left_s = max(0.01, run.nature.compute_s - run.done_s)
        step_s = min(left_s, run.nature.checkpoint_s)
        run.timer = self._loop.call_later(step_s, self._step, run)

    def _step(self, run: _Run) -> None:
        self._account(run)
        nature, order = run.nature, run.order
        if run.done_s >= nature.compute_s - 0.001:
            self._exit(run, nature.exit_code)
            return
        self._checkpoints[order.spec.job_id] = run.done_s
        status = Status()
        for piece in _words(run):
            status = run.status.feed(piece)
        run.lines += 1
        self._post(Progressed(order.lease_id, status.progress, status.checkpoint_step))
        self._proceed(run)

    def _account(self, run: _Run) -> None:
        if run.going_since is not None:
            run.done_s += self._loop.time() - run.going_since
            run.going_since = None

    def _pause(self, run: _Run) -> None:
        if run.stopped:
            return
        run.stopped = True
        self._log.pauses(run.order.lease_id)
        if run.begun:
            self._account(run)
            _cancel(run.timer)
        if run.leaving is not None:
            _cancel(run.leaving)
            run.leaving = None
            run.waiting.append(Signal.TERM)

    def _go_on(self, run: _Run) -> None:
        if not run.stopped:
            return
        run.stopped = False
        self._log.goes_on(run.order.lease_id)
        if run.begun:
            self._proceed(run)
        if run.waiting:
            run.waiting.clear()
            self._term(run)

    def _term(self, run: _Run) -> None:
        manners = run.nature.on_term
        if manners is OnTerm.LEAVE or not run.begun:
            self._leave(run, run.nature.leave_s, TERM_CODE)
        elif manners is OnTerm.FINISH:
            self._leave(run, run.nature.leave_s, 0)

    def _leave(self, run: _Run, after_s: float, code: int) -> None:
        _cancel(run.leaving)
        run.leaving = self._loop.call_later(after_s, self._exit, run, code)

    def _exit(self, run: _Run, code: int) -> None:
        lease_id = run.order.lease_id
        if self._drop(run, code):
            self._post(Exited(lease_id, code, f"exit code {code}"))

    def _drop(self, run: _Run, code: int | None) -> bool:
        _cancel(run.timer)
        _cancel(run.leaving)
        if self._runs.pop(run.order.lease_id, None) is None:
            return False
        self._log.ends(run.order.lease_id, code)
        return True


def _words(run: _Run) -> tuple[bytes, ...]:
    """What it writes to its status file: the same in each of the ways that jobs have, now and then
    with something else around it."""
    step, total = run.done_s, run.nature.compute_s
    progress = {"step": step, "total": total}
    forms: tuple[tuple[dict[str, object], bytes], ...] = (
        ({**progress, "checkpoint": True}, b""),
        ({**progress, "checkpoint": {"step": step}}, b"not for anybody's eyes\n"),
        ({**progress, "checkpoint": step}, b'["neither this"]\n'),
        ({**progress, "checkpoint": step}, b'{"step": "nor this", "total": 1e999}\n'),
        ({**progress, "checkpoint": step}, b'{"total": 1%s}\n' % (b"0" * 400)),
        ({**progress, "checkpoint": step}, b"x" * (READ_MAX + 1)),
    )
    said, before = forms[(run.order.attempt + run.lines) % len(forms)]
    line = json.dumps(said).encode() + b"\n"
    return (before, b"\n" + line) if len(before) > READ_MAX else (before + line,)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
