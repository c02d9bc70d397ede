"""Durable single submissions per second through the real server, beside a bare one.

    python -m bench.submit_rate [--seconds 5] [--connections 16]

Both write the same rows into the same PostgreSQL server (databases of their own), both are asked
by the same client over kept connections, one request at a time on each. The real server checks,
chooses a cluster, and its loop works on the queue meanwhile; the bare one does nothing of that.
The client shares the machine's cores with them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import psutil
import psycopg
from rich.table import Table

from bench.copied_rows import url_beside
from bench.figures import tell
from bench.local import ROOT, LocalStack, ended, local_stack, undisturbed, wait_for
from bench.report import figure, quantile, show
from db import migrate

BODY = json.dumps({"command": ["true"], "gpu_type": "l4"}).encode()
HOLD_S = 600
CLUSTER = "1xl4"
VMS = 2
WARM_UP_S = 1.0
TOLD = ("r", "cpu", "cpu_ms", "per_s", "bare_per_s")


@dataclass(frozen=True, slots=True)
class Load:
    """What a server did under load."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """Of the server's process, per job."""


@dataclass(frozen=True, slots=True)
class SubmitTarget:
    """Where submissions go, and as whose."""

    port: int
    authorization: str

    @property
    def request(self) -> bytes:
        """One submission, as bytes."""
        head = (
            "POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: {self.authorization}\r\nContent-Length: {len(BODY)}\r\n\r\n"
        )
        return head.encode() + BODY


async def ask_until(target: SubmitTarget, until: float, taken: list[float]) -> None:
    """One connection, one request at a time."""
    request = target.request
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    try:
        while (began := time.perf_counter()) < until:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            if b" 201 " not in answer[:16]:
                raise RuntimeError(answer.decode())
            await reader.readexactly(length_of(answer))
            taken.append(time.perf_counter() - began)
    finally:
        writer.close()


def length_of(head: bytes) -> int:
    """Of the body that follows this head."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    raise RuntimeError(f"no Content-Length in {head!r}")


async def load(target: SubmitTarget, seconds: float, connections: int) -> list[float]:
    taken: list[float] = []
    until = time.perf_counter() + seconds
    await asyncio.gather(*(ask_until(target, until, taken) for _ in range(connections)))
    return taken


def measure(process: psutil.Process, target: SubmitTarget, args: argparse.Namespace) -> Load:
    asyncio.run(load(target, WARM_UP_S, args.connections))
    before = process.cpu_times()
    began = time.perf_counter()
    taken = asyncio.run(load(target, args.seconds, args.connections))
    lasted = time.perf_counter() - began
    after = process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return Load(
        per_s=len(taken) / lasted,
        p50_ms=1000 * quantile(taken, 0.5),
        p99_ms=1000 * quantile(taken, 0.99),
        cpu_ms=1000 * cpu_s / len(taken),
    )


@contextlib.contextmanager
def bare_server(stack: LocalStack) -> Iterator[tuple[psutil.Process, int]]:
    """The ceiling on an empty database beside the stack's own."""
    url = url_beside(stack.database_url, "bench_ceiling")
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE bench_ceiling")
    migrate.upgrade(url)
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.ceiling", url], stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert server.stdout is not None
        yield psutil.Process(server.pid), int(server.stdout.readline())
    finally:
        with undisturbed():
            server.terminate()
            ended(server)


def target_of(stack: LocalStack) -> SubmitTarget:
    """The API of the stack, as its owner."""
    port = int(stack.run["api"].rpartition(":")[2])
    return SubmitTarget(port, stack.client.headers["authorization"])


def hold_vms(stack: LocalStack) -> None:
    """Every VM of the cluster is busy, so that jobs stay in the queue: submissions alone count."""
    for _ in range(VMS):
        stack.submit("sleep", str(HOLD_S), gpu_type="l4")

    def all_run() -> bool | None:
        return True if stack.get("/status")["jobs"]["RUNNING"] == VMS else None

    # Booting VMs would take the processors from what is measured.
    wait_for(f"{VMS} running jobs", all_run, 60, every_s=0.2)


def measure_real(stack: LocalStack, args: argparse.Namespace) -> Load:
    """Submissions to a scheduler that has nothing else to do."""
    hold_vms(stack)
    return measure(stack.process("scheduler"), target_of(stack), args)


def table_of(real: Load, bare: Load, args: argparse.Namespace) -> Table:
    title = f"{args.connections} connections, {args.seconds:g} s"
    table = Table("", "scheduler", "bare ceiling", "scheduler ÷ ceiling", title=title)
    for name, ours, least in (
        ("durable submissions per second", real.per_s, bare.per_s),
        ("answer p50, ms", real.p50_ms, bare.p50_ms),
        ("answer p99, ms", real.p99_ms, bare.p99_ms),
        ("CPU of the server per job, ms", real.cpu_ms, bare.cpu_ms),
    ):
        table.add_row(name, figure(ours), figure(least), f"{ours / least:.2f} ×")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=16)
    args = parser.parse_args()
    with local_stack({"clusters": {CLUSTER: {"vm_max": VMS}}}) as stack:
        with bare_server(stack) as (process, port):
            bare = measure(process, replace(target_of(stack), port=port), args)
        real = measure_real(stack, args)
    tell(r=real.per_s / bare.per_s, cpu=real.cpu_ms / bare.cpu_ms, cpu_ms=real.cpu_ms)
    tell(per_s=real.per_s, bare_per_s=bare.per_s)
    show(
        table_of(real, bare, args),
        "The scheduler's CPU includes its loop, which looks at the queue meanwhile.",
    )


if __name__ == "__main__":
    main()
