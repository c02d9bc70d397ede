"""The agent's state machine: values in, values out; no wires, no processes, no clock."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import assert_never

from agent.attempt import RECLAIMED, Ending, EndingKind, JobPace, Work, slots_refusal
from agent.events import (
    ControlReceived,
    Exit,
    Exited,
    ExitKind,
    GiveTokens,
    HeartbeatsAnswered,
    Identity,
    Input,
    Listening,
    Output,
    ParentGone,
    Progressed,
    PublishHeartbeats,
    ReadingsTaken,
    ReclaimNotice,
    ShutDown,
    Signal,
    SignalGroup,
    Started,
    StartFailed,
    StartProcess,
    TellSize,
    Tick,
)
from agent.heartbeat_queue import Outgoing
from core.messages import (
    NOTHING_READ,
    ContinueJob,
    Control,
    DrainVm,
    GoJob,
    Heartbeat,
    HeartbeatStatus,
    KeepWarm,
    RenewTokens,
    ResizeJob,
    StartJob,
    StopJob,
    VmReadings,
)
from core.timers import Timers

B = HeartbeatStatus
RETRY_S = 1.0
"""Pause after a publish that failed."""
SHUT_DOWN_GRACE_S = 5.0
"""From SIGTERM to SIGKILL when only the agent is told to go: its own killer waits too."""
SPOT_OFF_GRACE_S = 25.0
"""From SIGTERM to SIGKILL when the cloud takes the VM. systemd's SIGTERM means a soft off, and 30 s
later the power is cut: the rest is for the last heartbeats."""
LAST_WORDS_S = 3.0
"""How long a shutdown waits for the bus to take the last heartbeats."""
FINISHED_MAX = 1024
TERMINATED = 143
"""As a shell counts: 128 + SIGTERM."""


@dataclass(slots=True)
class AgentMachine:
    """Feed it with handle(); it never needs to be asked before wake_at()."""

    identity: Identity
    timers: Timers
    gpu_count: int
    booted_at: float
    listening: bool = True
    """Until we listen we are silent: who says READY may be sent work at once."""
    readings: VmReadings = NOTHING_READ
    unready: str = ""
    """Why this machine cannot work at all; it says so instead of READY."""
    jobs: dict[str, Work] = field(default_factory=dict)
    """By lease id."""
    _finished: OrderedDict[str, Heartbeat] = field(default_factory=OrderedDict)
    _outgoing: Outgoing = field(default_factory=Outgoing)
    _pace: JobPace = field(default_factory=JobPace)
    _out: list[Output] = field(default_factory=list)
    _seq: int = 0
    _stale_seq: int = 0
    """The last heartbeat before our lease may have been given away: answers up to it mean
    nothing."""
    _confirmed_at: float = field(init=False)
    """Send time of the last confirmed heartbeat: what our half of the lease is measured from."""
    _quiet_since: float = field(init=False)
    """Last control message or end of work."""
    _heartbeat_at: float = field(init=False)
    _retry_at: float = -math.inf
    _draining: bool = False
    _preempted: bool = False
    _preempted_by: str = ""
    """What takes the VM, if it is not a reclaim of a spot VM."""
    _shut_down: str = ""
    _shut_down_at: float = math.inf
    _shut_down_by: float = math.inf
    _over: bool = False

    def __post_init__(self) -> None:
        self._confirmed_at = self._quiet_since = self._heartbeat_at = self.booted_at

    def handle(self, event: Input, now: float) -> list[Output]:
        """What to do about the event, and about the time that has passed until it."""
        self._out = []
        if self._over:
            return self._out
        self._hear(event, now)
        if not self._over:
            self._pass_time(now)
        if not self._over:
            self._flush(now)
        return self._out

    def wake_at(self) -> float:
        """When a Tick is due if nothing else happens."""
        times = [self._heartbeat_at]
        if self._outgoing.waiting and not self._outgoing.busy:
            times.append(max(self._retry_at, self._outgoing.due_at))
        for work in self.jobs.values():
            times += work.moments(self.computes_until, self.timers.frozen_max_s)
        if not self.jobs:
            times.append(self._off_at())
        times.append(self._shut_down_by)
        return min(times)

    @property
    def computes_until(self) -> float:
        """When jobs freeze if no other heartbeat is confirmed. A scheduler does not give them away
        before, so a VM that holds on to this moment cannot compute beside a successor."""
        return self._confirmed_at + self.timers.self_stop_after_s

    # --- inputs -------------------------------------------------------------------------

    def _hear(self, event: Input, now: float) -> None:
        match event:
            case ControlReceived(control):
                self._control(control, now)
            case HeartbeatsAnswered():
                self._answered(event, now)
            case Started(lease_id):
                self._started(lease_id)
            case StartFailed(lease_id, exit_code, reason) | Exited(lease_id, exit_code, reason):
                self._ended(lease_id, exit_code, reason, now)
            case Progressed(lease_id):
                if lease_id in self.jobs:
                    self.jobs[lease_id].learn(event)
            case Listening() | ReadingsTaken() | Tick():
                self._note(event)
            case ReclaimNotice(reason):
                self._preempt(reason, now)
            case ShutDown():
                self._begin_shut_down(event, now)
            case ParentGone():
                self._kill_all()
                self._exit(ExitKind.PARENT_GONE, "the parent process is gone")
            case _:
                assert_never(event)

    def _note(self, event: Listening | ReadingsTaken | Tick) -> None:
        if isinstance(event, ReadingsTaken):
            self.readings = event.readings.over(self.readings)
        elif isinstance(event, Listening):
            self.listening = True
            self._say_idle()

    def _answered(self, answer: HeartbeatsAnswered, now: float) -> None:
        if answer.confirmed:
            sent_at = self._outgoing.confirmed(answer.number)
            self._confirmed_at = max(self._confirmed_at, sent_at or self._confirmed_at)
        elif self._outgoing.failed(answer.number):
            self._retry_at = now + min(RETRY_S, self.timers.heartbeat_s)

    def _control(self, control: Control, now: float) -> None:
        # Not for another VM, nor for one that had our name before us. A stop may come without a
        # nonce: its lease is fence enough.
        fenced = control.boot_nonce or not isinstance(control, StopJob)
        if control.vm_name != self.identity.vm_name or (
            fenced and control.boot_nonce != self.identity.boot_nonce
        ):
            return
        self._quiet_since = now
        match control:
            case StartJob():
                self._start(control, now)
            case StopJob():
                self._stop(control, now)
            case ContinueJob():
                self._continue(control, now)
            case GoJob(lease_id=lease_id):
                self._go(lease_id)
            case ResizeJob():
                self._resize(control)
            case RenewTokens():
                self._renew(control)
            case DrainVm():
                self._draining = True
                self._say_idle()
            case KeepWarm():
                pass  # hearing from us is all it is for
            case _:
                assert_never(control)

    def _start(self, order: StartJob, now: float) -> None:
        if (work := self.jobs.get(order.lease_id)) is not None:
            self._say(work, work.status)
            return
        if (last := self._finished.get(order.lease_id)) is not None:
            self._repeat(last)
            return
        if refusal := self._refusal(order):
            self._answer(order, B.FAILED, refusal)
            return
        self._outgoing.drop("", B.READY, B.DRAINED)
        work = self.jobs[order.lease_id] = Work(order, now, waiting=order.barrier)
        self._outgoing.hold_early_words(self._pace.words_wait_until(work, now))
        self._say(work, B.FOUND_VM)
        if not work.waiting:
            self._out.append(StartProcess(order))

    def _go(self, lease_id: str) -> None:
        """A frozen job stays at the barrier: after the thaw it says again that it is there, and is
        told again to go."""
        work = self.jobs.get(lease_id)
        if work is not None and work.waiting and work.frozen_since is None:
            work.waiting = False
            self._out.append(StartProcess(work.order))

    def _resize(self, news: ResizeJob) -> None:
        """Sizes may come twice and late: the newest one holds. One that says what the job knows
        already must not make it form its group anew."""
        work = self.jobs.get(news.lease_id)
        known = work.order.size if work is not None else None
        if work is None or known is None or news.size.generation <= known.generation:
            return
        work.order = replace(work.order, size=news.size, world_size=len(news.size.members))
        if not work.waiting and news.size.members != known.members:
            self._out.append(TellSize(news.lease_id, news.size))

    def _renew(self, news: RenewTokens) -> None:
        work = self.jobs.get(news.lease_id)
        if work is not None and work.renew(news.tokens):
            self._out.append(GiveTokens(news.lease_id, news.tokens))

    def _refusal(self, order: StartJob) -> str:
        if self.unready:
            return self.unready
        if self._shut_down or self._preempted or self._draining:
            word = "shutting down" if self._shut_down else "draining"
            return "the VM is being preempted" if self._preempted else f"the agent is {word}"
        held = [work.order for work in self.jobs.values()]
        return slots_refusal(order, held, self.gpu_count)

    def _stop(self, stop: StopJob, now: float) -> None:
        work = self.jobs.get(stop.lease_id)
        if work is not None:
            ending = Ending(EndingKind.STOP, stop.reason or "stopped")
            self._end(work, ending, now + max(0.0, stop.grace_s), now)
        elif (last := self._finished.get(stop.lease_id)) is not None:
            self._repeat(last)
        else:
            self._answer(stop, B.STOPPED, "no such lease on this VM")

    def _continue(self, order: ContinueJob, now: float) -> None:
        lease_id = order.lease_id
        work = self.jobs.get(lease_id)
        if work is None or work.frozen_since is None or work.killed:
            return
        silent = now >= self.computes_until
        if silent or order.answers <= self._stale_seq:
            return  # an old `continue`: nobody has heard of us since, so our lease may be gone
        work.frozen_since = None
        self._out.append(SignalGroup(lease_id, Signal.CONT))
        self._outgoing.drop(lease_id, B.FROZEN)
        self._say(work, work.status)

    def _started(self, lease_id: str) -> None:
        work = self.jobs.get(lease_id)
        if work is not None and not work.started:
            work.started = True
            self._say(work, work.status)

    def _ended(self, lease_id: str, exit_code: int | None, reason: str, now: float) -> None:
        work = self.jobs.pop(lease_id, None)
        if work is None:
            return
        self._pace.ended(work, now)
        status = work.final_word(exit_code)
        if work.ending and status is not B.COMPLETED:
            reason = f"{work.ending.words}; {reason}"
        self._outgoing.drop(lease_id, B.FROZEN)
        heartbeat = replace(self._heartbeat(work, status), exit_code=exit_code, reason=reason)
        self._finish(lease_id, heartbeat)
        if not self.jobs:
            self._quiet_since = now
            self._say_idle()

    def _preempt(self, reason: str, now: float) -> None:
        if self._preempted:
            return
        self._preempted, self._preempted_by = True, reason
        if self._shut_down:
            self._lengthen_shut_down()
        for work in list(self.jobs.values()):
            # No kill: the cloud does that. What is left of the notice belongs to the checkpoint.
            self._end(work, RECLAIMED, math.inf, now, kill_frozen=False)
        self._outgoing.drop("", B.READY, B.DRAINED)
        self._say_idle()

    def _begin_shut_down(self, told: ShutDown, now: float) -> None:
        """A caller that only stops the agent waits for it but a short while. When the machine goes
        off, the jobs have the whole time until then: it belongs to their checkpoints."""
        if self._shut_down:
            return
        self._shut_down, self._shut_down_at = told.reason, now
        self._outgoing.drop("", B.READY, B.DRAINED)
        grace_s, last_s = min(SHUT_DOWN_GRACE_S, self.timers.stop_grace_s), LAST_WORDS_S
        if self._preempted:
            grace_s = SPOT_OFF_GRACE_S
        elif told.grace_s is not None:
            grace_s = told.grace_s
        else:
            last_s += grace_s
        self._shut_down_by = now + LAST_WORDS_S if not self.jobs else now + grace_s + last_s
        ending = Ending(EndingKind.SHUT_DOWN, f"agent shut down: {told.reason}")
        for work in list(self.jobs.values()):
            self._end(work, ending, now + grace_s, now)

    def _lengthen_shut_down(self) -> None:
        """SIGTERM came first, the notice that explains it a moment later."""
        latest = self._shut_down_at + SPOT_OFF_GRACE_S + LAST_WORDS_S
        self._shut_down_by = max(self._shut_down_by, latest)
        for work in self.jobs.values():
            if work.ending is not None and work.ending.kind is EndingKind.SHUT_DOWN:
                work.ending = RECLAIMED
                work.kill_at = self._shut_down_at + SPOT_OFF_GRACE_S

    # --- time ---------------------------------------------------------------------------

    def _pass_time(self, now: float) -> None:
        # Compared as wake_at() says it: a difference may be a rounding error short of the span, and
        # a loop that is woken for nothing would be woken again at once.
        if now >= self.computes_until:
            self._stale_seq = self._seq
            self._freeze(now)
        for work in list(self.jobs.values()):
            since = work.frozen_since
            if since is not None and now >= since + self.timers.frozen_max_s and not work.killed:
                words = f"frozen for {now - since:.0f} s without the bus"
                self._end(work, Ending(EndingKind.STOP, words), now, now)
            if now >= work.kill_at and not work.killed:
                self._kill(work)
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self.timers.heartbeat_s
            for work in self.jobs.values():
                self._say(work, work.status)
            self._say_idle()
        self._perhaps_exit(now)

    def _freeze(self, now: float) -> None:
        for lease_id, work in self.jobs.items():
            if work.frozen_since is None and not work.killed:
                work.frozen_since = now
                self._out.append(SignalGroup(lease_id, Signal.STOP))
                self._outgoing.drop(lease_id, B.RUNNING, B.FOUND_VM)
                self._say(work, work.status)

    def _perhaps_exit(self, now: float) -> None:
        if self._shut_down:
            # That the cloud takes the VM must be known before somebody gives it a job.
            untold = self._preempted and self._outgoing.waiting
            said = not self.jobs and not self._outgoing.owes_final_words and not untold
            if said or now >= self._shut_down_by:
                self._kill_all()
                self._exit(ExitKind.SHUT_DOWN, self._shut_down)
        elif not self.jobs and now >= self._off_at():
            idle_s = now - self._quiet_since
            self._exit(ExitKind.POWER_OFF, f"idle and without a control message for {idle_s:.0f} s")

    def _off_at(self) -> float:
        """A result that the bus has not taken yet is worth more than the minutes of a VM, but
        not without end."""
        waits = self.timers.agent_idle_off_s
        if self._outgoing.owes_final_words:
            waits = max(waits, self.timers.frozen_max_s)
        return self._quiet_since + waits

    # --- doing --------------------------------------------------------------------------

    def _end(
        self, work: Work, ending: Ending, kill_at: float, now: float, *, kill_frozen: bool = True
    ) -> None:
        """SIGTERM now, SIGKILL at `kill_at`; the first ending stays, the nearest kill wins."""
        first = work.ending is None
        work.ending = work.ending or ending
        work.kill_at = min(work.kill_at, kill_at)
        if work.waiting:  # there is no process that could end by itself
            self._ended(work.order.lease_id, TERMINATED, "it had not begun", now)
            return
        if work.killed:
            return
        if (work.frozen_since is not None and kill_frozen) or now >= work.kill_at:
            # A frozen job cannot use a grace time, and thawing it could mean computing twice.
            self._kill(work)
        elif first:
            self._out.append(SignalGroup(work.order.lease_id, Signal.TERM))

    def _kill(self, work: Work) -> None:
        work.killed = True
        self._out.append(SignalGroup(work.order.lease_id, Signal.KILL))

    def _kill_all(self) -> None:
        for work in self.jobs.values():
            self._kill(work)

    def _exit(self, kind: ExitKind, reason: str) -> None:
        self._over = True
        self._out.append(Exit(kind, reason))

    def _flush(self, now: float) -> None:
        out = self._outgoing
        if out.waiting and not out.busy and now >= max(self._retry_at, out.due_at):
            number, heartbeats = out.take(now)
            self._out.append(PublishHeartbeats(number, heartbeats))

    # --- words --------------------------------------------------------------------------

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _vm_heartbeat(self, status: HeartbeatStatus) -> Heartbeat:
        me = self.identity
        return Heartbeat(
            status=status,
            vm_name=me.vm_name,
            seq=self._next_seq(),
            instance_id=me.instance_id,
            boot_nonce=me.boot_nonce,
            zone=me.zone,
            address=me.address,
            readings=self.readings,
        )

    def _heartbeat(self, work: Work, status: HeartbeatStatus) -> Heartbeat:
        order = work.order
        return replace(
            self._vm_heartbeat(status),
            job_id=order.spec.job_id,
            user_id=order.spec.user_id,
            attempt=order.attempt,
            lease_id=order.lease_id,
            progress=work.progress,
            checkpoint_step=work.checkpoint_step,
        )

    def _say(self, work: Work, status: HeartbeatStatus) -> None:
        self._outgoing.put(self._heartbeat(work, status))

    def _say_idle(self) -> None:
        """The VM's own heartbeat, when no job's heartbeat speaks for it. A preempted VM always says
        so."""
        if self._preempted:
            self._outgoing.put(replace(self._vm_heartbeat(B.PREEMPTED), reason=self._preempted_by))
        elif self.unready:
            self._outgoing.put(replace(self._vm_heartbeat(B.UNREADY), reason=self.unready))
        elif self.listening and not self.jobs and not self._shut_down:
            self._outgoing.put(self._vm_heartbeat(B.DRAINED if self._draining else B.READY))

    def _answer(self, about: StartJob | StopJob, status: HeartbeatStatus, reason: str) -> None:
        """A final word on a lease that never lived here: it must not come to life later."""
        if self._outgoing.full:
            return
        spec = about.spec if isinstance(about, StartJob) else about
        heartbeat = replace(
            self._vm_heartbeat(status),
            job_id=spec.job_id,
            user_id=spec.user_id,
            attempt=about.attempt,
            lease_id=about.lease_id,
            reason=reason,
        )
        self._finish(about.lease_id, heartbeat)

    def _finish(self, lease_id: str, heartbeat: Heartbeat) -> None:
        self._finished[lease_id] = heartbeat
        if len(self._finished) > FINISHED_MAX:
            self._finished.popitem(last=False)
        self._outgoing.put(heartbeat)

    def _repeat(self, last: Heartbeat) -> None:
        if not self._outgoing.full:
            self._outgoing.put(replace(last, seq=self._next_seq()))
