"""The composition root of the agent: identity, bus, store, GPUs, machine, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from agent.boot_order import later_boot
from agent.containers.spec import Runtime
from agent.driver import Driver, Ear
from agent.events import (
    Exit,
    ExitKind,
    Identity,
    Listening,
    ParentGone,
    ReadingsTaken,
    ReclaimNotice,
    ShutDown,
)
from agent.gpus import (
    DRIVER_WAIT_S,
    Gpus,
    PretendGpus,
    UnusableGpus,
    is_real,
    open_gpus,
    wait_for_gpus,
)
from agent.json_log import JsonLog
from agent.metadata import (
    LAST_LOOK_S,
    SCHEDULER_KEYS,
    SETTINGS,
    IdentitySource,
    MetadataDown,
    VmSettings,
    source,
)
from agent.proofs import WorkerProofs
from agent.runner import JobRunner
from agent.runtimes import SHIM_SERVER
from agent.sandbox.isolation import Isolation, find_isolation
from agent.shims import Shims
from agent.state_machine import SPOT_OFF_GRACE_S, AgentMachine
from core.clock import SystemClock
from core.errors import BadInput, BusDown, Fault, ZenError
from core.ids import RandomIds
from core.messages import GpuReading, InMessage, VmReadings
from core.names import Names
from core.ports import Inbound
from core.submission import shown
from core.worker_identity import VmIdentity
from messaging.proofs.enrolment import make_token
from messaging.proofs.keys import WorkerKeys, parse_public_keys
from messaging.proofs.texts import BadKey, from_text
from messaging.pubsub import PubSubBus
from stores.base import FileStore, open_store

EXIT_CODES = {ExitKind.SHUT_DOWN: 0, ExitKind.POWER_OFF: 10, ExitKind.PARENT_GONE: 11}
EXIT_BAD_SETTINGS = 2
DEFAULT_VM_DIR = "/var/lib/zen"
RECONNECT_FIRST_S = 0.1
RECONNECT_MAX_S = 1.0
"""A start waits for us to find our subscription."""
TELL_EVERY_S = 10.0
STANDARD_OFF_GRACE_S = 80.0
"""systemd waits 90 s for a service to end before it kills it; Google waits 120 s for systemd."""
_SYSTEMD = "/run/systemd/system"
_ASK = ("systemctl", "is-system-running")
DRIVER_WAIT = "ZEN_DRIVER_WAIT_S"
DRIVER_WAIT_MAX_S = 3600.0
TOKEN_AGAIN_S = 600.0
"""An identity token lasts an hour; until the scheduler knows us it gets newer ones."""
GPUS_LATE_MAX = 3
"""Heartbeats without a reading before all GPUs count as broken."""


@dataclass(slots=True)
class Agent:
    """Everything that lives as long as this boot."""

    settings: VmSettings
    identity: Identity
    names: Names
    bus: PubSubBus
    proofs: WorkerProofs
    store: FileStore
    gpus: Gpus
    driver: Driver
    metadata: IdentitySource
    journal: JsonLog
    runtime: Runtime
    isolation: Isolation
    shims: Shims

    async def run(self, vm_dir: Path) -> Exit:
        """Subscribe, say READY, work until told to go."""
        runner = JobRunner(
            vm_dir,
            self.store,
            self.driver.post,
            self.shims,
            isolation=self.isolation,
            runtime=self.runtime,
        )
        self.shims.open()
        await self._clean_up()
        self._watch_signals()
        if (fd := os.environ.get("ZEN_PARENT_FD")) is not None:
            await _watch_parent(int(fd), self.driver)
        sides: list[Coroutine[object, object, None]] = [
            self._listen(),
            self._introduce(),
            self._read_gpus(),
            self.metadata.watch_preempted(lambda why: self.driver.post(ReclaimNotice(why))),
        ]
        tasks = [asyncio.create_task(self._guarded(side)) for side in sides]
        try:
            return await self.driver.run(runner)
        finally:
            for task in tasks:
                task.cancel()
            await runner.close()
            await self._leave()

    async def _clean_up(self) -> None:
        """Before we say READY: whatever an agent that was killed has left must not compute on."""
        removed, faults = await self.runtime.sweep()
        if removed or faults:
            self.journal.warning("containers left over", removed=removed, faults=faults)

    async def _guarded(self, side: Coroutine[object, object, None]) -> None:
        """A side task that fails ends the agent: half an agent is worse than none."""
        try:
            await side
        except Exception as error:
            self.journal.error("side task failed", reason=repr(error))
            self.driver.post(ShutDown(f"internal error: {error!r}"))
            raise

    # --- the bus ------------------------------------------------------------------------

    async def _introduce(self) -> None:
        """Keeps the identity token fresh while the scheduler may not know our keys."""
        while True:
            await asyncio.sleep(TOKEN_AGAIN_S)
            if self.proofs.accepted:
                continue
            try:
                self.proofs.token = await _token(self.settings, self.metadata, self.proofs.audience)
            except MetadataDown as error:
                self.journal.warning("no identity token", reason=str(error))

    async def _listen(self) -> None:
        """The scheduler makes our subscription when it has accepted our READY, and makes it again
        when we introduce ourselves anew. A VM that waits in vain for it powers itself off as an
        idle one does."""
        self.driver.post(Listening())
        ear = Ear(self.driver.post, self.proofs, self.journal)
        vm_name, boot_nonce = self.identity.vm_name, self.identity.boot_nonce
        subscription = self.names.control_subscription(vm_name, boot_nonce)
        loop = asyncio.get_running_loop()
        pause_s, tell_at = RECONNECT_FIRST_S, loop.time() + TELL_EVERY_S
        while True:
            inbound = self.bus.subscribe(subscription, max_messages=100)
            try:
                async for batch in inbound.batches():
                    pause_s = RECONNECT_FIRST_S
                    await self._hear(inbound, ear, batch)
            except ZenError as error:
                if loop.time() >= tell_at:
                    tell_at = loop.time() + TELL_EVERY_S
                    why = "the scheduler makes it when it has accepted our READY"
                    self.journal.warning("no control subscription", reason=str(error), hint=why)
                self.proofs.accepted = False
            await inbound.close()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RECONNECT_MAX_S)

    async def _hear(self, inbound: Inbound, ear: Ear, batch: Sequence[InMessage]) -> None:
        ours = [message.ack_id for message in batch if ear.take(message)]
        others = [m.ack_id for m in batch if m.ack_id not in ours]
        with suppress(BusDown):  # they come again, and are known by then
            await inbound.ack(ours)
            if others:
                await inbound.nack(others)

    async def _leave(self) -> None:
        await self.bus.close()
        await self.store.close()

    # --- the VM -------------------------------------------------------------------------

    async def _read_gpus(self) -> None:
        """NVML may hang with its GPU. So each reading has a thread that nobody waits for, and
        there is never a second one."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            gpus = self.gpus.read()
            with suppress(RuntimeError):  # the loop is closed: we are leaving
                loop.call_soon_threadsafe(self.driver.post, ReadingsTaken(VmReadings(gpus)))

        reading: Thread | None = None
        late = 0
        while True:
            if reading is not None and reading.is_alive():
                self.journal.error("GPUs do not answer")
                late += 1
                if late == GPUS_LATE_MAX:
                    fault = "does not answer: its driver hangs"
                    hung = (GpuReading(gpu, fault=fault) for gpu in range(self.gpus.count))
                    self.driver.post(ReadingsTaken(VmReadings(tuple(hung))))
            else:
                late = 0
                reading = Thread(target=read, name="gpus", daemon=True)
                reading.start()
            await asyncio.sleep(self.settings.timers.heartbeat_s)

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        told: set[asyncio.Task[None]] = set()

        def tell(name: str) -> None:
            told.add(asyncio.create_task(self._told_to_go(name)))

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, tell, number.name)

    async def _told_to_go(self, name: str) -> None:
        """Without a notice period of its own, a reclaimed spot VM hears SIGTERM together with the
        notice: it is the same news, and leaves the jobs the whole time until the power goes."""
        if await self.metadata.is_preempted():
            self.driver.post(ReclaimNotice())
            self.driver.post(ShutDown(name))
        else:
            self.driver.post(ShutDown(name, await grace_of_machine(self.metadata)))


async def machine_is_stopping() -> bool:
    """Whether systemd shuts the machine down. Where there is no systemd nobody knows."""
    if not os.path.isdir(_SYSTEMD):  # noqa: ASYNC240, PTH112  # of a file system in memory
        return False
    try:
        process = await asyncio.create_subprocess_exec(*_ASK, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(LAST_LOOK_S):
            said, _ = await process.communicate()
    except (OSError, TimeoutError):
        return False
    return said.strip() == b"stopping"


async def grace_of_machine(metadata: IdentitySource) -> float | None:
    """How long jobs may go on if it is the machine that goes off. None: only the agent is told."""
    if not await machine_is_stopping():
        return None
    return SPOT_OFF_GRACE_S if await metadata.is_spot() else STANDARD_OFF_GRACE_S


async def _watch_parent(fd: int, driver: Driver) -> None:
    class Watcher(asyncio.Protocol):
        def connection_lost(self, _: Exception | None) -> None:
            driver.post(ParentGone())

    os.set_inheritable(fd, False)
    await asyncio.get_running_loop().connect_read_pipe(Watcher, os.fdopen(fd, "rb", 0))


async def run_agent(journal: JsonLog, clock: SystemClock) -> Exit:
    """The whole life of an agent."""
    metadata = source(os.environ)
    settings = await metadata.settings()
    identity = Identity(
        vm_name=settings.vm_name,
        instance_id=settings.instance_id,
        zone=settings.zone,
        boot_nonce=RandomIds().token(),
        address=settings.address,
    )
    journal = journal.bind(vm_name=identity.vm_name, boot_nonce=identity.boot_nonce)
    names = Names(settings.prefix)
    vm_dir = Path(os.environ.get("ZEN_VM_DIR", DEFAULT_VM_DIR))
    isolation = await asyncio.to_thread(
        find_isolation,
        *(settings.sandbox, vm_dir, settings.vm_name),
        own_machine=SETTINGS in os.environ,
    )
    journal.info("sandbox", missing=list(isolation.notes))
    gpus, unready = await _gpus_of(settings, vm_dir, journal)
    bus = PubSubBus(settings.project, emulator_host=settings.pubsub_host)
    machine = AgentMachine(
        identity,
        settings.timers,
        gpus.count,
        clock.monotonic(),
        listening=False,
        readings=VmReadings(gpus.read()),
        unready=isolation.refuses or unready,
    )
    proofs = await later_boot(vm_dir, lambda: _proofs(settings, identity, names, metadata))
    driver = Driver(machine, bus, proofs, clock, journal)
    agent = Agent(
        settings=settings,
        identity=identity,
        names=names,
        bus=bus,
        proofs=proofs,
        store=open_store(settings.store),
        gpus=gpus,
        driver=driver,
        metadata=metadata,
        journal=journal,
        runtime=Runtime(
            os.environ,
            identity.vm_name,
            settings.containers,
            real_gpus=is_real(gpus),
            token=metadata.token,
        ),
        isolation=isolation,
        shims=Shims(journal, clock, SHIM_SERVER),
    )
    return await agent.run(vm_dir)


async def _proofs(
    settings: VmSettings, identity: Identity, names: Names, metadata: IdentitySource
) -> WorkerProofs:
    """The keys of this boot, and the first identity token for them."""
    ids = RandomIds()
    try:
        scheduler = parse_public_keys(settings.scheduler_keys)
    except BadKey as error:
        expected = "public keys as `zen workers keys show` prints them"
        raise BadInput([Fault(f"metadata {SCHEDULER_KEYS}", str(error), expected)]) from None
    keys = WorkerKeys.from_seeds(ids.seed(), ids.seed())
    proofs = WorkerProofs(names, keys, scheduler, identity.vm_name, identity.boot_nonce)
    proofs.token = await _token(settings, metadata, proofs.audience)
    return proofs


async def _token(settings: VmSettings, metadata: IdentitySource, audience: str) -> str:
    """The cloud's word, or the operator's on a machine that no cloud made."""
    if not settings.enrolment:
        return await metadata.identity_token(audience)
    now = int(SystemClock().now().timestamp())
    me = VmIdentity(settings.project, settings.zone, settings.instance_id, settings.vm_name, now)
    return make_token(from_text(settings.enrolment), me, audience)


async def _gpus_of(settings: VmSettings, vm_dir: Path, journal: JsonLog) -> tuple[Gpus, str]:
    """The GPUs, or none and why they cannot be used. Until then the VM is silent, as one that still
    boots."""

    def attempt() -> Gpus:
        said = vm_dir / "gpus.json"
        return open_gpus(settings.gpus, pretend=settings.pretend_gpus, said=said)

    try:
        return await wait_for_gpus(attempt, _driver_wait_s(os.environ)), ""
    except UnusableGpus as error:
        journal.error("GPUs cannot be used", reason=str(error))
        return PretendGpus(0), str(error)


def _driver_wait_s(environ: Mapping[str, str]) -> float:
    """An image whose driver takes longer to install says so here."""
    text = environ.get(DRIVER_WAIT, "")
    try:
        wait_s = float(text) if text else DRIVER_WAIT_S
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= DRIVER_WAIT_MAX_S:
        expected = f"seconds, from 0 to {DRIVER_WAIT_MAX_S:g}"
        raise BadInput([Fault(DRIVER_WAIT, shown(text), expected)])
    return wait_s


def main() -> int:
    """The exit code says how it ended; on a real VM POWER_OFF also stops the machine."""
    clock = SystemClock()
    journal = JsonLog(clock)
    try:
        end = asyncio.run(run_agent(journal, clock))
    except BadInput as error:
        journal.error("bad settings", faults=[str(fault) for fault in error.faults])
        return EXIT_BAD_SETTINGS
    except ZenError as error:
        journal.error("cannot start", reason=str(error))
        return EXIT_BAD_SETTINGS
    if end.kind is ExitKind.POWER_OFF and _on_a_real_vm():
        subprocess.run(["shutdown", "-h", "now"], check=False)
    return EXIT_CODES[end.kind]


def _on_a_real_vm() -> bool:
    """A pretend VM is told its metadata server, and ends with this process."""
    return "GCE_METADATA_HOST" not in os.environ and "ZEN_PARENT_FD" not in os.environ
