"""The local stack: database, bus, pretend cloud, schedulers; started in order, kept, stopped.

The addresses that are found at the start travel by environment: the configuration file holds
only what does not change. A part that dies is started again where the others expect it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.metadata import ENROLMENT
from cli.client import Client, Refused, Unreachable
from cli.local.config import VmCap, clean_environment, edited, write_config, write_sealed
from cli.local.new_groups import Regrouper
from cli.local.node_config import PLACE, PRETEND_TYPE, NodePlan, node_values, socket_of
from cli.local.pretend_cloud import build_world
from cli.local.process import Child, ChildFailed, ProcessSpec, last_words, start
from cli.local.templates import metadata
from cli.local.v1_workers import gcloud_environment, v1_metadata, v1_worker
from cli.paths import ROOT, Home, Running, here
from config.load import load_settings
from config.settings import Settings
from core.clock import SystemClock
from core.errors import ZenError
from core.ids import RandomIds
from core.sandbox import SHARED_DIRECTORY
from messaging.proofs.enrolment import enrolment_secret
from messaging.proofs.key_file import create_scheduler_keys, public_text, read_scheduler_keys
from messaging.proofs.keys import SchedulerKey
from messaging.proofs.texts import to_text
from scheduler.secrets.key_file import make_key
from stores.gcs import STORAGE_OVERRIDE

STOP_S = 10.0
"""For the whole stack."""
HEALTHY_S = 60.0
"""A part that ran this long begins again with the shortest pause."""
PAUSE_MAX_S = 10.0
STEP_S = 60.0
SECRETS_KEY = "ZEN_SECRETS__KEY_FILE"
OLD_VMS_LOOKS = 100
"""Ten to a second: for how long VMs of the last run are waited for."""
KEY_FILE = "ZEN_WORKERS__KEY_FILE"
MARK = "ZEN_STACK_HOME"
"""Marks our processes, so that a number in run.json is never taken for a stranger's process."""

Report = Callable[[str, str], None]
"""(kind, text): starting, ready, died, stopping, stopped, note."""


USUAL_PORT = 8080


class BadPort(ZenError):
    """The port that was asked for cannot be had."""

    code = "bad_port"


@dataclass(frozen=True, slots=True)
class Options:
    """What `zen up` was asked for."""

    replicas: int = 1
    port: int | None = None
    """None: the usual one, or a free one if that is taken; 0: a free one."""
    config: Path | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Merged over the embedded configuration."""
    node: NodePlan | None = None
    """This machine itself instead of a pretend cloud."""
    node_gpus: int | None = None
    """What was asked for, to ask again in another process."""


class Stack:
    """One run of everything in one state directory. The caller holds its lock."""

    def __init__(
        self,
        home: Home,
        options: Options,
        cap: VmCap,
        report: Report,
        python: str = sys.executable,
    ) -> None:
        self._python = python
        self._home, self._options, self._cap, self._report = home, options, cap, report
        # What a machine of its own remembers and what a pretend cloud does have nothing in common.
        self._data = home.path / "node" if options.node else home.path
        self._config = self._data / home.config.name
        self._key_file = self._data / "owner.key"
        self._note = options.node.note if options.node else cap.note
        self._clock = SystemClock()
        self._children: dict[str, Child] = {}
        self._programs: dict[str, ProcessSpec] = {}
        self._restarters: list[asyncio.Task[None]] = []
        self._started_at = self._clock.now()
        self._environment = {
            **clean_environment(os.environ),
            MARK: str(home.path),
            "ZEN_CONFIG": str(self._config),
            "ZEN_EMBEDDED": json.dumps(
                {"vm_cap": 1 if options.node else cap.vms, "note": self._note}
            ),
            "PYTHONUNBUFFERED": "1",
            # On a laptop the user's files are on the VMs, also where jobs have users of their own.
            SHARED_DIRECTORY: os.environ.get(SHARED_DIRECTORY) or str(here()),
            SECRETS_KEY: str(self._data / "secrets.key"),
            KEY_FILE: str(self._data / "workers.key"),
        }
        self._bus_rest = ""
        self._keys: tuple[SchedulerKey, ...] = ()
        self._follows: Regrouper | None = None
        self.api = ""
        self._apis: list[str] = []
        self.sim = ""

    # --- starting -----------------------------------------------------------------------

    async def start(self) -> Running:
        """Everything up, or ChildFailed; what was started by then is stopped by stop()."""
        settings = self._write_config()
        make_key(Path(self._environment[SECRETS_KEY]), RandomIds())
        self._keys = self._scheduler_keys()
        had_vms = not self._options.node and (self._data / "pg").exists()
        # Two chains that do not need each other: the database with its schema, and the bus
        # with its topics and the cloud whose VMs must know where the bus is.
        async with asyncio.TaskGroup() as group:
            group.create_task(self._start_database())
            group.create_task(self._start_bus_and_cloud(settings))
        await self._start_schedulers()
        running = self._write_run_file()
        self._restarters = [
            asyncio.create_task(self._keep(name), name=f"keep {name}") for name in self._children
        ]
        if self._follows is not None:
            self._restarters.append(
                asyncio.create_task(self._follows.follow(self.sim), name="groups")
            )
        if had_vms:
            await self._old_vms_gone()
        return running

    async def _old_vms_gone(self) -> None:
        """The VMs of the last run ended with its cloud. Until the leader has seen that, it would
        place a new job on one of them. What takes longer than that is no reason not to start."""

        def old() -> bool:
            with Client(self.api) as client:
                vms = client.get("/vms", {"page_size": 500})["vms"]
            return any(datetime.fromisoformat(vm["requested_at"]) < self._started_at for vm in vms)

        with suppress(Unreachable, Refused):
            for _ in range(OLD_VMS_LOOKS):
                if not await asyncio.to_thread(old):
                    return
                await asyncio.sleep(0.1)

    def _scheduler_keys(self) -> tuple[SchedulerKey, ...]:
        """The scheduler's keys for speaking with its workers, made at the first start."""
        path = Path(self._environment[KEY_FILE])
        create_scheduler_keys(path, RandomIds())
        return read_scheduler_keys(path)

    def _write_config(self) -> Settings:
        store = self._data / "store"
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._options.config and not self._options.changes and edited(self._config):
            self._report("note", f"your edits of {self._config} are kept")
            return load_settings(self._config, {})
        if self._options.node:
            values = node_values(self._options.node, socket_of(self._data), store)
            return write_sealed(self._config, values, f"zen node ({self._note})")
        return write_config(
            self._config,
            self._options.config,
            store,
            self._cap,
            self._options.changes,
        )

    async def _start_database(self) -> None:
        words = ("-m", "db.embedded.server", "run", "--data-dir", str(self._data / "pg"))
        ready = await self._launch("postgres", words, stop_s=3.0)
        self._environment["DATABASE_URL"] = str(ready["url"])
        await self._step("schema", "db", "upgrade", "--owner-key", str(self._key_file))

    async def _start_bus_and_cloud(self, settings: Settings) -> None:
        directory = str(self._data / "bus")
        words = ("-m", "localbus", "--port", "0", "--rest-port", "0", "--data-dir", directory)
        ready = await self._launch("bus", words, stop_s=2.0)
        self._pin("bus", {"--port": ready["grpc"], "--rest-port": ready["rest"]})
        self._bus_rest = _url(ready["rest"])
        self._environment["PUBSUB_EMULATOR_HOST"] = str(ready["grpc"])
        self._environment |= gcloud_environment(settings.project, self._bus_rest)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._step("topics", "infra", "apply", "--pubsub"))
            start = self._start_node if self._options.node else self._start_cloud
            group.create_task(start(replace(settings, pubsub_host=str(ready["grpc"]))))

    async def _start_node(self, settings: Settings) -> None:
        """The machine's own service; the scheduler finds its socket in the configuration."""
        spec = next(cluster for cluster in settings.clusters if cluster.pool == "static")
        told = {
            **metadata(settings, spec, public_text(self._keys)),
            "zone": spec.region(PLACE).zones[0],
            ENROLMENT: to_text(enrolment_secret(self._keys[0])),
        }
        if spec.gpu_type == PRETEND_TYPE:  # asked for by --gpus, where there are none
            told["zen-pretend-gpus"] = "true"
        words = self._data / "worker.json"
        words.touch(mode=0o600)
        words.chmod(0o600)
        words.write_text(json.dumps(told, indent=1), encoding="utf-8")
        arguments = (
            *("--socket", str(socket_of(self._data))),
            *("--dir", str(self._data / "worker")),
            *("--settings", str(words)),
        )
        await self._launch("node", ("-m", "agent.node", *arguments), stop_s=6.0)

    async def _start_cloud(self, settings: Settings) -> None:
        script = v1_worker(settings, lambda words: self._report("note", words))
        told = v1_metadata()

        def build(grown: Settings) -> dict[str, object]:
            bound = replace(grown, pubsub_host=settings.pubsub_host)
            return build_world(bound, self._cap.vms, public_text(self._keys), script, told)

        groups = Regrouper(self._config, self._data / "world.json", build, self._report)
        world = groups.write(settings)
        directory = str(self._data / "cloud")
        words = ("-m", "sim", "--world", str(world), "--state-dir", directory, "--port", "0")
        ready = await self._launch("cloud", words, stop_s=6.0)
        self._pin("cloud", {"--port": ready["compute"]})
        self.sim = str(ready["compute"])
        self._environment["ZEN_COMPUTE_URL"] = self.sim
        # The scheduler's account and buckets are the pretend cloud's too.
        self._environment[STORAGE_OVERRIDE] = self.sim
        for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):
            self._environment[name] = self.sim.removeprefix("http://")
        self._follows = groups

    async def _start_schedulers(self) -> None:
        port = self._options.port
        if port is None:
            port = USUAL_PORT if port_is_free(USUAL_PORT) else 0
        ports = [port, *(0 for _ in range(self._options.replicas - 1))]
        names = [
            f"scheduler-{n}" if len(ports) > 1 else "scheduler" for n in range(1, 1 + len(ports))
        ]
        async with asyncio.TaskGroup() as group:
            for name, number in zip(names, ports, strict=True):
                group.create_task(self._start_scheduler(name, number, first=name == names[0]))
        self._apis = [str(self._children[name].ready["api"]) for name in names]
        self.api = self._apis[0]

    async def _start_scheduler(self, name: str, port: int, *, first: bool) -> None:
        extra = {"ZEN_API__PORT": str(port)}
        if not first:
            extra["ZEN_API__METRICS_PORT"] = ""  # one port, one replica
        ready = await self._launch(name, ("-m", "scheduler"), stop_s=3.0, extra=extra)
        fixed = {**extra, "ZEN_API__PORT": str(ready["api"]).rpartition(":")[2]}
        program = self._programs[name]
        self._programs[name] = replace(program, environment={**program.environment, **fixed})

    async def _launch(
        self,
        name: str,
        words: tuple[str, ...],
        *,
        stop_s: float,
        extra: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        program = ProcessSpec(
            name=name,
            argv=(self._python, *words, "--parent-fd", "{parent_fd}"),
            environment={**self._environment, **(extra or {})},
            log=self._home.logs / f"{name}.log",
            cwd=ROOT,
            stop_s=stop_s,
        )
        self._programs[name] = program
        return (await self._begin(program)).ready

    async def _begin(self, program: ProcessSpec) -> Child:
        began = self._clock.monotonic()
        child = await start(program)
        self._children[program.name] = child
        took_s = self._clock.monotonic() - began
        self._report("started", f"{program.name} ({took_s:.1f} s)")
        return child

    async def _step(self, name: str, *words: str) -> None:
        """A command of our own that ends by itself; a process, so that its imports do not stay."""
        began = self._clock.monotonic()
        log = self._home.logs / f"{name}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(self._python, "-m", "cli", *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                cwd=ROOT,
            )
        try:
            code = await asyncio.wait_for(process.wait(), STEP_S)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        if code != 0:
            raise ChildFailed(f"{name} failed with exit code {code} (log: {log}){last_words(log)}")
        self._report("started", f"{name} ({self._clock.monotonic() - began:.1f} s)")

    def _pin(self, name: str, ports: Mapping[str, object]) -> None:
        """A restart must come back where the others look for it."""
        words = list(self._programs[name].argv)
        for option, address in ports.items():
            words[words.index(option) + 1] = str(address).rpartition(":")[2]
        self._programs[name] = replace(self._programs[name], argv=tuple(words))

    def _write_run_file(self) -> Running:
        running = Running(
            pid=os.getpid(),
            api=self.api,
            sim=self.sim,
            bus=self._environment["PUBSUB_EMULATOR_HOST"],
            bus_rest=self._bus_rest,
            started_at=self._started_at.isoformat(timespec="milliseconds"),
            vm_cap=1 if self._options.node else self._cap.vms,
            note=self._note,
            config=str(self._config),
            processes={name: child.pid for name, child in self._children.items()},
            apis=self._apis,
            database=self._environment["DATABASE_URL"],
            node=self._options.node is not None,
            key_file=str(self._key_file),
        )
        self._home.write(running)
        return running

    # --- keeping ------------------------------------------------------------------------

    async def _keep(self, name: str) -> None:
        """Starts a part again whenever it ends, with a growing pause."""
        deaths = 0
        while True:
            began = self._clock.monotonic()
            code = await self._children[name].wait()
            deaths = 1 if self._clock.monotonic() - began > HEALTHY_S else deaths + 1
            pause_s = min(PAUSE_MAX_S, 0.25 * 2**deaths)
            self._report("died", f"{name} {ending(code)}, starting it again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            while not await self._restart(name):
                deaths += 1
                await asyncio.sleep(min(PAUSE_MAX_S, 0.25 * 2**deaths))

    async def _restart(self, name: str) -> bool:
        program = self._programs[name]
        try:
            child = await self._begin(program)
        except ChildFailed as error:
            self._report("died", str(error))
            return False
        if name == "postgres":
            await self._move_database(str(child.ready["url"]))
        elif program is not self._programs[name]:
            # The database moved while it started: it knows the old address only.
            await child.stop(program.stop_s)
        self._write_run_file()
        return True

    async def _move_database(self, url: str) -> None:
        """The database came back at another address: schedulers must be told, by a restart."""
        self._environment["DATABASE_URL"] = url
        schedulers = [name for name in self._programs if name.startswith("scheduler")]
        for name in schedulers:
            program = self._programs[name]
            self._programs[name] = replace(
                program, environment={**program.environment, "DATABASE_URL": url}
            )
        await asyncio.gather(
            *(self._children[name].stop(self._programs[name].stop_s) for name in schedulers)
        )

    # --- stopping -----------------------------------------------------------------------

    async def stop(self) -> None:
        """Schedulers, cloud, bus, database; bounded as a whole. Nothing is left behind."""
        for supervisor in self._restarters:
            supervisor.cancel()
        await asyncio.gather(*self._restarters, return_exceptions=True)
        deadline = self._clock.monotonic() + STOP_S
        for names in self._stop_order():
            self._report("stopping", ", ".join(names))
            left_s = max(0.2, deadline - self._clock.monotonic())
            stops: list[Awaitable[None]] = [
                self._children[name].stop(min(self._children[name].program.stop_s, left_s))
                for name in names
            ]
            await asyncio.gather(*stops)
        self._home.forget()

    def _stop_order(self) -> list[list[str]]:
        # By name: they came up at once, in whatever order.
        schedulers = sorted(name for name in self._children if name.startswith("scheduler"))
        order = [schedulers, ["cloud", "node"], ["bus"], ["postgres"]]
        present = [[name for name in names if name in self._children] for names in order]
        return [names for names in present if names]


def ending(code: int) -> str:
    """How a process ended, in words."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def port_is_free(port: int) -> bool:
    """Whether the API can listen there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _url(address: object) -> str:
    text = str(address or "")
    return text if not text or "://" in text else f"http://{text}"
