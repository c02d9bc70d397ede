"""What a job can be: a process of this VM, or a container. The runner treats both alike."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from agent.containers.docker import DockerError
from agent.containers.spec import NoContainer, Runtime
from agent.environment import AttemptDirectories, argv_for, environment_for
from agent.events import StartFailed
from core.messages import StartJob

_HERE = Path(__file__).parent
_SHIM = (sys.executable, "-I", "-S")
# A container's shim shares code with its elder, and has to be told where that is: -I hides it.
_FROM_HERE = f"""\
import sys
sys.path.insert(0, {str(_HERE.parent)!r})
from agent.containers.shim import main
main()
"""


class CannotStart(Exception):
    """Known before anything was tried."""

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code, self.reason = exit_code, reason


class JobRuntime(Protocol):
    """One way to run a job."""

    @property
    def shim(self) -> tuple[str, ...]:
        """The program that keeps it."""
        ...

    async def brief(self, order: StartJob, places: AttemptDirectories) -> dict[str, object]:
        """What its shim is told first, or CannotStart. Makes its places."""
        ...

    def not_started(self, order: StartJob, words: Mapping[str, object]) -> StartFailed:
        """The shim's {"failed": …} for people."""
        ...

    async def abandon(self, order: StartJob, pid: int) -> None:
        """Its shim died without a word: end whatever it kept."""
        ...


class Processes:
    """As it always was: a process group below a shim."""

    shim = (*_SHIM, str(_HERE / "shim.py"))

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    async def brief(self, order: StartJob, places: AttemptDirectories) -> dict[str, object]:
        argv = argv_for(order)
        if not argv:
            raise CannotStart(127, "the job has no command")
        places.make()
        env = environment_for(order, places, self._environment)
        return {"argv": argv, "env": env, "cwd": order.spec.working_dir or str(places.work)}

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

    shim = (*_SHIM, "-c", _FROM_HERE)

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def brief(self, order: StartJob, places: AttemptDirectories) -> dict[str, object]:
        places.make(for_anybody=True)
        try:
            return await self._runtime.brief(order, places)
        except NoContainer as error:
            raise CannotStart(125, f"{error}; the job asks for image {order.spec.image}") from error

    def not_started(self, order: StartJob, words: Mapping[str, object]) -> StartFailed:
        what, image = str(words.get("what")), str(order.spec.image)
        about = what if image in what else f"image {image} cannot be run: {what}"
        return StartFailed(order.lease_id, 125, about)

    async def abandon(self, order: StartJob, _: int) -> None:
        # If it cannot be removed now, the next agent finds it by its label.
        with suppress(DockerError, NoContainer):
            await self._runtime.abandon(order)
