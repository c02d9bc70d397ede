"""What the parts cost before they do anything: start-up times and memory.

    python -m bench.footprint

Times of start-up stand beside `python -c pass` in the same run. Memory is what the kernel says:
RSS counts shared pages in every process, PSS divides them among those who share.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from google.pubsub_v1 import types
from rich.table import Table

from bench.local import (
    ROOT,
    LocalStack,
    connected,
    started_at,
    state_directory,
    wait_for,
    zen,
)
from bench.report import figure, show, verdict
from core.messages import Heartbeat, HeartbeatStatus
from core.names import Names
from messaging.codec import decode_heartbeat
from messaging.pubsub import PubSubBus

ROUNDS = 10
IDLE_S = 5.0
LOAD_S = 60.0
LOADED = "gpu_scheduler_cloud_calls_total{"


@dataclass(slots=True)
class _FootprintFigures:
    """Rows of the table: name, value, unit, target or None."""

    rows: list[tuple[str, float, str, float | None]] = field(default_factory=list)
    bare_ms: float = 1.0

    def add(self, name: str, value: float, unit: str, target: float | None = None) -> None:
        self.rows.append((name, value, unit, target))

    def table(self) -> Table:
        table = Table("", "measured", "unit", "÷ python -c pass", "target")
        for name, value, unit, target in self.rows:
            per_ms = {"ms": 1.0, "s": 1000.0}.get(unit)
            ratio = f"{value * per_ms / self.bare_ms:,.1f} ×" if per_ms else ""
            said = "" if target is None else verdict(value, target)
            table.add_row(name, figure(value), unit, ratio, said)
        return table


# --- starting ---------------------------------------------------------------------------


def wall_ms(*argv: str) -> float:
    """Median; the first round fills the caches and does not count."""
    taken = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        taken.append(1000 * (time.perf_counter() - began))
    return statistics.median(taken[1:])


def up_s(home: Path) -> float:
    """`./zen up --detach` until it returns."""
    began = time.perf_counter()
    subprocess.run(
        [str(ROOT / "zen"), "up", "--detach", "--quiet", "--port", "0"],
        env={**os.environ, "ZEN_HOME": str(home)},
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


# --- the scheduler ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchedulerStart:
    """Seconds after its process started; the slowest answer while the library was loading."""

    answers_s: float
    loaded_s: float
    slowest_answer_s: float


def restart_scheduler(stack: LocalStack) -> SchedulerStart:
    """Its supervisor starts it again at the same address; we knock until it opens."""
    old = stack.process("scheduler")
    old.send_signal(signal.SIGTERM)
    old.wait(20)
    answered = wait_for("an answer of the API", lambda: _answer(stack), LOAD_S, every_s=0.005)
    loaded = slowest = 0.0
    while not loaded:
        began = time.perf_counter()
        text = stack.client.get("/metrics").text
        slowest = max(slowest, time.perf_counter() - began)
        loaded = time.time() if LOADED in text else 0.0
        time.sleep(0.02)
        if time.time() - answered > LOAD_S:
            raise TimeoutError(f"no call to the cloud within {LOAD_S:g} s")
    began_at = started_at(wait_for("the new scheduler", lambda: _other(stack, old.pid), 20))
    return SchedulerStart(answered - began_at, loaded - began_at, slowest)


def _answer(stack: LocalStack) -> float | None:
    with contextlib.suppress(httpx.TransportError):
        if stack.client.get("/api/v1/health").status_code == 200:
            return time.time()
    return None


def _other(stack: LocalStack, old_pid: int) -> psutil.Process | None:
    process = stack.process("scheduler")
    return process if process.pid != old_pid else None


# --- the agent --------------------------------------------------------------------------


async def agent_ready_s(stack: LocalStack) -> float:
    """From the start of an agent's process to the publish time of its first READY."""
    project = stack.process("scheduler").environ()["ZEN_CONFIG"]
    async with PubSubBus(_project(Path(project)), emulator_host=stack.run["bus"]) as bus:
        topic = bus.topic_path(Names().heartbeat_topic)
        name = bus.subscription_path("bench-ready")
        await bus.subscriber.create_subscription(types.Subscription(name=name, topic=topic))
        stack.submit("sleep", "1", gpu_type="l4")
        async with asyncio.timeout(60):
            async for published, heartbeat in _heartbeats(bus):
                if heartbeat.status == HeartbeatStatus.READY:
                    began = started_at(_agent_of(stack, heartbeat.vm_name))
                    return published - began
    raise AssertionError("the subscription has no end")


async def _heartbeats(bus: PubSubBus) -> AsyncIterator[tuple[float, Heartbeat]]:
    inbound = bus.subscribe("bench-ready")
    async for batch in inbound.batches():
        for message in batch:
            news = decode_heartbeat(message)
            if isinstance(news, Heartbeat):
                yield message.publish_time.timestamp(), news
        await inbound.ack([message.ack_id for message in batch])


def _agent_of(stack: LocalStack, vm_name: str) -> psutil.Process:
    return next(p for p in stack.agents() if vm_name in p.environ()["ZEN_VM_DIR"])


def _project(config: Path) -> str:
    from config.load import load_settings  # noqa: PLC0415  # only here

    return load_settings(config, {}).project


# --- memory -----------------------------------------------------------------------------


def memory_mb(process: psutil.Process) -> tuple[float, float]:
    """RSS and PSS of one process."""
    info = process.memory_full_info()
    return info.rss / 2**20, info.pss / 2**20


def family_pss_mb(process: psutil.Process) -> float:
    """Of a process and all below it; for servers that fork, RSS would count pages many times."""
    return sum(memory_mb(each)[1] for each in (process, *process.children(recursive=True)))


def measure_memory(figures: _FootprintFigures, stack: LocalStack) -> None:
    agent = stack.agents()[0]
    for name, process, target in (
        ("agent, idle", agent, 90.0),
        ("scheduler, idle, Compute library loaded", stack.process("scheduler"), 320.0),
        ("local bus", stack.process("bus"), None),
        ("pretend cloud", stack.process("cloud"), None),
        ("supervisor (zen up)", psutil.Process(stack.run["pid"]), None),
    ):
        rss, pss = memory_mb(process)
        figures.add(f"{name}: RSS", rss, "MB", target)
        figures.add(f"{name}: PSS", pss, "MB")
    figures.add(
        "PostgreSQL with all its processes: PSS", family_pss_mb(stack.process("postgres")), "MB"
    )


def measure_stack(figures: _FootprintFigures, home: Path) -> None:
    figures.add("./zen up -d, new state directory", up_s(home), "s", 15.0)
    zen(home, "down")
    figures.add("./zen up -d, state from before", up_s(home), "s", 15.0)
    with connected(home) as stack:
        start = restart_scheduler(stack)
        figures.add("scheduler: process start → API answers", start.answers_s, "s", start.loaded_s)
        figures.add("scheduler: process start → Compute library in use", start.loaded_s, "s")
        figures.add("slowest answer while it loads", start.slowest_answer_s, "s")
        ready_s = asyncio.run(agent_ready_s(stack))
        figures.add("agent: process start → READY published", ready_s, "s", 1.5)
        time.sleep(IDLE_S)
        measure_memory(figures, stack)


def main() -> None:
    figures = _FootprintFigures(bare_ms=wall_ms(sys.executable, "-c", "pass"))
    figures.add("python -c pass", figures.bare_ms, "ms")
    figures.add("./zen --help", wall_ms(str(ROOT / "zen"), "--help"), "ms", 250.0)
    with state_directory() as home:
        measure_stack(figures, home)
    show(figures.table(), "The target of the API is to answer before the Compute library is there.")


if __name__ == "__main__":
    main()
