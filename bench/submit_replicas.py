"""What three replicas on one database pay for a submission, beside what one pays.

    python -m bench.submit_replicas [--seconds 5] [--connections 48]

The same connections are spread over all replicas; the CPU is that of all of them together, the
leader's loop and its reading of new jobs in it.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass, replace

from rich.table import Table

from bench.figures import tell
from bench.local import LocalStack, local_stack
from bench.report import figure, show
from bench.submit_messages import cpu_s
from bench.submit_rate import CLUSTER, VMS, WARM_UP_S, hold_vms, load, target_of

REPLICAS = 3
TOLD = ("ratio",)


@dataclass(frozen=True, slots=True)
class Spread:
    """Submissions over all replicas of a stack."""

    per_s: float
    cpu_ms: float
    """Of all replicas, per job."""
    postgres_ms: float


async def spread(stack: LocalStack, seconds: float, connections: int) -> int:
    """How many were stored."""
    target = target_of(stack)
    ports = [int(api.rpartition(":")[2]) for api in stack.run["apis"]]
    each = connections // len(ports)
    loads = (load(replace(target, port=port), seconds, each) for port in ports)
    return sum(map(len, await asyncio.gather(*loads)))


def measure(stack: LocalStack, args: argparse.Namespace) -> Spread:
    replicas, postgres = stack.schedulers(), stack.process("postgres")
    hold_vms(stack)
    asyncio.run(spread(stack, WARM_UP_S, args.connections))
    before, stored_before = sum(map(cpu_s, replicas)), cpu_s(postgres)
    began = time.perf_counter()
    jobs = asyncio.run(spread(stack, args.seconds, args.connections))
    lasted = time.perf_counter() - began
    return Spread(
        jobs / lasted,
        1000 * (sum(map(cpu_s, replicas)) - before) / jobs,
        1000 * (cpu_s(postgres) - stored_before) / jobs,
    )


def of(replicas: int, args: argparse.Namespace) -> Spread:
    with local_stack({"clusters": {CLUSTER: {"vm_max": VMS}}}, replicas) as stack:
        return measure(stack, args)


def median_of(found: list[Spread]) -> Spread:
    """By the CPU per job."""
    middle = statistics.median_low(sorted(one.cpu_ms for one in found))
    return next(one for one in found if one.cpu_ms == middle)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    pairs = [(of(1, args), of(REPLICAS, args)) for _ in range(args.rounds)]
    one, three = (median_of([pair[side] for pair in pairs]) for side in (0, 1))
    tell(ratio=three.cpu_ms / one.cpu_ms)
    title = f"{args.connections} connections, {args.seconds:g} s"
    table = Table("", "1 replica", f"{REPLICAS} replicas", "ratio", title=title)
    for name, ours, alone in (
        ("durable submissions per second", three.per_s, one.per_s),
        ("CPU of all replicas per job, ms", three.cpu_ms, one.cpu_ms),
        ("CPU of PostgreSQL per job, ms", three.postgres_ms, one.postgres_ms),
    ):
        table.add_row(name, figure(alone), figure(ours), f"{ours / alone:.2f} ×")
    show(table, "Replicas, PostgreSQL and the client share the machine's cores.")


if __name__ == "__main__":
    main()
