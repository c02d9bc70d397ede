"""The pretend cloud in real time: physics, protocols and machines put together."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from aiohttp import web

from localbus.browsers import refuse_browsers, refuse_strangers
from sim.cloud.access_tokens import PretendTokens
from sim.cloud.admin import AdminServer
from sim.cloud.compute_server import BODY_BYTES_MAX, ComputeServer
from sim.cloud.identity_issuer import CERTIFICATES, IdentityIssuer
from sim.cloud.machines import DEFAULT_COMMAND, IssuedByCloud, VmProcesses
from sim.cloud.metadata_server import MetadataServer, VmMetadata
from sim.cloud.model import VmInfo
from sim.cloud.physics import CloudProject
from sim.cloud.secret_manager import PretendSecretManager
from sim.cloud.storage import PretendStorage
from sim.cloud.world import World


class _Clock:
    """Wall-clock time that never jumps: read once, then carried on by the monotonic clock."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()


def build_app(
    cloud: CloudProject,
    clock: Callable[[], float],
    wake: Callable[[], None],
    issuer: IdentityIssuer | None = None,
    tokens: PretendTokens | None = None,
) -> web.Application:
    """Compute's API, the public keys of the issuer and the cloud's own API, on one port. It reads
    time from ``clock`` alone."""
    compute = ComputeServer(cloud, clock, wake)
    admin = AdminServer(cloud, clock, wake)
    app = web.Application(
        middlewares=[refuse_browsers, refuse_strangers, compute.middleware, admin.middleware],
        client_max_size=BODY_BYTES_MAX,
    )
    compute.add_routes(app)
    admin.add_routes(app)
    PretendSecretManager().add_routes(app)
    if issuer is not None:
        issuer.add_routes(app)
    if tokens is not None:
        tokens.add_routes(app)
        PretendStorage(tokens).add_routes(app)
    return app


class PretendCloud:
    """``async with PretendCloud(world, state_dir) as cloud: cloud.compute_url``."""

    def __init__(
        self,
        world: World,
        state_dir: Path,
        *,
        command: Sequence[str] = DEFAULT_COMMAND,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.clock = _Clock()
        self.cloud = CloudProject(world, self.clock())
        self._host = host
        self._port = port
        self._changed = asyncio.Event()
        self._issuer = IdentityIssuer(world.project, world.project_number, self.clock)
        account = f"scheduler@{world.project}.iam.gserviceaccount.com"
        self.tokens = PretendTokens(account, self.clock)
        self._machines = VmProcesses(
            world, state_dir, self._guest_exited, command, IssuedByCloud(self._issuer, self.tokens)
        )
        # Of the machine that the scheduler runs on, at the cloud's own address.
        self._metadata = MetadataServer(
            VmMetadata(_scheduler_machine(), world.project, world.project_number, account),
            None,
            self.tokens,
        )
        self._runner: web.AppRunner | None = None
        self._driver: asyncio.Task[None] | None = None

    @property
    def compute_url(self) -> str:
        """The value for ClientOptions(api_endpoint=…)."""
        return f"http://{self._host}:{self._port}"

    @property
    def certificates_url(self) -> str:
        """Where the public keys of identity tokens are."""
        return f"{self.compute_url}{CERTIFICATES}"

    async def start(self) -> None:
        await self._machines.start()
        self._issuer.start()
        app = build_app(self.cloud, self.clock, self.wake, self._issuer, self.tokens)
        self._metadata.mount(app)
        # Long polls must not hold up the end.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]
        self._machines.compute_url = self.compute_url
        self._driver = asyncio.create_task(self._drive(), name="pretend cloud")

    async def stop(self) -> None:
        if self._driver is not None:
            self._driver.cancel()
            await asyncio.wait([self._driver])
        if self._runner is not None:
            await self._runner.cleanup()
        await self._machines.stop()

    async def wait_failed(self) -> None:
        """Returns only by raising: the driver has no end of its own."""
        assert self._driver is not None
        await asyncio.shield(self._driver)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def wake(self) -> None:
        """A caller that changes ``cloud`` directly must say so; the protocols do it themselves."""
        self._changed.set()

    def _guest_exited(self, vm_id: int) -> None:
        self.cloud.guest_exited(vm_id, self.clock())
        self.wake()

    async def _drive(self) -> None:
        while True:
            self._changed.clear()
            for effect in self.cloud.advance(self.clock()):
                await self._machines.apply(effect)
            due = self.cloud.next_event_at()
            left_s = None if due is None else max(0.0, due - self.clock())
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                continue


def _scheduler_machine() -> VmInfo:
    """Where the scheduler runs, as far as its account is concerned."""
    return VmInfo(
        id=1,
        name="scheduler",
        zone="us-central1-a",
        region="us-central1",
        mig="",
        machine_type="e2-standard-2",
        gpus=0,
        spot=False,
        metadata=(),
        labels=(),
    )
