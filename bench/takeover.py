"""How long nobody leads after the leader was killed.

    python -m bench.takeover [--queued 1000000] [--vms 10000] [--rounds 3]

Two replicas, each a process of its own over one real database with a queue, clusters and VMs that
work (bench/crowd.py). The one that leads is killed (SIGKILL); the time is from there to the first
cycle of the other one that was committed. Then a third one comes, and the second is killed, and so
on. The fleet is pretended (bench/fleet.py), timers are the defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from rich.table import Table

from bench.crowd import NAMES, CrowdSize, fill_queue, renew
from bench.decide import RUN_S, settings_for
from bench.figures import tell
from bench.fleet import BenchFleet, FleetPace
from bench.house import fresh_database
from bench.local import postgres_server
from bench.proven import SIGNER, MadeSubscriptions
from bench.report import figure, show, verdict
from core.changes import AtomicBatch, Committed
from core.clock import SystemClock
from core.ids import RandomIds
from core.ports import Cloud
from core.timers import Timers
from db.notifications import Listener
from db.store import PostgresStore
from scheduler.operations.logs import configure_logs
from scheduler.operations.metrics import Metrics
from scheduler.replica import Adapters, Replica
from scheduler.submission.group_commit import GroupCommit

TOLD = ("takeover_s",)
TARGET_S = 6.0
FOLLOWING = "following"
LEADING = "leading"
COMMITTED = "committed"
WAIT_S = 60.0
HEARTBEAT_S = 10.0


class TellingStore(PostgresStore):
    """Says when its first cycle is committed."""

    told = False

    async def commit(self, batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        done = await super().commit(batches, term)
        task = asyncio.current_task()
        if not self.told and task is not None and task.get_name() == "loop":
            self.told = True
            print(COMMITTED, flush=True)
        return done


async def replicate(url: str, size: CrowdSize) -> None:
    """One replica, until it is killed."""
    name = f"bench-{os.getpid()}"
    fleet = BenchFleet(NAMES, size.workers(), FleetPace(HEARTBEAT_S, size.vms / RUN_S))
    store = TellingStore(url, name=name)
    await store.open()
    adapters = Adapters(
        store,
        fleet,
        {"mig": Cloud(lambda _: fleet)},
        GroupCommit(store).submit,
        Listener(url).wakeups,
        SystemClock(),
        RandomIds(),
        SIGNER,
        MadeSubscriptions(),
    )
    settings = replace(settings_for(size), timers=Timers())
    replica = Replica(settings, adapters, Metrics(), name)
    await replica.leadership.renew()
    replica.start()
    print(FOLLOWING, flush=True)
    while not replica.leadership.leading:  # noqa: ASYNC110  # the replica waits for the event
        await asyncio.sleep(0.01)
    print(LEADING, flush=True)
    await fleet.live()


class ReplicaProcess:
    """As its parent sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, url: str, size: CrowdSize) -> ReplicaProcess:
        sizes = {"--tenants": size.tenants, "--clusters": size.clusters, "--vms": size.vms}
        words = [word for name, value in sizes.items() for word in (name, str(value))]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.takeover", "--replica", url),
            *words,
            stdout=asyncio.subprocess.PIPE,
        )
        started = cls(process)
        await started.says(FOLLOWING)
        return started

    async def says(self, word: str) -> None:
        assert self._process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            while (line := await self._process.stdout.readline()).strip() != word.encode():
                assert line, "the replica ended by itself"

    async def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


async def measure(
    url: str, size: CrowdSize, rounds: int, dice: random.Random
) -> list[tuple[float, float]]:
    """Seconds until the lease was taken and until a cycle was committed, by round."""
    took = []
    leader = await ReplicaProcess.start(url, size)
    follower = leader
    try:
        await leader.says(COMMITTED)
        for _ in range(rounds):
            follower = await ReplicaProcess.start(url, size)
            # At any moment between two renewals.
            await asyncio.sleep(dice.uniform(2, 6))
            began = time.perf_counter()
            await leader.kill()
            await follower.says(LEADING)
            taken_s = time.perf_counter() - began
            await follower.says(COMMITTED)
            took.append((taken_s, time.perf_counter() - began))
            leader = follower
    finally:
        for process in {leader, follower}:
            await process.kill()
    return took


def report(took: Sequence[tuple[float, float]], size: CrowdSize, queued: int) -> None:
    table = Table("kill of the leader", "s until another leads", "… has committed a cycle")
    for number, seconds in enumerate(took, 1):
        table.add_row(str(number), *map(figure, seconds))
    slowest = max(committed_s for _, committed_s in took)
    show(
        table,
        f"{queued:,} queued, {size.vms:,} VMs, {size.clusters} clusters; lease "
        f"{Timers().leader_lease_s:g} s. Target: {TARGET_S:g} s ({verdict(slowest, TARGET_S)}).",
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queued", type=int, default=1_000_000)
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--vms", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replica", help=argparse.SUPPRESS)
    args = parser.parse_args()
    configure_logs("error")
    size = CrowdSize(args.tenants, args.clusters, args.vms)
    if args.replica:
        asyncio.run(replicate(args.replica, size))
        return 0
    with postgres_server("zen-takeover-", fsync=False) as (_, server):
        url = fresh_database(server, "takeover")
        fill_queue(url, size, 1, args.queued)
        renew(url, size)
        took = asyncio.run(measure(url, size, args.rounds, random.Random(1)))
    report(took, size, args.queued)
    tell(takeover_s=max(committed_s for _, committed_s in took))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
