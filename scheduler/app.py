"""The composition root: builds the parts of one replica, runs them, stops them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib import metadata

import structlog
import uvicorn

from config.settings import Settings
from core.clock import SystemClock
from core.errors import BadInput, StoreDown, ZenError
from core.ids import RandomIds
from db.listen import Listener
from db.reads import PostgresReads
from db.store import PostgresStore
from db.submit import GroupCommit
from messaging.pubsub import PubSubBus
from migs.google_compute import GoogleCompute
from migs.manager import MigManager
from orchestrator.manager import Wiring
from orchestrator.orchestrator import ClusterOrchestrator
from scheduler.api.app import create_app
from scheduler.api.services import OK, Embedded, Services
from scheduler.dbclock import DatabaseClock
from scheduler.inbox import Inbox
from scheduler.intake import SubmissionIntake
from scheduler.leadership import Leadership
from scheduler.loop import LoopParts, SchedulerLoop
from scheduler.metrics import Metrics
from scheduler.relay import Relay
from scheduler.submit import Submissions
from stores.base import open_store

log = structlog.get_logger("app")
RESTART_S = 1.0
DRAIN_S = 3.0


class Replica:
    """One process of the service: serves the API always, leads when it may."""

    def __init__(self, settings: Settings, *, embedded: Embedded | None = None) -> None:
        self.settings = settings
        self.clock = DatabaseClock(SystemClock())
        self.ids = RandomIds()
        self.metrics = Metrics()
        self.store = PostgresStore(settings.database_url)
        self.reads = PostgresReads(self.store)
        self.bus = PubSubBus(settings.project, emulator_host=settings.pubsub_host)
        self.compute = GoogleCompute(
            settings.project,
            endpoint=settings.compute_url,
            clock=self.clock,
            calls_per_minute=settings.calls_per_minute,
        )
        holder = f"{socket.gethostname()}-{os.getpid()}-{self.ids.token()[:6]}"
        self.leadership = Leadership(self.store, holder, settings.timers, self.clock)
        self.submissions = Submissions(
            GroupCommit(self.store).submit,
            self.store,
            lambda: settings.clusters,
            settings.timers,
            self.clock,
            self.ids,
            on_new=lambda job: self.metrics.job_moved(None, job),
        )
        self._embedded = embedded
        self._loop: SchedulerLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open what must be open before the API answers, then start the long-running tasks."""
        await self.store.open()
        names = self.settings.names
        intake = SubmissionIntake(
            self.bus, names.submit_subscription, self.submissions, self.store, self.clock
        )
        self._tasks = [
            self._forever("leadership", self.leadership.keep),
            self._forever("lead", self._lead),
            self._forever("intake", intake.run),
            self._forever("listen", self._listen),
        ]

    async def stop(self) -> None:
        """Hand over first, so that a successor need not wait for the lease to end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.leadership.resign()
        await self.bus.close()
        await self.compute.close()
        await self.store.close()

    def api(self) -> Services:
        """What the API stands on."""
        settings = self.settings
        return Services(
            store=self.store,
            reads=self.reads,
            submissions=self.submissions,
            clusters=lambda: settings.clusters,
            rules=settings.rules,
            names=settings.names,
            clock=self.clock,
            ids=self.ids,
            metrics=self.metrics,
            readiness=self._readiness,
            logs=open_store(settings.store_url),
            version=metadata_version(),
            embedded=self._embedded,
            max_body_bytes=settings.api.max_body_bytes,
        )

    # --- leading -------------------------------------------------------------------------

    async def _lead(self) -> None:
        """While we lead, run the leader's tasks; when we do not, run none of them."""
        while True:
            self.leadership.changed.clear()
            if not self.leadership.leading:
                await self.leadership.changed.wait()
                continue
            self.compute.warm_up()
            self.metrics.leading(True)
            tasks, orchestrator = self._leader_tasks()
            try:
                await self.leadership.changed.wait()
            finally:
                self.metrics.leading(False)
                self._loop = None
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await orchestrator.close()

    def _leader_tasks(self) -> tuple[list[asyncio.Task[None]], ClusterOrchestrator]:
        settings = self.settings
        orchestrator = self._orchestrator()
        relay = Relay(
            self.store, self.bus, self.leadership, self.clock, settings.timers.loop_interval_s
        )
        inbox = Inbox(self.bus, settings.names.heartbeat_subscription, self._wake)
        self._loop = SchedulerLoop(
            LoopParts(
                store=self.store,
                bus=self.bus,
                inbox=inbox,
                relay=relay,
                leadership=self.leadership,
                orchestrator=orchestrator,
                metrics=self.metrics,
                clusters=lambda: {cluster.name: cluster for cluster in settings.clusters},
                rules=settings.rules,
                names=settings.names,
                ids=self.ids,
                clock=self.clock,
                queue_limit=settings.queue_limit,
            )
        )
        tasks = [
            self._forever("loop", self._loop.run),
            self._forever("canary", self._loop.canaries),
            self._forever("relay", relay.run),
            self._forever("inbox", inbox.fill),
        ]
        return tasks, orchestrator

    def _orchestrator(self) -> ClusterOrchestrator:
        wiring = Wiring(
            store=self.store,
            names=self.settings.names,
            timers=self.settings.timers,
            ids=self.ids,
            clock=self.clock,
            term=self.leadership.term,
            mig_of=self._mig,
            on_cloud_call=self.metrics.cloud_call,
        )
        return ClusterOrchestrator(self.settings.clusters, wiring)

    def _mig(self, cluster: str, region: str) -> MigManager:
        name = self.settings.names.mig(cluster, region)
        return MigManager(name, cluster, region, self.compute)

    # --- small parts ---------------------------------------------------------------------

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.poke()

    async def _listen(self) -> None:
        async for _ in Listener(self.settings.database_url).wakeups():
            self._wake()

    async def _readiness(self) -> Mapping[str, str]:
        try:
            await self.store.content_hash("", "")  # the cheapest question that needs the schema
        except StoreDown as error:
            return {"database": str(error)}
        return {"database": OK}

    def _forever(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """A task that is started again when it fails: one broken part must not end the others."""

        async def guarded() -> None:
            while True:
                try:
                    await run()
                except ZenError as error:
                    log.warning("task failed, starting it again", task=name, why=str(error))
                except Exception:
                    log.exception("task crashed, starting it again", task=name)
                await asyncio.sleep(RESTART_S)

        return asyncio.create_task(guarded(), name=name)


class _Server(uvicorn.Server):
    """Signals are the replica's business, not the web server's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    settings: Settings,
    *,
    embedded: Embedded | None = None,
    parent_fd: int | None = None,
    on_ready: Callable[[str], None],
) -> None:
    """Run one replica until SIGTERM, SIGINT, or the death of the parent."""
    if unserved := settings.unserved():
        raise BadInput(unserved)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if parent_fd is not None:
        loop.add_reader(parent_fd, stop.set)
    listening = _bind(settings.api.host, settings.api.port)
    replica = Replica(settings, embedded=embedded)
    await replica.start()
    server = _Server(
        uvicorn.Config(
            create_app(replica.api()),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=int(DRAIN_S),
            lifespan="off",
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    host, port = listening.getsockname()[:2]
    on_ready(f"http://{host}:{port}")
    await stop.wait()
    log.info("stopping")
    server.should_exit = True
    await asyncio.gather(serving, replica.stop(), return_exceptions=True)


def _bind(host: str, port: int) -> socket.socket:
    try:
        listening = socket.create_server((host, port), backlog=2048)
    except OSError as error:
        raise ZenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    # asyncio sets this only on sockets made for TCP by number, which this one is not. Without it
    # every answer on a kept connection waits 40 ms for the client's delayed acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def metadata_version() -> str:
    """The version people see; a checkout that is not installed says so."""
    try:
        return metadata.version("pipeline-zen-jobs-scheduler")
    except metadata.PackageNotFoundError:
        return "0.1.0+checkout"


def announce(api: str) -> None:
    """The one line on stdout that a supervisor waits for."""
    print(json.dumps({"event": "ready", "api": api}), flush=True)
