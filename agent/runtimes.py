"""What a job can be: a process of this VM, or a container. The runner treats both alike."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from agent.containers.docker import DockerError
from agent.containers.spec import ContainerLimits, NoContainer, Runtime
from agent.environment import AttemptDirectories, argv_for, environment_for
from agent.events import StartFailed
from agent.sandbox.cgroups import Group
from agent.sandbox.isolation import Isolation
from agent.sandbox.memory import out_of_memory
from agent.shims import ShimProgram
from core.messages import StartJob

_HERE = Path(__file__).parent
_SHIM = (sys.executable, "-I", "-S")


def _program(module: str) -> tuple[str, ...]:
    """A shim has to be told where its modules are: -I hides them. Modules are compiled once; a
    script would be compiled at every start."""
    lines = ("import sys", f"sys.path.insert(0, {str(_HERE.parent)!r})")
    return (*_SHIM, "-c", "\n".join((*lines, f"from {module} import main", "main()")))


SHIM_SERVER = _program("agent.shim_server")


class CannotStart(Exception):
    """Known before anything was tried."""

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code, self.reason = exit_code, reason


class JobRuntime(Protocol):
    """One way to run a job."""

    @property
    def shim(self) -> ShimProgram:
        """The program that keeps it."""
        ...

    async def brief(self, order: StartJob, places: AttemptDirectories) -> dict[str, object]:
        """What its shim is told first, or CannotStart. Makes its places."""
        ...

    async def adopt(self, order: StartJob, shim: int) -> None:
        """Its shim has begun, and waits for its first word."""
        ...

    def ended(self, order: StartJob) -> str:
        """Lets go of what the job held on this VM; what killed it if the shim cannot know."""
        ...

    def not_started(self, order: StartJob, words: Mapping[str, object]) -> StartFailed:
        """The shim's {"failed": …} for people."""
        ...

    async def abandon(self, order: StartJob, pid: int) -> None:
        """Its shim died without a word: end whatever it kept."""
        ...


class Processes:
    """As it always was: a process group below a shim."""

    shim = ShimProgram(_program("agent.shim"), by_server=True)

    def __init__(self, environment: Mapping[str, str], isolation: Isolation) -> None:
        self._environment, self._isolation = environment, isolation
        self._groups: dict[str, Group] = {}

    async def brief(self, order: StartJob, places: AttemptDirectories) -> dict[str, object]:
        argv = argv_for(order)
        if not argv:
            raise CannotStart(127, "the job has no command")
        isolation, spec = self._isolation, order.spec
        if isolation.refuses:
            raise CannotStart(126, isolation.refuses)
        uid, account = isolation.user_for(order), isolation.account_of(order)
        filled = bool(spec.code)
        places.make(owner=uid, shared=order.on_several_vms, filled=filled)
        if isolation.mounts is not None:
            places.close()
        seen = isolation.seen(places) if uid is not None else None
        person = account.variables if account is not None else None
        group = isolation.group_for(order)
        if group is not None:
            self._groups[order.lease_id] = group
        limited = group is not None and group.limits_memory
        return {
            "argv": argv,
            "env": environment_for(order, places, self._environment, seen, person),
            "cwd": spec.working_dir or str((seen or places).work),
            "box": isolation.box(uid, places, account),
            "leave": [str(path / "cgroup.procs") for path in group.leave] if group else [],
            "memory_max": 0 if limited else (spec.memory_mb or 0) * 1024**2,
        }

    async def adopt(self, order: StartJob, shim: int) -> None:
        """Into its group: the kernel takes milliseconds for it, in which the shim starts."""
        if (group := self._groups.get(order.lease_id)) is not None:
            await asyncio.to_thread(group.add, shim)

    def ended(self, order: StartJob) -> str:
        self._isolation.release(order.lease_id)
        group = self._groups.pop(order.lease_id, None)
        if group is None:
            return ""
        killed = group.out_of_memory()
        group.remove()
        return out_of_memory(order.spec.memory_mb or 0) if killed else ""

    def not_started(self, order: StartJob, words: Mapping[str, object]) -> StartFailed:
        lease_id, program = order.lease_id, argv_for(order)[0]
        number, what = words.get("failed"), words.get("what")
        assert isinstance(number, int), f"the shim said {words}"
        if what == "exec" and number == errno.ENOENT:
            return StartFailed(lease_id, 127, f"command not found: {program}")
        if what == "exec" and number == errno.EACCES:
            return StartFailed(lease_id, 126, f"permission denied: {program}")
        if what == "cwd" and order.spec.working_dir:
            why = f"its directory {order.spec.working_dir}: {os.strerror(number)}"
            return StartFailed(lease_id, 126, f"cannot start in {why}")
        if what == "sandbox":
            why = f"the job could not be shut in: {os.strerror(number)}"
            return StartFailed(lease_id, 126, why)
        subject = program if what == "exec" else what
        return StartFailed(lease_id, 126, f"cannot start {subject}: {os.strerror(number)}")

    async def abandon(self, _: StartJob, pid: int) -> None:
        """Without its shim only the job itself dies by the parent-death signal; its children in
        the same group are for us to end."""
        if pid > 1:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)


class Containers:
    """Through the Docker API."""

    shim = ShimProgram(_program("agent.containers.shim"), by_server=False)

    def __init__(self, runtime: Runtime, isolation: Isolation) -> None:
        self._runtime, self._isolation = runtime, isolation

    async def brief(self, order: StartJob, places: AttemptDirectories) -> dict[str, object]:
        uid = self._isolation.user_for(order) if self._runtime.user_of_job else None
        shared, filled = order.on_several_vms, bool(order.spec.code)
        places.make(owner=uid, for_anybody=uid is None, shared=shared, filled=filled)
        if self._isolation.mounts is not None:
            places.close()
        limits = ContainerLimits(self._isolation.rules.pids_max, uid)
        try:
            return await self._runtime.brief(order, places, limits)
        except NoContainer as error:
            raise CannotStart(125, f"{error}; the job asks for image {order.spec.image}") from error

    def not_started(self, order: StartJob, words: Mapping[str, object]) -> StartFailed:
        what, image = str(words.get("what")), str(order.spec.image)
        about = what if image in what else f"image {image} cannot be run: {what}"
        return StartFailed(order.lease_id, 125, about)

    async def adopt(self, order: StartJob, shim: int) -> None:
        """The runtime has limits of its own."""

    def ended(self, order: StartJob) -> str:
        self._isolation.release(order.lease_id)
        return ""

    async def abandon(self, order: StartJob, _: int) -> None:
        # If it cannot be removed now, the next agent finds it by its label.
        with suppress(DockerError, NoContainer):
            await self._runtime.abandon(order)
