"""The machines of the pretend cloud: on each that has power, the real agent's logic over a bus and
a runner in virtual time."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, TextIO, cast

from agent.driver import Driver, Ear
from agent.events import (
    ControlReceived,
    Identity,
    Input,
    Listening,
    ReadingsTaken,
    ReclaimNotice,
    ShutDown,
)
from agent.json_log import JsonLog
from agent.proofs import WorkerProofs
from agent.state_machine import RETRY_S, AgentMachine
from core.errors import BusDown
from core.ids import RandomIds
from core.messages import GpuReading, VmReadings
from core.names import Names
from core.timers import Timers
from core.worker_identity import VmIdentity
from messaging.proofs.enrolment import instance_secret, make_token
from messaging.proofs.keys import SchedulerPublicKey, WorkerKeys
from sim.cloud.model import EffectKind, VmInfo
from sim.virtual.bus import MemoryBus, PretendBroker
from sim.virtual.compute import CloudInTime
from sim.virtual.loop import Process, VirtualClock, VirtualLoop
from sim.virtual.pretend_jobs import ComputeLog, Nature, PretendRunner
from sim.virtual.trace import Trace
from sim.virtual.worker_truth import WorkerTruth

SUBSCRIBE_AGAIN_S = 0.5
RESTART_S = 3.0
CLOCKS_WRONG_S = 300.0
TOKEN_AGAIN_S = 600.0
BAD_GPUS = 0.05


class _Nowhere(io.TextIOBase):
    """Where the agents' log lines go: the run has its own log."""

    def write(self, text: str) -> int:
        return len(text)


_NOWHERE = cast("TextIO", _Nowhere())


@dataclass(frozen=True, slots=True)
class Site:
    """What all machines share."""

    nature: Callable[[str, int], Nature]
    """What attempt of which job does what."""
    loop: VirtualLoop
    broker: PretendBroker
    cloud: CloudInTime
    names: Names
    timers: Timers
    dice: random.Random
    trace: Trace
    log: ComputeLog
    checkpoints: dict[str, float]
    project: str
    scheduler: SchedulerPublicKey
    """What every VM knows of the scheduler's key."""
    truth: WorkerTruth
    secret: bytes
    """What the pretend cloud's word for an instance is made with."""
    keys: dict[str, WorkerKeys] = field(default_factory=dict)
    """Boot nonce → the keys of that boot, for the checkers."""
    bad_gpus: float = 0.0
    """Part of the boots that find one of their GPUs with memory errors."""


class Boot(Protocol):
    """What runs on a machine with power."""

    info: VmInfo
    process: Process

    def notice(self) -> None: ...
    def shut_down(self) -> None: ...
    def kill(self) -> None: ...


class AgentBoot:
    """One boot of the agent on one VM."""

    def __init__(self, site: Site, info: VmInfo) -> None:
        self.info = info
        self._site = site
        ids = RandomIds(site.dice)
        self.nonce = ids.token()
        self.keys = site.keys[self.nonce] = WorkerKeys.from_seeds(ids.seed(), ids.seed())
        self.scheduler = site.scheduler
        site.truth.boots(info.name, self.nonce, self.keys)
        if not info.driver:
            site.truth.unready.add(info.name)
        self.process: Process = site.loop.process(f"{info.name}/{info.id}/{self.nonce}")
        self.ended = False
        """Whether the agent has ended by itself."""
        self._driver: Driver | None = None
        self._runner: PretendRunner | None = None
        self._gpus = tuple(GpuReading(index) for index in range(info.gpus))
        if site.dice.random() < site.bad_gpus and info.gpus:
            bad = site.dice.randrange(info.gpus)
            site.trace.count_fault("bad_gpu")
            site.truth.faulty.add(info.name)
            self._gpus = tuple(replace(g, ecc_errors=int(g.index == bad)) for g in self._gpus)
        self.process.spawn(self._live())

    def notice(self) -> None:
        if self._driver is not None:
            self._driver.post(ReclaimNotice())

    def shut_down(self) -> None:
        """The machine is being stopped: its agent gets SIGTERM."""
        if self._driver is not None:
            self._driver.post(ShutDown("SIGTERM"))

    def fail(self, lease_id: str) -> bool:
        """The job comes to a bad end by itself; whether it was there to do so."""
        return self._runner is not None and self._runner.fail(lease_id)

    def kill(self) -> None:
        """The agent dies, and its jobs with it."""
        self.process.kill()
        if self._runner is not None:
            self._runner.close()
        self._site.broker.cut_off.discard(self.process.name)

    async def _live(self) -> None:
        site, info = self._site, self.info
        clock = VirtualClock(
            site.loop,
            site.dice.uniform(-CLOCKS_WRONG_S, CLOCKS_WRONG_S),
            site.dice.uniform(0, 1e6),
        )
        bus = MemoryBus(site.broker, self.process, site.dice, site.trace)
        identity = Identity(info.name, str(info.id), info.zone, self.nonce)
        machine = AgentMachine(
            identity,
            site.timers,
            info.gpus,
            clock.monotonic(),
            listening=False,
            unready="" if info.driver else "no NVIDIA driver",
        )
        journal = JsonLog(clock, _NOWHERE, vm=info.name)
        proofs = WorkerProofs(site.names, self.keys, (site.scheduler,), info.name, self.nonce)
        proofs.token = self.token(proofs.audience)
        self._driver = Driver(machine, bus, proofs, clock, journal)
        where = f"{info.name}/{info.id}"
        self._runner = PretendRunner(
            site.nature, where, self._driver.post, site.log, site.checkpoints
        )
        site.trace.note("worker", f"{info.name} boots, nonce {self.nonce}", info.name)
        ear = Ear(self._hear, proofs, journal)
        listening = asyncio.create_task(self._listen(bus, ear))
        introducing = asyncio.create_task(self._introduce(proofs))
        end = await self._driver.run(self._runner)
        listening.cancel()
        introducing.cancel()
        self.ended = True
        site.trace.note("worker", f"{info.name} ends: {end.kind}, {end.reason}", info.name)
        site.trace.count_fault("worker_powered_off")
        site.cloud.cloud.guest_exited(info.id, site.loop.time())
        site.cloud.settle()

    def _hear(self, event: Input) -> None:
        assert self._driver is not None
        if isinstance(event, ControlReceived):
            self._site.truth.taken(self.nonce, event.control)
        self._driver.post(event)

    def token(self, audience: str) -> str:
        """The pretend cloud's word, on its own clock."""
        site, info = self._site, self.info
        now = int(VirtualClock(site.loop).now().timestamp())
        me = VmIdentity(site.project, info.zone, str(info.id), info.name, now)
        return make_token(instance_secret(site.secret, info.name, str(info.id)), me, audience)

    async def _introduce(self, proofs: WorkerProofs) -> None:
        while not proofs.accepted:
            await asyncio.sleep(TOKEN_AGAIN_S)
            proofs.token = self.token(proofs.audience)

    async def _listen(self, bus: MemoryBus, ear: Ear) -> None:
        assert self._driver is not None
        self._driver.post(ReadingsTaken(VmReadings(self._gpus)))
        self._driver.post(Listening())
        broker = self._site.broker
        subscription = self._site.names.control_subscription(self.info.name, self.nonce)
        while not (broker.reachable(self.process) and broker.has(subscription)):  # noqa: ASYNC110
            await asyncio.sleep(SUBSCRIBE_AGAIN_S)  # the scheduler makes it; the real one polls too
        inbound = bus.subscribe(subscription, max_messages=100)
        async for batch in inbound.batches():
            for message in batch:
                ear.take(message)
            try:
                await inbound.ack([message.ack_id for message in batch])
            except BusDown:
                continue  # they come again, and are known by then


class PretendVms:
    """All machines with power."""

    def __init__(self, site: Site, make: Callable[[Site, VmInfo], Boot] | None = None) -> None:
        self._site = site
        self._make = make or AgentBoot
        """What boots on a machine."""
        self._workers: dict[int, Boot] = {}
        site.cloud.machines.update(
            {
                EffectKind.POWER_ON: self._power_on,
                EffectKind.POWER_OFF: self._power_off,
                EffectKind.SOFT_OFF: self._soft_off,
                EffectKind.SPOT_NOTICE: self._notice,
                EffectKind.MAINTENANCE_NOTICE: self._notice,
            }
        )

    def workers(self) -> list[Boot]:
        """In the order of their machines' ids, which is the order of their creation."""
        return [self._workers[key] for key in sorted(self._workers)]

    def could_not_speak(self, vm_name: str) -> bool:
        """It lives and the bus reaches it, but the bus came back so lately that a worker's next
        try to publish may still be ahead. One that was cut off alone has no such excuse."""
        timers, broker = self._site.timers, self._site.broker
        next_try_s = timers.publish_timeout_s + RETRY_S
        if broker.down or self._site.loop.time() - broker.up_since > next_try_s:
            return False
        alive = (w for w in self.workers() if w.info.name == vm_name)
        return any(
            broker.reachable(worker.process)
            and not broker.was_cut_off(worker.process.name, timers.lost_after_s)
            for worker in alive
        )

    def restart_agent(self, worker: Boot) -> None:
        """The agent crashes; the machine starts it anew a moment later."""
        worker.kill()
        self._site.loop.later(RESTART_S, self._start_anew, worker)

    def _start_anew(self, worker: Boot) -> None:
        if self._workers.get(worker.info.id) is worker:
            self._workers[worker.info.id] = self._make(self._site, worker.info)

    def _power_on(self, vm: VmInfo) -> None:
        self._site.trace.note("power on", f"{vm.name} id {vm.id} in {vm.zone}", vm.name)
        self._workers[vm.id] = self._make(self._site, vm)

    def _power_off(self, vm: VmInfo) -> None:
        self._site.trace.note("power off", f"{vm.name} id {vm.id}", vm.name)
        worker = self._workers.pop(vm.id, None)
        if worker is not None:
            worker.kill()

    def _soft_off(self, vm: VmInfo) -> None:
        if vm.id in self._workers:
            self._workers[vm.id].shut_down()

    def _notice(self, vm: VmInfo) -> None:
        self._site.trace.note("spot notice", vm.name, vm.name)
        if vm.id in self._workers:
            self._workers[vm.id].notice()
