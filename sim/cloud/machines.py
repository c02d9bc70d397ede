"""The driver of real machines: one process per VM that has power."""

import asyncio
import fcntl
import logging
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from core.sandbox import SHARED_DIRECTORY
from sim.cloud.access_tokens import PretendTokens
from sim.cloud.identity_issuer import IdentityIssuer
from sim.cloud.metadata_server import MetadataServer, VmMetadata
from sim.cloud.model import Effect, EffectKind, VmInfo
from sim.cloud.parsing import InvalidInput
from sim.cloud.processes import ask_to_stop, die_with_parent, kill_machine, marked
from sim.cloud.world import World
from stores.gcs import STORAGE_OVERRIDE

DEFAULT_COMMAND: Final = (sys.executable, "-m", "agent")
STOP_GRACE_S: Final = 3.0
KILL_WAIT_S: Final = 5.0
LOGS_KEPT: Final = 500

STARTUP_SCRIPT: Final = "startup-script"
"""As on Google: metadata of the template that the VM runs when it boots; here instead of the agent,
by its own first line."""
COMPUTE_OVERRIDE: Final = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"

log = logging.getLogger("sim.cloud.machines")
_RUNTIME = ("DOCKER_HOST", "XDG_RUNTIME_DIR", SHARED_DIRECTORY)


@dataclass(frozen=True, slots=True)
class IssuedByCloud:
    """What metadata servers hand out."""

    identities: IdentityIssuer | None = None
    tokens: PretendTokens | None = None

    def server(self, metadata: VmMetadata) -> MetadataServer:
        return MetadataServer(metadata, self.identities, self.tokens)


@dataclass(slots=True)
class _Machine:
    vm: VmInfo
    directory: Path
    metadata: MetadataServer
    process: asyncio.subprocess.Process | None = None
    watch: asyncio.Task[None] | None = None
    off: bool = False

    @property
    def marker(self) -> str:
        return f"ZEN_VM_DIR={self.directory}"


class VmProcesses:
    """Turns effects of the physics into processes, and the end of a process into a guest shutdown.

    ``guest_exited`` is told the id of a VM whose process ended without our doing."""

    def __init__(
        self,
        world: World,
        state_dir: Path,
        guest_exited: Callable[[int], None],
        command: Sequence[str] = DEFAULT_COMMAND,
        issued: IssuedByCloud | None = None,
    ) -> None:
        self._world, self._issued = world, issued or IssuedByCloud()
        self._state_dir = state_dir.absolute()
        self._directory = self._state_dir / "vms"
        self._guest_exited = guest_exited
        self._command = tuple(command)
        self._machines: dict[int, _Machine] = {}
        self._cleaning: set[asyncio.Task[None]] = set()
        self._lock_fd = -1
        self._parent_pipe: tuple[int, int] | None = None
        self.compute_url = ""
        """Where the cloud's own API is, for scripts that call it."""

    async def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock()
        self._sweep_leftovers()
        # Our end closes when we die, in whatever way; the agents see EOF at theirs.
        self._parent_pipe = os.pipe()

    def _lock(self) -> None:
        self._lock_fd = os.open(self._state_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock_fd)
            self._lock_fd = -1
            problem = f"{self._state_dir}: another pretend cloud runs here; stop it first"
            raise InvalidInput("state directory", [problem]) from error

    def _sweep_leftovers(self) -> None:
        """What an earlier run left when it was killed. The lock says that it no longer runs."""
        prefix = f"ZEN_VM_DIR={self._directory}{os.sep}"
        if any(marked(prefix)):
            kill_machine(None, prefix)
        for entry in self._directory.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)

    async def apply(self, effect: Effect) -> None:
        vm, machine = effect.vm, self._machines.get(effect.vm.id)
        match effect.kind:
            case EffectKind.POWER_ON:
                await self._power_on(vm)
            case EffectKind.SPOT_NOTICE if machine is not None:
                machine.metadata.metadata.preempt()
            case EffectKind.MAINTENANCE_NOTICE if machine is not None:
                machine.metadata.metadata.maintain()
            case EffectKind.SOFT_OFF:
                self._soft_off(machine)
            case EffectKind.POWER_OFF:
                self._power_off(vm)

    async def _power_on(self, vm: VmInfo) -> None:
        if not vm.driver:  # without it a worker looks for real GPUs
            words = tuple(pair for pair in vm.metadata if pair[0] != "zen-pretend-gpus")
            vm = replace(vm, metadata=words)
        metadata = VmMetadata(vm, self._world.project, self._world.project_number)
        directory = self._directory / f"{vm.name}-{vm.id}"
        machine = _Machine(vm, directory, self._issued.server(metadata))
        self._machines[vm.id] = machine
        try:
            directory.mkdir(mode=0o700)
            address = await machine.metadata.start()
            machine.process = await self._spawn(machine, address)
        except OSError as error:
            log.error("VM %s did not start: %s", vm.name, error)
            self._guest_exited(vm.id)
            return
        machine.watch = asyncio.create_task(self._watch(machine), name=f"watch {vm.name}")
        log.info("VM %s (%s) is on, process %s", vm.name, vm.id, machine.process.pid)

    async def _spawn(self, machine: _Machine, address: str) -> asyncio.subprocess.Process:
        assert self._parent_pipe is not None
        parent_fd = self._parent_pipe[0]
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(machine.directory),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "GCE_METADATA_HOST": address,
            "ZEN_VM_DIR": str(machine.directory),
            "ZEN_PARENT_FD": str(parent_fd),
        }
        if self.compute_url:
            environment[STORAGE_OVERRIDE] = self.compute_url
        if not machine.vm.driver:
            environment["ZEN_DRIVER_WAIT_S"] = "0"
        # A VM of its own would have a container runtime of its own; these share the machine's.
        environment |= {name: os.environ[name] for name in _RUNTIME if name in os.environ}
        command = self._command
        if script := dict(machine.vm.metadata).get(STARTUP_SCRIPT):
            command = (_written(machine.directory / STARTUP_SCRIPT, script),)
            environment |= self._google_environment()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        output = os.open(f"{machine.directory}.log", flags, 0o600)
        try:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=machine.directory,
                env=environment,
                start_new_session=True,
                pass_fds=(parent_fd,),
                preexec_fn=die_with_parent(),
            )
        finally:
            os.close(output)

    def _google_environment(self) -> dict[str, str]:
        """What leads Google's own command line and libraries to the cloud at hand."""
        given = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("CLOUDSDK_") or name == "PUBSUB_EMULATOR_HOST"
        }
        return {**given, COMPUTE_OVERRIDE: f"{self.compute_url}/compute/v1/"}

    async def _watch(self, machine: _Machine) -> None:
        assert machine.process is not None
        code = await machine.process.wait()
        if STARTUP_SCRIPT in dict(machine.vm.metadata):
            # As on Google: the VM goes on when its startup script has ended, and costs.
            log.info("VM %s: its startup script ended, exit code %s", machine.vm.name, code)
            return
        if not machine.off:
            log.info("VM %s shut itself down, exit code %s", machine.vm.name, code)
            self._guest_exited(machine.vm.id)

    def _soft_off(self, machine: _Machine | None) -> None:
        """As systemd does: SIGTERM to the service, which tells its own."""
        process = machine.process if machine is not None else None
        if process is not None and process.returncode is None:
            ask_to_stop(process.pid)

    def _power_off(self, vm: VmInfo) -> None:
        machine = self._machines.pop(vm.id, None)
        if machine is None:
            return
        machine.off = True
        self._kill(machine)
        task = asyncio.create_task(self._clean_up(machine), name=f"clean up {vm.name}")
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    def _kill(self, machine: _Machine) -> None:
        process = machine.process
        alive = process is not None and process.returncode is None
        kill_machine(process.pid if process and alive else None, machine.marker)

    async def _clean_up(self, machine: _Machine) -> None:
        if machine.watch is not None:
            await asyncio.wait([machine.watch], timeout=KILL_WAIT_S)
        await machine.metadata.stop()
        await asyncio.to_thread(shutil.rmtree, machine.directory, ignore_errors=True)
        self._prune_logs()
        log.info("VM %s (%s) is off", machine.vm.name, machine.vm.id)

    def _prune_logs(self) -> None:
        logs = sorted(self._directory.glob("*.log"), key=lambda path: path.stat().st_mtime)
        for path in logs[:-LOGS_KEPT]:
            path.unlink(missing_ok=True)

    async def stop(self) -> None:
        """SIGTERM to all, a bounded wait, SIGKILL to the rest. Nothing is left behind."""
        machines = list(self._machines.values())
        for machine in machines:
            machine.off = True
            if machine.process is not None and machine.process.returncode is None:
                ask_to_stop(machine.process.pid)
        watches = [m.watch for m in machines if m.watch is not None]
        if watches:
            await asyncio.wait(watches, timeout=STOP_GRACE_S)
        for machine in machines:
            self._power_off(machine.vm)
        if self._cleaning:
            await asyncio.wait(set(self._cleaning), timeout=KILL_WAIT_S)
        self._close()

    def _close(self) -> None:
        for fd in (*(self._parent_pipe or ()), self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._parent_pipe, self._lock_fd = None, -1


def _written(path: Path, script: str) -> str:
    path.write_text(script, encoding="utf-8")
    path.chmod(0o700)
    return str(path)
