"""LocalBus: the whole server as one object with a start and a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from core.browser_checks import is_loopback
from core.clock import SystemClock
from core.ports import Clock
from localbus.broker import Broker
from localbus.bus import BrokerLoop
from localbus.commit import JournalCommit
from localbus.grpc_server import build_server
from localbus.journal import Journal
from localbus.peers import check_grpc_peer
from localbus.service import Service
from localbus.wire import MessageCodec

if TYPE_CHECKING:
    import grpc.aio
    from aiohttp import web

_GRACE_S = 0.3
# `gcloud pubsub subscriptions pull` waits as long as the server does; people are watching.
_REST_PULL_WAIT_S = 3.0


def steady(clock: Clock) -> Callable[[], float]:
    """Seconds since 1970 that do not jump when somebody sets the machine's clock: a jump would
    otherwise end every lease at once, or none for hours."""
    start = clock.now().timestamp() - clock.monotonic()
    return lambda: start + clock.monotonic()


class LocalBus:
    """A Pub/Sub server on its own data directory; port 0 means any free port, None no REST."""

    def __init__(
        self,
        data_dir: Path | str,
        host: str = "127.0.0.1",
        port: int = 0,
        rest_port: int | None = None,
        *,
        clock: Clock | None = None,
        fsync: bool = True,
    ) -> None:
        self._host = host
        self._port = port
        self._rest_port = rest_port
        self._now = steady(clock or SystemClock())
        self._journal = Journal(Path(data_dir), fsync=fsync)
        self._commits: JournalCommit | None = None
        self._bus: BrokerLoop | None = None
        self._server: grpc.aio.Server | None = None
        self._rest: web.AppRunner | None = None
        self.grpc_address = ""
        self.rest_address: str | None = None

    async def start(self) -> None:
        """Loads what is on disk, then serves. The addresses are known when it returns."""
        codec = MessageCodec()
        broker = Broker(codec)
        await asyncio.to_thread(self._journal.open)
        try:
            broker.restore(await asyncio.to_thread(self._journal.load, codec.open), self._now())
            self._commits = JournalCommit(self._journal)
            self._bus = BrokerLoop(broker, self._commits, self._now)
            await self._serve(Service(self._bus))
        except BaseException:
            await self.stop()
            raise

    async def _serve(self, service: Service) -> None:
        assert self._bus is not None
        self._bus.start()
        self._server = build_server(service, self._guard)
        bound = self._server.add_insecure_port(f"{self._host}:{self._port}")
        await self._server.start()
        self.grpc_address = f"{self._host}:{bound}"
        if self._rest_port is not None:
            await self._serve_rest(self._rest_port)

    def _guard(self, peer: str) -> None:
        """A port that others can reach has no owner to compare with."""
        host, _, port = self.grpc_address.rpartition(":")
        if is_loopback(host):
            check_grpc_peer(peer, ("127.0.0.1" if host == "localhost" else host, int(port)))

    async def _serve_rest(self, port: int) -> None:
        assert self._bus is not None
        # Imported here: a bus without REST starts 0.2 s sooner and 10 MB smaller.
        from aiohttp import web  # noqa: PLC0415

        from localbus.rest_server import build_app  # noqa: PLC0415

        service = Service(self._bus, pull_wait_s=_REST_PULL_WAIT_S)
        self._rest = web.AppRunner(build_app(service), access_log=None, shutdown_timeout=_GRACE_S)
        await self._rest.setup()
        await web.TCPSite(self._rest, self._host, port).start()
        self.rest_address = f"{self._host}:{self._rest.addresses[0][1]}"

    async def stop(self) -> None:
        """Ends streams, writes what waits, closes the file. Safe to call twice."""
        if self._bus is not None:
            self._bus.stop()
        if self._rest is not None:
            await self._rest.cleanup()
            self._rest = None
        if self._server is not None:
            await self._server.stop(_GRACE_S)
            self._server = None
        if self._commits is not None:
            await self._commits.close()
            self._commits = None
        self._journal.close()
