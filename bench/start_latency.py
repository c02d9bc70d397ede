"""From a submission to the user's command running on a warm idle VM, under a `zen up` of its own.

    python -m bench.start_latency [--jobs 50]

The job itself says when it started (`date`), the submitter notes the time before the POST; both
on one machine, so on one clock. The stages come from the job's timeline. The last rows measure,
in the same run, what each stage is made of.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psycopg
from google.pubsub_v1 import types
from rich.table import Table

from bench.figures import tell
from bench.local import LocalStack, local_stack, seconds_of
from bench.report import figure, quantile, show, verdict
from core.messages import OutMessage
from messaging.pubsub import PubSubBus

TARGET_MS = 250.0
BASELINE_ROUNDS = 50
SETTLE_S = 5.0
STAGES = ("submitted", "placed", "claimed", "started", "exited_ok")
COMMAND = ("date", "+%s.%N")
TOLD = ("p50_ms",)


@dataclass(frozen=True, slots=True)
class _StartRun:
    """One job: seconds after the moment before its POST."""

    answered: float
    command_ran: float
    stages: dict[str, float]


def run_one(stack: LocalStack, gpu_type: str) -> _StartRun:
    began = time.time()
    job_id = stack.submit(*COMMAND, gpu_type=gpu_type)
    answered = time.time() - began
    stack.finish(job_id)
    ran = float(stack.log(job_id)) - began
    stages = {event["event"]: seconds_of(event["at"]) - began for event in stack.events(job_id)}
    return _StartRun(answered, ran, stages)


def warm_up(stack: LocalStack, gpu_type: str) -> None:
    """One VM that has booted and worked, and a scheduler that has loaded all it loads."""
    stack.finish(stack.submit(*COMMAND, gpu_type=gpu_type))
    time.sleep(SETTLE_S)
    for _ in range(3):
        run_one(stack, gpu_type)


# --- what it is made of -----------------------------------------------------------------


def timed(work: Callable[[], object]) -> list[float]:
    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    once()
    return [once() for _ in range(BASELINE_ROUNDS)]


async def timed_async(work: Callable[[], Awaitable[object]]) -> list[float]:
    await work()
    taken = []
    for _ in range(BASELINE_ROUNDS):
        began = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - began)
    return taken


def spawns() -> list[float]:
    return timed(lambda: subprocess.run(["sh", "-c", ":"], check=True))


def health_calls(stack: LocalStack) -> list[float]:
    return timed(lambda: stack.client.get("/api/v1/health").raise_for_status())


def commits(stack: LocalStack) -> list[float]:
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE bench_commit (at timestamptz)")
        try:
            return timed(lambda: connection.execute("INSERT INTO bench_commit VALUES (now())"))
        finally:
            connection.execute("DROP TABLE bench_commit")


async def hops(bus_host: str) -> list[float]:
    """Publish, streaming pull and acknowledge with the product's own bus client."""
    async with PubSubBus("bench", emulator_host=bus_host) as bus:
        topic, name = bus.topic_path("hop"), bus.subscription_path("hop")
        await bus.publisher.create_topic(name=topic)
        await bus.subscriber.create_subscription(types.Subscription(name=name, topic=topic))
        inbound = bus.subscribe("hop")
        batches = inbound.batches()

        async def hop() -> None:
            await bus.publish([OutMessage("hop", b"x")], 10)
            batch = await anext(batches)
            await inbound.ack([message.ack_id for message in batch])

        return await timed_async(hop)


# --- the table --------------------------------------------------------------------------


def table_of(runs: list[_StartRun], baselines: dict[str, list[float]]) -> Table:
    table = Table("ms", "p50", "p90", "p99", "p50 ÷ bus hop", title=f"{len(runs)} jobs, one by one")
    hop_ms = 1000 * quantile(baselines["one hop over the bus, acknowledged"], 0.5)

    def row(name: str, values: list[float], style: str = "") -> None:
        cells = [1000 * quantile(values, share) for share in (0.5, 0.9, 0.99)]
        table.add_row(name, *map(figure, cells), f"{cells[0] / hop_ms:.1f} ×", style=style)

    row("submit → the command runs", [run.command_ran for run in runs], style="bold")
    row("submit → POST answered", [run.answered for run in runs])
    table.add_section()
    row("POST sent → submitted", [run.stages["submitted"] for run in runs])
    for before, after in itertools.pairwise(STAGES):
        row(f"{before} → {after}", [run.stages[after] - run.stages[before] for run in runs])
    row("claimed → the command runs", [run.command_ran - run.stages["claimed"] for run in runs])
    table.add_section()
    for name, values in baselines.items():
        row(name, values)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--gpu-type", default="l4")
    args = parser.parse_args()
    with local_stack() as stack:
        warm_up(stack, args.gpu_type)
        runs = [run_one(stack, args.gpu_type) for _ in range(args.jobs)]
        baselines = {
            "one hop over the bus, acknowledged": asyncio.run(hops(stack.run["bus"])),
            "GET /api/v1/health": health_calls(stack),
            "one PostgreSQL commit": commits(stack),
            "spawn of sh -c :": spawns(),
        }
    p50_ms = 1000 * quantile([run.command_ran for run in runs], 0.5)
    tell(p50_ms=p50_ms)
    show(
        table_of(runs, baselines),
        "The road is 1 POST with a commit, 1 cycle (snapshot, commit, outbox), 1 hop to the "
        "VM, 2 spawns.",
        f"p50 {figure(p50_ms)} ms: {verdict(p50_ms, TARGET_MS)} ms.",
    )


if __name__ == "__main__":
    main()
