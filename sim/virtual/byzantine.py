"""A VM that lies. It has what every VM has (the bus, its own keys, its own identity token), sees
all that is published, and forges, changes, repeats and swaps messages in bulk.

It never speaks as itself: what a worker says of its own jobs is its own to say.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from core.ids import RandomIds
from core.job_fields import WorkerSpec
from core.messages import (
    Canary,
    DrainVm,
    GpuReading,
    Heartbeat,
    HeartbeatStatus,
    InMessage,
    Introduction,
    OutboxRow,
    OutMessage,
    StartJob,
    StopJob,
    VmReadings,
)
from core.names import Names
from messaging.codec import (
    BadMessage,
    decode_heartbeat,
    encode_canary,
    encode_control,
    encode_heartbeat,
)
from messaging.proofs.control import NUMBER, SEAL_TO, SEALED, SchedulerSigner, open_start
from messaging.proofs.heartbeats import PROOF, HeartbeatProver
from messaging.proofs.keys import SchedulerKey, WorkerKeys
from messaging.proofs.sealing import NotForUs
from messaging.proofs.texts import to_text
from sim.virtual.bus import PretendBroker
from sim.virtual.loop import VirtualClock, VirtualLoop
from sim.virtual.pretend_vms import AgentBoot, PretendVms
from sim.virtual.trace import Trace

KEPT = 400
"""Messages of each topic that it remembers."""
BURST = 40
BURSTS = 50
"""So many of them, if the bus is there: while things go wrong there is time for more."""
EVERY_S = 5.0
_LIES = (
    HeartbeatStatus.COMPLETED,
    HeartbeatStatus.FAILED,
    HeartbeatStatus.STOPPED,
    HeartbeatStatus.PREEMPTED,
    HeartbeatStatus.RUNNING,
    HeartbeatStatus.FOUND_VM,
    HeartbeatStatus.FROZEN,
)
_OF_VMS = (
    HeartbeatStatus.READY,
    HeartbeatStatus.DRAINED,
    HeartbeatStatus.PREEMPTED,
    HeartbeatStatus.UNREADY,
)
FORGED_JOB = "forged-job"


class Byzantine:
    """`count` messages in bursts, until it is `over`. `opened` is told of each sealed start of
    another VM that it could read."""

    def __init__(
        self,
        loop: VirtualLoop,
        broker: PretendBroker,
        fleet: PretendVms,
        names: Names,
        dice: random.Random,
        trace: Trace,
    ) -> None:
        self._loop, self._broker, self._fleet, self._names = loop, broker, fleet, names
        self._trace = trace
        self._dice, self._ids = dice, RandomIds(dice)
        self.opened: Callable[[str], None] = lambda _: None
        self.over: Callable[[], bool] = lambda: False
        self._heartbeats: deque[OutMessage] = deque(maxlen=KEPT)
        self._controls: deque[OutMessage] = deque(maxlen=KEPT)
        self._lying = False
        self._forger = SchedulerSigner(
            (SchedulerKey.from_seeds(self._ids.seed(), self._ids.seed()),)
        )
        self._kinds: tuple[Callable[[AgentBoot, Heartbeat], OutMessage | None], ...] = (
            self._lie_of_job,
            self._lie_of_job,
            self._lie_of_vm,
            self._new_boot,
            self._again,
            self._again,
            self._changed,
            self._swapped,
            self._canary,
            self._start,
            self._stop,
            self._control_again,
            self._control_for_another,
        )

    def begin(self, count: int) -> None:
        """Lets it loose."""
        if count > 0:
            self._loop.later(EVERY_S, self._burst, count, max(BURST, count // BURSTS))

    def sees(self, message: OutMessage) -> None:
        """Everything that is published; it reads what it can."""
        if self._lying:
            return
        if message.topic == self._names.heartbeat_topic:
            self._heartbeats.append(message)
        elif message.topic == self._names.control_topic:
            self._controls.append(message)
            self._try_to_open(message)

    def _try_to_open(self, message: OutMessage) -> None:
        if SEALED not in message.attributes:
            return
        boots = self._boots()
        liar = self._dice.choice(boots) if boots else None
        if liar is None or liar.info.name == message.attributes.get("vm_name"):
            return
        try:
            open_start(message.body, message.attributes, liar.keys)
        except NotForUs:
            return
        self.opened(f"{liar.info.name} reads a start for {message.attributes.get('vm_name')}")

    def _boots(self) -> list[AgentBoot]:
        return [boot for boot in self._fleet.workers() if isinstance(boot, AgentBoot)]

    def _burst(self, left: int, many: int) -> None:
        if self.over():
            return
        boots = self._boots()
        if boots and self._heartbeats and not self._broker.down:
            liar = self._dice.choice(boots)
            tries = range(min(left, many))
            forged = [made for _ in tries if (made := self._forge(liar)) is not None]
            self._publish(forged)
            left -= len(forged)
        if left > 0:
            self._loop.later(EVERY_S, self._burst, left, many)

    def _publish(self, forged: list[OutMessage]) -> None:
        self._lying = True
        try:
            self._broker.take(forged)
        finally:
            self._lying = False
        self._trace.faults["forged_message"] += len(forged)

    def _forge(self, liar: AgentBoot) -> OutMessage | None:
        victim = self._victim(liar)
        return self._dice.choice(self._kinds)(liar, victim) if victim is not None else None

    def _victim(self, liar: AgentBoot) -> Heartbeat | None:
        """What another VM said: its name, boot, job and lease are no secrets."""
        message = self._dice.choice(self._heartbeats)
        try:
            now = VirtualClock(self._loop).now()
            said = decode_heartbeat(InMessage("", "", now, message.body, message.attributes))
        except BadMessage:
            return None
        if isinstance(said, Canary) or said.vm_name == liar.info.name:
            return None
        return said

    # --- heartbeats ------------------------------------------------------------------------

    def _lie_of_job(self, liar: AgentBoot, victim: Heartbeat) -> OutMessage | None:
        if victim.lease_id is None:
            return None
        status = self._dice.choice(_LIES)
        lie = replace(
            victim,
            status=status,
            seq=victim.seq + self._dice.randrange(1, 1000),
            exit_code=self._dice.choice((0, 1, None)),
            reason="forged",
            introduction=None,
        )
        return self._proven(liar, lie)

    def _lie_of_vm(self, liar: AgentBoot, victim: Heartbeat) -> OutMessage:
        broken = VmReadings((GpuReading(0, fault="forged"),))
        lie = replace(
            victim,
            status=self._dice.choice(_OF_VMS),
            job_id=None,
            lease_id=None,
            attempt=None,
            seq=victim.seq + self._dice.randrange(1, 1000),
            readings=broken if self._dice.random() < 0.5 else victim.readings,
            reason="forged",
            introduction=None,
        )
        return self._proven(liar, lie)

    def _new_boot(self, liar: AgentBoot, victim: Heartbeat) -> OutMessage:
        """The liar's keys with its own good token, or a stolen one, under the victim's name."""
        known = victim.introduction.token if victim.introduction is not None else "forged"
        public = liar.keys.public
        token = liar.token(public.audience) if self._dice.random() < 0.5 else known
        nonce = victim.boot_nonce if self._dice.random() < 0.3 else self._ids.token()
        lie = replace(
            victim,
            status=HeartbeatStatus.READY,
            boot_nonce=nonce,
            job_id=None,
            lease_id=None,
            attempt=None,
            seq=self._dice.randrange(1, 1000),
            introduction=Introduction(public, token),
        )
        prover = HeartbeatProver(liar.keys, liar.scheduler, nonce)
        return prover.signed(encode_heartbeat(lie, self._names))

    def _proven(self, liar: AgentBoot, lie: Heartbeat) -> OutMessage:
        """By nothing, by the liar's own keys, or by a proof of somebody else's message."""
        message = encode_heartbeat(lie, self._names)
        prover = HeartbeatProver(liar.keys, liar.scheduler, lie.boot_nonce)
        match self._dice.randrange(5):
            case 0:
                return message
            case 1:
                return prover.signed(message)
            case 2:
                return prover.authenticated(message)
            case 3:
                proof = self._dice.choice(self._heartbeats).attributes.get(PROOF, "")
            case _:
                proof = self._dice.choice(("s1.", "m1.x.")) + to_text(self._ids.seed())
        return replace(message, attributes={**message.attributes, PROOF: proof})

    def _again(self, _: AgentBoot, __: Heartbeat) -> OutMessage:
        return self._dice.choice(self._heartbeats)

    def _changed(self, _: AgentBoot, __: Heartbeat) -> OutMessage:
        """One byte of a true message."""
        message = self._dice.choice(self._heartbeats)
        body = bytearray(message.body)
        body[self._dice.randrange(len(body))] ^= 1 << self._dice.randrange(7)
        return replace(message, body=bytes(body))

    def _swapped(self, _: AgentBoot, __: Heartbeat) -> OutMessage:
        """The body of one message under the proof of another."""
        one, other = self._dice.choice(self._heartbeats), self._dice.choice(self._heartbeats)
        if one is other or one.body == other.body:
            return replace(one, attributes={})
        return replace(one, attributes=other.attributes)

    def _canary(self, _: AgentBoot, __: Heartbeat) -> OutMessage:
        canary = Canary(self._dice.randrange(1, 9), self._dice.randrange(9999))
        message = encode_canary(canary, self._names)
        return self._forger.canary(message) if self._dice.random() < 0.5 else message

    # --- control messages ------------------------------------------------------------------

    def _start(self, _: AgentBoot, victim: Heartbeat) -> OutMessage:
        """Sealed for the victim, whose public key is known, and signed by nobody that it knows."""
        spec = WorkerSpec(FORGED_JOB, command=("steal",))
        lease = self._ids.token()
        order = StartJob(victim.vm_name, victim.boot_nonce, spec, "1xl4", "r", 1, lease, (0,))
        message = encode_control(order, self._names)
        keys = self._keys_of(victim.boot_nonce)
        if keys is None or self._dice.random() < 0.3:
            return message
        attributes = {**message.attributes, SEAL_TO: to_text(keys.public.sealing)}
        row = OutboxRow(self._dice.randrange(1, 10**9), replace(message, attributes=attributes))
        return self._forger.control(row, self._ids.seed())

    def _stop(self, _: AgentBoot, victim: Heartbeat) -> OutMessage:
        if victim.lease_id is None or victim.job_id is None or self._dice.random() < 0.2:
            order: StopJob | DrainVm = DrainVm(victim.vm_name, victim.boot_nonce, "forged")
        else:
            order = StopJob(
                victim.vm_name,
                self._dice.choice(("", victim.boot_nonce)),
                victim.job_id,
                victim.user_id,
                victim.attempt or 0,
                victim.lease_id,
                0.0,
                "forged",
            )
        message = encode_control(order, self._names)
        if self._dice.random() < 0.5:
            return message
        return self._forger.control(OutboxRow(self._dice.randrange(10**9), message), b"")

    def _control_again(self, _: AgentBoot, __: Heartbeat) -> OutMessage | None:
        return self._dice.choice(self._controls) if self._controls else None

    def _control_for_another(self, _: AgentBoot, victim: Heartbeat) -> OutMessage | None:
        """A true message with another address, boot or number."""
        if not self._controls:
            return None
        message = self._dice.choice(self._controls)
        changed = self._dice.choice(
            (
                {"vm_name": victim.vm_name, "boot_nonce": victim.boot_nonce},
                {"boot_nonce": victim.boot_nonce},
                {NUMBER: str(self._dice.randrange(10**9))},
                {"kind": "drain"},
            )
        )
        if all(message.attributes.get(name) == value for name, value in changed.items()):
            return None
        key = changed.get("vm_name", message.ordering_key)
        return replace(message, attributes={**message.attributes, **changed}, ordering_key=key)

    def _keys_of(self, nonce: str) -> WorkerKeys | None:
        return next((boot.keys for boot in self._boots() if boot.nonce == nonce), None)
