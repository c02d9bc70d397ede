"""Drives the machine: control messages and other inputs into the box and out of it, outputs to bus
and runner. Runs on any asyncio loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, assert_never

from agent.events import (
    ControlReceived,
    Exit,
    GiveTokens,
    HeartbeatsAnswered,
    Input,
    Output,
    PublishHeartbeats,
    Signal,
    SignalGroup,
    StartProcess,
    TellSize,
    Tick,
)
from agent.json_log import JsonLog
from agent.proofs import WorkerProofs
from agent.state_machine import AgentMachine
from core.errors import ZenError
from core.job_tokens import Tokens
from core.messages import Heartbeat, InMessage, Size, StartJob
from core.ports import Bus, Clock
from messaging.codec import BadMessage
from messaging.proofs.heartbeats import BadProof
from messaging.proofs.sealing import NotForUs

SEEN_MAX = 1000


class Runner(Protocol):
    """Starts and signals jobs; answers by posting Started, StartFailed, Exited, Progressed."""

    def start(self, order: StartJob) -> None: ...
    def signal(self, lease_id: str, name: Signal) -> None: ...
    def resize(self, lease_id: str, size: Size) -> None: ...
    def give(self, lease_id: str, tokens: Tokens) -> None: ...
    def renew(self, until: float) -> None:
        """Whatever runs freezes by itself at that moment of the monotonic clock, also if the
        agent hangs, unless it is renewed before."""


class Driver:
    """One machine and its hands."""

    def __init__(
        self,
        machine: AgentMachine,
        bus: Bus,
        proofs: WorkerProofs,
        clock: Clock,
        journal: JsonLog,
    ) -> None:
        self._machine, self._bus, self._proofs = machine, bus, proofs
        self._clock, self._journal = clock, journal
        # Not bounded by itself: every source waits for an answer or is paced by a timer.
        self._box: asyncio.Queue[Input] = asyncio.Queue()
        self._publishing: asyncio.Task[None] | None = None

    def post(self, event: Input) -> None:
        """Drop an input into the box."""
        self._box.put_nowait(event)

    async def run(self, runner: Runner) -> Exit:
        """Until the machine says Exit."""
        try:
            event: Input = Tick()
            until = 0.0
            while True:
                outputs = self._machine.handle(event, self._clock.monotonic())
                if until != self._machine.computes_until:
                    until = self._machine.computes_until
                    runner.renew(until)
                for output in outputs:
                    if isinstance(output, Exit):
                        self._journal.info("exit", kind=output.kind, reason=output.reason)
                        return output
                    self._perform(output, runner)
                event = await self._next()
        finally:
            if self._publishing is not None:
                self._publishing.cancel()

    async def _next(self) -> Input:
        if not self._box.empty():
            return self._box.get_nowait()
        pause_s = self._machine.wake_at() - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(0.0, pause_s)):
                return await self._box.get()
        except TimeoutError:
            return Tick()

    def _perform(self, output: Output, runner: Runner) -> None:
        match output:
            case PublishHeartbeats(number, heartbeats):
                self._publishing = asyncio.create_task(self._publish(number, heartbeats))
            case StartProcess(order):
                self._journal.info("start", **_who(order))
                runner.start(order)
            case SignalGroup(lease_id, name):
                self._journal.info("signal", lease_id=lease_id, signal=name)
                runner.signal(lease_id, name)
            case TellSize(lease_id, size):
                members = [peer.rank for peer in size.members]
                self._journal.info("size", lease_id=lease_id, members=members)
                runner.resize(lease_id, size)
            case GiveTokens(lease_id, tokens):
                self._journal.info("tokens", lease_id=lease_id, kinds=sorted(tokens))
                runner.give(lease_id, tokens)
            case Exit():
                raise AssertionError("run() ends at Exit")
            case _:
                assert_never(output)

    async def _publish(self, number: int, heartbeats: tuple[Heartbeat, ...]) -> None:
        messages = self._proofs.messages(heartbeats, self._clock.monotonic())
        try:
            await self._bus.publish(messages, self._machine.timers.publish_timeout_s)
        except ZenError as error:
            self._journal.warning("heartbeats not confirmed", reason=str(error))
            self.post(HeartbeatsAnswered(number, confirmed=False))
        else:
            self._proofs.confirmed(self._clock.monotonic())
            self.post(HeartbeatsAnswered(number, confirmed=True))


def _who(order: StartJob) -> dict[str, object]:
    return {
        "job_id": order.spec.job_id,
        "attempt": order.attempt,
        "lease_id": order.lease_id,
        "slots": order.slots,
    }


class Ear:
    """Remembers what it has heard: the bus delivers at least once."""

    def __init__(
        self, post: Callable[[Input], None], proofs: WorkerProofs, journal: JsonLog
    ) -> None:
        self._post, self._proofs = post, proofs
        self._journal = journal
        self._seen: OrderedDict[str, None] = OrderedDict()

    def take(self, message: InMessage) -> bool:
        """Post what it says, unless it was heard before or proves nothing. False: it is another
        worker's and must go back to the bus."""
        # A repeated `continue` from an older freeze could thaw a job whose lease is gone by now.
        if message.message_id in self._seen:
            return True
        try:
            control = self._proofs.take(message)
        except NotForUs as error:
            self._journal.error("message of another VM", reason=str(error), id=message.message_id)
            return False
        except (BadProof, BadMessage) as error:
            self._journal.error("bad control message", reason=str(error), id=message.message_id)
            control = None
        self._seen[message.message_id] = None
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        if control is not None:
            self._post(ControlReceived(control))
        return True
