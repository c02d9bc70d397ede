"""Thousands of pretended workers in one process, and a bus and a cloud for them: what they say
costs next to nothing, so that what is measured beside them is the scheduler."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.proven import WORKER, prover, signed
from core.actions import Create, Delete
from core.clock import SystemClock
from core.errors import CloudRefused
from core.messages import Heartbeat, HeartbeatStatus, InMessage, OutMessage, StartJob
from core.mig import MachineState, ManagedInstance, MigSnapshot
from core.names import Names
from messaging.codec import decode_control
from messaging.proofs.control import SEALED, open_start

TICK_S = 0.05
_CLOCK = SystemClock()


@dataclass(slots=True)
class FleetWorker:
    """One VM and what it works on."""

    name: str
    mig: str
    zone: str
    number: int
    job_id: str | None = None
    user_id: str = "u"
    attempt: int = 0
    lease_id: str = ""
    seq: int = 0
    usual: tuple[bytes, bytes] = (b"", b"")
    """Its usual heartbeat before and after the sequence number: encoded once per job."""

    @property
    def nonce(self) -> str:
        return f"nonce-{self.number}"

    def says(self, status: HeartbeatStatus, names: Names) -> OutMessage:
        """Signed, as a change of state is."""
        self.seq += 1
        heartbeat = Heartbeat(
            status=status,
            vm_name=self.name,
            job_id=self.job_id,
            user_id=self.user_id,
            attempt=self.attempt if self.job_id else None,
            lease_id=self.lease_id if self.job_id else None,
            boot_nonce=self.nonce,
            seq=self.seq,
            exit_code=0 if status is HeartbeatStatus.COMPLETED else None,
        )
        return signed(heartbeat, names)

    def repeats(self, message: OutMessage) -> None:
        """What it says from now on."""
        before, _, after = message.body.partition(b'"seq":%d' % self.seq)
        self.usual = before + b'"seq":', after

    def again(self) -> OutMessage:
        """The usual heartbeat, with a MAC."""
        self.seq += 1
        before, after = self.usual
        message = OutMessage("", before + str(self.seq).encode() + after)
        return prover(self.nonce).authenticated(message)


@dataclass(slots=True)
class FleetPace:
    """How fast the fleet lives."""

    heartbeat_s: float
    """Each worker says something this often."""
    ends_per_s: float


@dataclass(slots=True)
class BenchFleet:
    """Bus, cloud and workers at once."""

    names: Names
    workers: dict[str, FleetWorker]
    pace: FleetPace
    started: int = 0
    _mail: asyncio.Queue[list[InMessage]] = field(default_factory=asyncio.Queue)
    _groups: defaultdict[str, list[FleetWorker]] = field(default_factory=lambda: defaultdict(list))
    _count: int = 0
    _dice: random.Random = field(default_factory=lambda: random.Random(1))

    # --- core.ports.Bus ------------------------------------------------------------------

    async def publish(
        self,
        messages: Sequence[OutMessage],
        timeout_s: float,  # noqa: ARG002  # the port's
    ) -> Sequence[str]:
        answers: list[InMessage] = []
        for message in messages:
            if message.topic == self.names.heartbeat_topic:  # the canary
                answers.append(self._in(message.body, message.attributes))
            elif message.topic == self.names.control_topic:
                order = decode_control(self._opened(message))
                if isinstance(order, StartJob):
                    answers += self._start(order)
        if answers:
            self._mail.put_nowait(answers)
        return ["0"] * len(messages)

    def subscribe(self, subscription: str, *, max_messages: int = 1000) -> FleetSubscription:  # noqa: ARG002
        return FleetSubscription(
            self._mail if subscription == self.names.heartbeat_subscription else None
        )

    def _in(self, body: bytes, attributes: object = None) -> InMessage:
        self._count += 1
        number = str(self._count)
        words = attributes if isinstance(attributes, dict) else {}
        return InMessage(number, number, _CLOCK.now(), body, words)

    def _opened(self, message: OutMessage) -> InMessage:
        body = message.body
        if SEALED in message.attributes:
            body = open_start(body, message.attributes, WORKER)
        return self._in(body, message.attributes)

    def _start(self, order: StartJob) -> list[InMessage]:
        worker = self.workers[order.vm_name]
        worker.job_id, worker.user_id = order.spec.job_id, order.spec.user_id
        worker.attempt, worker.lease_id = order.attempt, order.lease_id
        self.started += 1
        found = worker.says(HeartbeatStatus.FOUND_VM, self.names)
        running = worker.says(HeartbeatStatus.RUNNING, self.names)
        worker.repeats(running)
        return [self._in(said.body, said.attributes) for said in (found, running)]

    # --- core.ports.Compute --------------------------------------------------------------

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        members = tuple(
            ManagedInstance(w.name, w.zone, MachineState.RUNNING, str(w.number))
            for w in self._members()[mig]
        )
        return MigSnapshot(mig, cluster, region, len(members), True, members, _CLOCK.now())

    async def create(self, mig: str, action: Create) -> None:  # noqa: ARG002
        raise CloudRefused("this fleet does not grow")

    async def delete(self, mig: str, action: Delete) -> None:  # noqa: ARG002
        raise CloudRefused("this fleet does not shrink")

    def _members(self) -> Mapping[str, Sequence[FleetWorker]]:
        """By group; the fleet stays as it is."""
        if not self._groups:
            for worker in self.workers.values():
                self._groups[worker.mig].append(worker)
        return self._groups

    # --- the workers ---------------------------------------------------------------------

    async def live(self) -> None:
        """Heartbeats of those whose turn it is, and ends, as time goes by."""
        line = deque(self.workers.values())
        last, owed, ends = _CLOCK.monotonic(), 0.0, 0.0
        while True:
            await asyncio.sleep(TICK_S)
            now = _CLOCK.monotonic()
            owed += (now - last) * len(line) / self.pace.heartbeat_s
            ends += (now - last) * self.pace.ends_per_s
            last = now
            said: list[InMessage] = []
            for _ in range(int(owed)):
                line.rotate(-1)
                again = line[-1].again()
                said.append(self._in(again.body, again.attributes))
            owed -= int(owed)
            for _ in range(int(ends)):
                said += self._end(self._dice.choice(line))
            ends -= int(ends)
            if said:
                self._mail.put_nowait(said)

    def _end(self, worker: FleetWorker) -> list[InMessage]:
        if worker.job_id is None:
            return []
        over = worker.says(HeartbeatStatus.COMPLETED, self.names)
        worker.job_id = None
        worker.repeats(worker.says(HeartbeatStatus.READY, self.names))
        return [self._in(over.body, over.attributes)]


class FleetSubscription:
    """An open subscription."""

    def __init__(self, mail: asyncio.Queue[list[InMessage]] | None) -> None:
        self._mail = mail or asyncio.Queue()

    async def batches(self) -> AsyncIterator[Sequence[InMessage]]:
        while True:
            batch = await self._mail.get()
            while not self._mail.empty():
                batch = batch + self._mail.get_nowait()
            yield batch

    async def ack(self, ack_ids: Sequence[str]) -> None: ...
    async def nack(self, ack_ids: Sequence[str]) -> None: ...
    async def close(self) -> None: ...
