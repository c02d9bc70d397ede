"""Races on the real database: what several parts want to write at the same moment.

    python -m bench.races [--stops 1000] [--drains 1000] [--submits 20] [--seed 1]

- stops: people stop jobs while their VMs' heartbeats (claimed, running, ended) come in.
- drains: the cluster manager gives idle VMs back while the loop places new jobs on them.
- submits: the same submission 50 times at once, half over REST, half as messages.

The parts are the service's own (loop, relay, cluster manager, API, intake) over PostgreSQL; the
bus and the cloud are in memory, so that a hundred thousand races take minutes. Exit code 1 if
anything ended as it must not.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

from rich.table import Table

from bench.house import NAMES, RULES, House, drop_database, fresh_database, house_on
from bench.local import postgres_server
from bench.proven import signed
from bench.race_submits import race_submits
from bench.report import RaceResult, figure, show
from core.errors import StoreDown
from core.history_check import HistoryCheck
from core.job import Job, Lease
from core.messages import Heartbeat, HeartbeatStatus
from db.history_check import check_history
from scheduler.operations.logs import configure_logs
from scheduler.operations.stop import StopRequest, stop_job

B = HeartbeatStatus
BATCH = 100
WAIT_S = 30.0
PORTION = 10_000
Race = Callable[[str, int, int], Awaitable[RaceResult]]
"""For jobs and VMs to end."""
BUSY_S = 30.0
"""For a database that is busy."""


# --- stops against heartbeats ------------------------------------------------------------------


async def race_stops(url: str, count: int, seed: int) -> RaceResult:
    """Every job must end CANCELLED or SUCCEEDED, with a history that the table allows."""
    result = RaceResult("stop against heartbeats")
    began = time.perf_counter()
    async with house_on(url, seed) as house:
        turning = asyncio.create_task(house.loop.run())
        try:
            while result.races < count:
                await _stop_batch(house, min(BATCH, count - result.races), result)
        finally:
            turning.cancel()
            await asyncio.gather(turning, return_exceptions=True)
        result.collisions = house.store.refused
        _judge(await check_history(house.api), result)
    result.seconds = time.perf_counter() - began
    return result


async def _stop_batch(house: House, size: int, result: RaceResult) -> None:
    now = await house.now()
    made = [house.new_placed(now) for _ in range(size)]
    await house.put([changes for _, changes in made])
    jobs = [job for job, _ in made]
    for job in jobs:
        assert job.lease is not None
        house.bus.stops[job.lease.lease_id] = asyncio.Event()
    await asyncio.gather(*(_work(house, job) for job in jobs), *(_stop(house, job) for job in jobs))
    await _until_ended(house, jobs, result)
    house.bus.stops.clear()
    result.races += size


async def _work(house: House, job: Job) -> None:
    """A worker: claims, runs, ends by itself or when it is told to; its words come at any pace."""
    lease = job.lease
    assert lease is not None
    stop = house.bus.stops[lease.lease_id]
    for status in (B.FOUND_VM, B.RUNNING, B.RUNNING):
        await house.pause(8)
        await _say(house, job, lease, status)
    # Some end only when they are told to: on a slow machine the others may all be quicker.
    patient = house.dice.random() < 0.1
    natural_s = WAIT_S if patient else house.dice.random() * 0.15
    try:
        async with asyncio.timeout(natural_s):
            await stop.wait()
    except TimeoutError:
        await _say(house, job, lease, B.COMPLETED, exit_code=0)
    else:
        await _say(house, job, lease, B.STOPPED, exit_code=143)


async def _say(
    house: House, job: Job, lease: Lease, status: HeartbeatStatus, exit_code: int | None = None
) -> None:
    heartbeat = Heartbeat(
        status=status,
        vm_name=lease.vm_name,
        job_id=job.spec.job_id,
        attempt=job.attempt,
        lease_id=lease.lease_id,
        boot_nonce="boot",
        exit_code=exit_code,
    )
    await house.bus.publish([signed(heartbeat, NAMES)], 1.0)


async def _stop(house: House, job: Job) -> None:
    await house.pause(40)
    await _insist(house, job)


async def _insist(house: House, job: Job) -> None:
    """As a caller should: a busy database is asked again."""
    deadline = time.perf_counter() + BUSY_S
    while True:
        try:
            now = house.clock.now()
            request = StopRequest("raced", RULES, NAMES, now)
            await stop_job(house.api, job.key, request)
        except StoreDown:
            if time.perf_counter() > deadline:
                raise
        else:
            return


async def _until_ended(house: House, jobs: Sequence[Job], result: RaceResult) -> None:
    deadline = time.perf_counter() + WAIT_S
    left = {job.uid for job in jobs}
    while left:
        house.loop.poke()
        snapshot = await house.api.snapshot(0)
        left &= {job.uid for job in snapshot.jobs}
        if left and time.perf_counter() > deadline:
            stuck = [f"{j.spec.job_id} {j.status}" for j in snapshot.jobs if j.uid in left]
            result.faults.append(f"not ended after {WAIT_S:g} s: {', '.join(stuck[:5])}")
            return
        await asyncio.sleep(0.005)


# --- drains against placements ------------------------------------------------------------


async def race_drains(url: str, count: int, seed: int) -> RaceResult:
    """Each VM either serves a job or is given back; none that serves is deleted."""
    result = RaceResult("drain against placement")
    began = time.perf_counter()
    async with house_on(url, seed) as house:
        while result.races < count:
            await _drain_batch(house, min(BATCH, count - result.races), result)
        result.outcomes["VMs deleted"] = house.cloud.deleted
        result.collisions = house.store.refused
        if lost := house.cloud.leased_deleted:
            result.faults.append(f"{len(lost)} leased VMs deleted, e.g. {lost[0]}")
        _judge(await check_history(house.api), result)
    result.seconds = time.perf_counter() - began
    return result


async def _drain_batch(house: House, size: int, result: RaceResult) -> None:
    """As many idle VMs as new jobs; loop and manager look at them at the same moment."""
    now = await house.now()
    vms = [house.new_vm(now) for _ in range(size)]
    jobs = [house.new_job(now) for _ in range(size)]
    await house.put([changes for _, changes in vms])
    await house.put([changes for _, changes in jobs])

    async def place() -> None:
        await house.pause(150)
        await house.loop.cycle()

    # A slow machine might let the same one win every race: now and then one has it for itself.
    match result.races // BATCH % 5:
        case 3:
            await house.manager.reconcile()
        case 4:
            await house.loop.cycle()
    await asyncio.gather(house.manager.reconcile(), place())
    # What was drained is deleted now, while the next cycle would place again if it could.
    await asyncio.gather(house.manager.reconcile(), place())
    snapshot = await house.api.snapshot(1000)
    placed = [job for job in snapshot.jobs if job.lease is not None]
    result.outcomes["placed"] += len(placed)
    for job in placed:
        assert job.lease is not None
        await _say(house, job, job.lease, B.COMPLETED, exit_code=0)
    waiting = [job for job in snapshot.jobs if job.lease is None]
    for job in waiting:
        await _insist(house, job)
    deadline = time.perf_counter() + WAIT_S
    while (await house.api.snapshot(1000)).jobs and time.perf_counter() < deadline:
        await house.loop.cycle()
    await _clear_fleet(house, result)
    result.races += size


async def _clear_fleet(house: House, result: RaceResult) -> None:
    deadline = time.perf_counter() + WAIT_S
    while (await house.api.snapshot(0)).vms:
        await house.manager.reconcile()
        if time.perf_counter() > deadline:
            result.faults.append(f"VMs left after {WAIT_S:g} s")
            return


# --- judging ------------------------------------------------------------------------------


def _judge(found: HistoryCheck, result: RaceResult) -> None:
    for job in found.jobs:
        result.outcomes[str(job.status)] += 1
        if job.status not in ("CANCELLED", "SUCCEEDED"):
            result.faults.append(f"{job.job_id} ended {job.status}")
    result.faults += found.faults()


async def run_all(url: str, args: argparse.Namespace) -> list[RaceResult]:
    """In portions, each on a database of its own: rows of the last do not slow the next, and
    an observer sees how far it is."""
    wanted = ((race_stops, args.stops), (race_drains, args.drains), (race_submits, args.submits))
    return [await _portions(url, race, count, args.seed) for race, count in wanted if count]


async def _portions(url: str, race: Race, count: int, seed: int) -> RaceResult:
    whole: RaceResult | None = None
    for number, first in enumerate(range(0, count, PORTION)):
        name = f"{race.__name__}_{number}"
        size = min(PORTION, count - first)
        part = await race(fresh_database(url, name), size, seed + number)
        drop_database(url, name)
        whole = part if whole is None else whole.add(part)
        faults = f"{len(whole.faults)} faults"
        print(f"{whole.kind}: {whole.races:,} of {count:,}, {faults}", file=sys.stderr, flush=True)
    assert whole is not None
    return whole


def table_of(results: Sequence[RaceResult]) -> Table:
    table = Table("race", "times", "met", "seconds", "per second", "outcomes", "faults")
    for result in results:
        words = ", ".join(f"{n} {word}" for word, n in sorted(result.outcomes.items()))
        table.add_row(
            result.kind,
            f"{result.races:,}",
            f"{result.collisions:,}",
            figure(result.seconds),
            figure(result.races / result.seconds),
            words,
            str(len(result.faults)),
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stops", type=int, default=1000)
    parser.add_argument("--drains", type=int, default=1000)
    parser.add_argument("--submits", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    configure_logs("critical")  # a guard that says no is news to the service, and the point here
    with postgres_server("zen-races-", fsync=False) as (_, url):
        results = asyncio.run(run_all(url, args))
    show(table_of(results), "met: writes that a guard refused because the other side was faster.")
    faults = [f"{result.kind}: {fault}" for result in results for fault in result.faults]
    for fault in faults[:20]:
        print(f"FAULT: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
