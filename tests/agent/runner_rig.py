"""A runner with a box for what it posts."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from agent.containers.spec import Runtime
from agent.events import Exited, Input, StartFailed
from agent.json_log import JsonLog
from agent.runner import JobRunner
from agent.runtimes import SHIM_SERVER
from agent.sandbox.isolation import Isolation
from agent.shims import Shims
from core.clock import SystemClock
from core.containers import ContainerRules
from core.job_fields import WorkerSpec
from core.messages import StartJob
from core.sandbox import SandboxRules
from stores.base import FileStore, LogPath
from stores.local import LocalStore
from tests.agent.vm import until

DEADLINE_S = 60.0
"""podman may need seconds for a container where others are busy."""


class RunnerRig:
    """One VM's runner, its store, and what it said."""

    def __init__(
        self,
        root: Path,
        *,
        sandbox: SandboxRules | None = None,
        isolation: Isolation | None = None,
        docker: str = "",
        image: str | None = None,
        store: FileStore | None = None,
        rules: ContainerRules | None = None,
        shim_server: tuple[str, ...] = SHIM_SERVER,
    ) -> None:
        self.root, self.image = root, image
        self.store = store or LocalStore(root / "store")
        self.posted: asyncio.Queue[Input] = asyncio.Queue()
        self.environ = {"PATH": os.environ["PATH"], "HOME": "/root", "SECRET_OF_AGENT": "x"}
        if docker:
            self.environ["DOCKER_HOST"] = docker
        self.runtime = Runtime(
            self.environ, "vm", rules or ContainerRules(), real_gpus=False, token=no_token
        )
        self.shims = Shims(JsonLog(SystemClock()), server=shim_server)
        self.runner = JobRunner(
            root / "vm",
            self.store,
            self.posted.put_nowait,
            self.shims,
            isolation=isolation or Isolation(sandbox or SandboxRules()),
            environment=self.environ,
            runtime=self.runtime,
        )

    def start(self, *command: str, **changes: object) -> StartJob:
        order = order_for(*command, **changes)
        if self.image is not None:
            order = replace(order, spec=replace(order.spec, image=self.image))
        self.runner.start(order)
        return order

    async def next(self) -> Input:
        async with asyncio.timeout(DEADLINE_S):
            return await self.posted.get()

    async def end(self) -> Exited | StartFailed:
        """The end of the job; what was posted before is passed over."""
        while True:
            event = await self.next()
            if isinstance(event, Exited | StartFailed):
                return event

    async def log(self, attempt: int = 1) -> str:
        chunk = await self.store.read(LogPath("acme", "u1", "j1", attempt), 0, 1 << 20)
        return chunk.data.decode()

    async def said(self, text: str) -> None:
        """Waits until the live log contains the text."""

        async def there() -> bool:
            return text in await self.log()

        await until(there, f"{text!r} in the log")


async def no_token() -> str:
    return ""


def order_for(*command: str, **changes: object) -> StartJob:
    shell = len(command) == 1
    spec = WorkerSpec("j1", user_id="u1", tenant_id="acme", command=command, shell=shell)
    order = StartJob("vm", "n", spec, "4xl4", "us-central1", 1, "lease-1", (1, 3))
    return replace(order, **changes)  # type: ignore[arg-type]  # the tests' own keywords
