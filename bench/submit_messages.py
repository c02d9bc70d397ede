"""Submissions by Pub/Sub message: jobs per second from the topic into the database, and the CPU of
every part of it.

    python -m bench.submit_messages [--messages 5000]

The messages carry the owner's key. They are published as fast as the local bus takes them; its CPU
is for both ways, the publisher's own is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path

import psutil
import psycopg
import yaml
from rich.table import Table

from bench.figures import tell
from bench.local import LocalStack, local_stack, wait_for
from bench.report import figure, show
from bench.submit_rate import CLUSTER, VMS, hold_vms
from core.messages import OutMessage
from core.names import Names
from messaging.pubsub import PubSubBus
from messaging.submissions import KEY

BODY = json.dumps({"command": ["true"], "gpu_type": "l4"}).encode()
AT_ONCE = 500
PARTS = ("scheduler", "postgres", "bus")
WARM_UP = 500
TOLD = ("per_s", "cpu_ms")


def cpu_s(process: psutil.Process) -> float:
    """Of the process and what it started."""
    spent = 0.0
    for one in (process, *process.children(recursive=True)):
        times = one.cpu_times()
        spent += times.user + times.system
    return spent


def publish(stack: LocalStack, count: int) -> None:
    """To the topic of the stack, as its owner."""
    said = yaml.safe_load(Path(stack.run["config"]).read_text(encoding="utf-8"))
    key = stack.client.headers["authorization"].partition(" ")[2]
    one = OutMessage(Names(said["prefix"]).submit_topic, BODY, {KEY: key})
    asyncio.run(_publish(said["project"], stack.run["bus"], one, count))


async def _publish(project: str, host: str, one: OutMessage, count: int) -> None:
    bus = PubSubBus(project, emulator_host=host)
    for begin in range(0, count, AT_ONCE):
        await bus.publish([one] * min(AT_ONCE, count - begin), 30.0)
    await bus.close()


def submit(stack: LocalStack, connection: psycopg.Connection, count: int) -> float:
    """Seconds until all are stored."""

    def stored() -> int:
        row = connection.execute("SELECT count(*) FROM jobs").fetchone()
        assert row is not None
        return int(row[0])

    wanted = stored() + count
    began = time.perf_counter()
    publish(stack, count)
    wait_for(f"{count} jobs", lambda: stored() >= wanted or None, 300, every_s=0.05)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5000)
    args = parser.parse_args()
    with local_stack({"clusters": {CLUSTER: {"vm_max": VMS}}}) as stack:
        hold_vms(stack)
        with psycopg.connect(stack.database_url, autocommit=True) as connection:
            submit(stack, connection, WARM_UP)
            before = {part: cpu_s(stack.process(part)) for part in PARTS}
            seconds = submit(stack, connection, args.messages)
            spent = {part: cpu_s(stack.process(part)) - before[part] for part in PARTS}
    cpu_ms = 1000 * sum(spent.values()) / args.messages
    tell(per_s=args.messages / seconds, cpu_ms=cpu_ms)
    table = Table("", "figure", title=f"{args.messages} messages")
    table.add_row("jobs per second", figure(args.messages / seconds))
    for part in PARTS:
        table.add_row(f"CPU per job, {part}, ms", figure(1000 * spent[part] / args.messages))
    table.add_row("CPU per job in all, ms", figure(cpu_ms))
    show(table, "The publisher shares the machine's cores with them.")


if __name__ == "__main__":
    main()
