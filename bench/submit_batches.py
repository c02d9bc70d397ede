"""Many jobs in one request beside psycopg's COPY of the same rows: arrays, and batches of different
jobs as JSON and as NDJSON; and how long others wait for their answers meanwhile.

    python -m bench.submit_batches [--rounds 5]

After each request the rows that it wrote (jobs, events, specs, audit log) are written once more by
COPY into an empty database of the same server. The figure is the time of COPY ÷ that of the
request, medians of all. Beside a second request of the same, a GET and a single submission go on
all the time, on connections of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil
from rich.table import Table

from bench.copied_rows import CopiedRows, copied_rows
from bench.figures import tell
from bench.local import LocalStack, local_stack
from bench.report import figure, show
from bench.submit_messages import cpu_s
from bench.submit_rate import BODY, CLUSTER, VMS, SubmitTarget, hold_vms, length_of, target_of
from core.tenants import DEFAULT_TENANT

BATCH = 1000
KINDS = ("r_1000", "r_10000", "batch_json", "batch_ndjson")
RATES = ("per_s", "copy_per_s")
TOLD = ("blocked_ms", *KINDS, *(f"{kind}_{whose}" for kind in KINDS for whose in RATES))
PROBE_EVERY_S = 0.005
SETTLE_S = 0.3
JSON, NDJSON = "application/json", "application/x-ndjson"
WARM_UP = 1


@dataclass(frozen=True, slots=True)
class BatchKind:
    """A request of many jobs."""

    told: str
    what: str
    jobs: int
    path: str
    content_type: str
    body: bytes


@dataclass(slots=True)
class BatchRounds:
    """What was measured again and again."""

    taken_s: list[float] = field(default_factory=list)
    copy_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    """Of the scheduler and PostgreSQL, of all."""
    copy_cpu_s: float = 0.0
    """Of this process and PostgreSQL, of all."""
    live_s: float = 0.0
    """The slowest answer of GET /health meanwhile."""
    post_s: float = 0.0
    """The slowest answer of a single submission meanwhile."""

    @property
    def ratio(self) -> float:
        return statistics.median(self.copy_s) / statistics.median(self.taken_s)


def kinds() -> list[BatchKind]:
    one = {"command": ["true"], "gpu_type": "l4"}
    jobs = [
        {**one, "command": ["echo", f"{n}"], "name": f"part {n}", "labels": {"part": f"{n}"}}
        for n in range(BATCH)
    ]
    array = [
        BatchKind(
            f"r_{count}",
            f"array of {count:,}",
            count,
            "/api/v1/jobs",
            JSON,
            json.dumps({**one, "array": f"0-{count - 1}"}).encode(),
        )
        for count in (1_000, 10_000)
    ]
    lines = "\n".join(map(json.dumps, jobs)).encode()
    whole, path = json.dumps({"jobs": jobs}).encode(), "/api/v1/jobs:batch"
    return [
        *array,
        BatchKind("batch_json", f"batch of {BATCH:,}, JSON", BATCH, path, JSON, whole),
        BatchKind("batch_ndjson", f"batch of {BATCH:,}, NDJSON", BATCH, path, NDJSON, lines),
    ]


class KeptConnection:
    """One kept connection."""

    def __init__(self, target: SubmitTarget) -> None:
        self._target = target

    async def __aenter__(self) -> KeptConnection:
        opened = await asyncio.open_connection("127.0.0.1", self._target.port, limit=2**24)
        self._reader, self._writer = opened
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, at: str, content_type: str = "", body: bytes = b"") -> float:
        """Seconds until the whole answer is here."""
        head = (
            f"{at} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {self._target.authorization}\r\n"
        )
        if body:
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        began = time.perf_counter()
        self._writer.write(head.encode() + b"\r\n" + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        said = await self._reader.readexactly(length_of(answer))
        seconds = time.perf_counter() - began
        if b" 20" not in answer[:16] or b'"refused":1' in said:
            raise RuntimeError((answer + said[:2000]).decode())
        return seconds


async def one_round(target: SubmitTarget, kind: BatchKind) -> tuple[float, float, float]:
    """Seconds of the request, and the slowest of the two that go on beside it."""
    done = asyncio.Event()

    async def probe(at: str, body: bytes = b"") -> float:
        slowest = 0.0
        async with KeptConnection(target) as asker:
            while not done.is_set():
                slowest = max(slowest, await asker.ask(at, JSON, body))
                await asyncio.sleep(PROBE_EVERY_S)
        return slowest

    async with KeptConnection(target) as asker:
        live = asyncio.create_task(probe("GET /health"))
        post = asyncio.create_task(probe("POST /api/v1/jobs", BODY))
        await asyncio.sleep(SETTLE_S)
        taken = await asker.ask(f"POST {kind.path}", kind.content_type, kind.body)
        done.set()
        return taken, await live, await post


async def alone(target: SubmitTarget, kind: BatchKind) -> float:
    """Seconds of the request, with nothing beside it."""
    async with KeptConnection(target) as asker:
        return await asker.ask(f"POST {kind.path}", kind.content_type, kind.body)


def measure(stack: LocalStack, beside: CopiedRows, kind: BatchKind, rounds: int) -> BatchRounds:
    target, seen, postgres = target_of(stack), BatchRounds(), stack.process("postgres")
    scheduler, own = stack.process("scheduler"), psutil.Process()
    for number in range(-WARM_UP, rounds):
        mark = beside.mark()
        before = cpu_s(scheduler) + cpu_s(postgres)
        taken = asyncio.run(alone(target, kind))
        spent = cpu_s(scheduler) + cpu_s(postgres) - before
        tables = beside.since(mark)
        stored = {found.table: len(found.rows) for found in tables}
        assert stored["jobs"] == kind.jobs, stored
        before = cpu_s(own) + cpu_s(postgres)
        copied = beside.copy(tables)
        copying = cpu_s(own) + cpu_s(postgres) - before
        if number < 0:
            continue
        seen.taken_s.append(taken)
        seen.copy_s.append(copied)
        seen.cpu_s, seen.copy_cpu_s = seen.cpu_s + spent, seen.copy_cpu_s + copying
        _, live, post = asyncio.run(one_round(target, kind))
        seen.live_s, seen.post_s = max(seen.live_s, live), max(seen.post_s, post)
    return seen


def table_of(found: Mapping[BatchKind, BatchRounds], rounds: int) -> Table:
    heads = ("jobs/s", "COPY jobs/s", "÷ COPY", "CPU ÷ COPY's")
    table = Table("", *heads, "slowest GET, POST, ms", title=f"medians of {rounds}")
    for kind, seen in found.items():
        table.add_row(
            kind.what,
            figure(kind.jobs / statistics.median(seen.taken_s)),
            figure(kind.jobs / statistics.median(seen.copy_s)),
            f"{seen.ratio:.2f} ×",
            f"{seen.cpu_s / seen.copy_cpu_s:.2f} ×",
            f"{figure(1000 * seen.live_s)}, {figure(1000 * seen.post_s)}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with local_stack({"clusters": {CLUSTER: {"vm_max": VMS}}}) as stack:
        hold_vms(stack)
        with copied_rows(stack.database_url, DEFAULT_TENANT) as beside:
            found = {kind: measure(stack, beside, kind, args.rounds) for kind in kinds()}
    blocked_s = max(max(seen.live_s, seen.post_s) for seen in found.values())
    tell(blocked_ms=1000 * blocked_s)
    for kind, seen in found.items():
        rates = [kind.jobs / statistics.median(took) for took in (seen.taken_s, seen.copy_s)]
        names = (kind.told, *(f"{kind.told}_{whose}" for whose in RATES))
        tell(**dict(zip(names, (seen.ratio, *rates), strict=True)))
    show(
        table_of(found, args.rounds),
        "GET /health and a single submission go on beside a second request of the same.",
    )


if __name__ == "__main__":
    main()
