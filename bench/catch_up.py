"""How fast a leader works off the heartbeats that waited for it.

    python -m bench.catch_up [--vms 1000] [--heartbeats 50] [--no-fsync]

A bus in a process of its own holds `heartbeats` reports of each of `vms` workers with a running
job. Then a replica of the service begins to lead: the real one, over PostgreSQL and Google's
Pub/Sub client; only the cloud below it is in memory. The clock stops when the database shows the
last report of every worker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from google.pubsub_v1 import types
from rich.table import Table

from bench.figures import tell
from bench.house import NAMES, RULES, SPEC, House, MemoryCloud, fresh_database, on_uvloop
from bench.local import ROOT, ended, postgres_server, undisturbed
from bench.proven import SIGNER, MadeSubscriptions, prover
from bench.report import figure, show
from config.settings import Settings
from core.changes import Change, JobMove
from core.clock import SystemClock
from core.ids import RandomIds
from core.job import E, Job
from core.job_steps import advance, entry_for
from core.messages import GpuReading, Heartbeat, HeartbeatStatus, Progress, VmReadings
from core.ports import Cloud
from core.timers import Timers
from db.notifications import Listener
from db.store import PostgresStore
from messaging.codec import encode_heartbeat
from messaging.pubsub import PubSubBus
from scheduler.operations.logs import configure_logs
from scheduler.operations.metrics import Metrics
from scheduler.replica import Adapters, Replica
from scheduler.submission.group_commit import GroupCommit
from sim.virtual.setting import settings

PROJECT = "bench"
TARGET_PER_S = 5_000
ROWS_PER_COMMIT = 500
WAIT_S = 120.0
POLL_S = 0.02
TOLD = ("per_s", "per_cpu_s")


@dataclass(frozen=True, slots=True)
class _CatchUpFigures:
    """What one run gave."""

    messages: int
    led_s: float
    """From the start of the replica to the first cycle that may read."""
    caught_up_s: float
    cpu_s: float
    """Of this process alone. On a machine that has other work the wall clock says little; what
    the service itself needs for a report stays true."""

    @property
    def per_s(self) -> float:
        return self.messages / self.caught_up_s

    @property
    def per_cpu_s(self) -> float:
        return self.messages / self.cpu_s


@contextlib.contextmanager
def bus_process(directory: Path, *, fsync: bool) -> Iterator[str]:
    """Its address."""
    words = ["--port", "0", "--data-dir", str(directory), *([] if fsync else ["--no-fsync"])]
    process = subprocess.Popen(
        [sys.executable, "-m", "localbus", *words], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield str(json.loads(process.stdout.readline())["grpc"])
    finally:
        with undisturbed():
            process.terminate()
            ended(process)


async def make_topics(bus: PubSubBus) -> None:
    for topic in (NAMES.heartbeat_topic, NAMES.control_topic, NAMES.submit_topic):
        await bus.publisher.create_topic(name=bus.topic_path(topic))
    for subscription, topic in (
        (NAMES.heartbeat_subscription, NAMES.heartbeat_topic),
        (NAMES.submit_subscription, NAMES.submit_topic),
    ):
        request = types.Subscription(
            name=bus.subscription_path(subscription),
            topic=bus.topic_path(topic),
            ack_deadline_seconds=60,
        )
        await bus.subscriber.create_subscription(request)


async def running_jobs(house: House, count: int) -> list[Job]:
    """As many VMs, each with a job that runs."""
    jobs: list[Job] = []
    for first in range(0, count, ROWS_PER_COMMIT):
        now = await house.now()
        batches: list[Sequence[Change]] = []
        for _ in range(first, min(count, first + ROWS_PER_COMMIT)):
            job, changes = house.new_placed(now)
            for event in (E.CLAIMED, E.STARTED):
                after = advance(job, event, now, RULES)
                changes.append(JobMove(job, after, (entry_for(job, after, event),)))
                job = after
            jobs.append(job)
            batches.append(changes)
        await house.put(batches)
    return jobs


async def _observed(house: House) -> None:
    """The cloud has been looked at before: what it shows is no news to the next leader."""
    await house.store.open()
    try:
        await house.leadership.renew()
        await house.manager.reconcile()
        await house.leadership.resign()
    finally:
        await house.store.close()


async def fill(bus: PubSubBus, jobs: Sequence[Job], heartbeats: int) -> datetime:
    """The backlog. Returns a moment before the last report of each was published."""
    last = SystemClock().now()
    for number in range(heartbeats):
        last = SystemClock().now()
        messages = [
            prover("boot").authenticated(encode_heartbeat(_heartbeat(job, number + 1), NAMES))
            for job in jobs
        ]
        await bus.publish(messages, 60.0)
    return last


def _heartbeat(job: Job, number: int) -> Heartbeat:
    assert job.lease is not None
    return Heartbeat(
        status=HeartbeatStatus.RUNNING,
        vm_name=job.lease.vm_name,
        job_id=job.spec.job_id,
        user_id=job.spec.user_id,
        attempt=job.attempt,
        lease_id=job.lease.lease_id,
        boot_nonce="boot",
        seq=number,
        readings=VmReadings((GpuReading(0, 0.9, 61.0),)),
        progress=Progress(number, 100),
    )


def _settings(url: str, bus: str) -> Settings:
    return replace(
        settings(),
        project=PROJECT,
        names=NAMES,
        clusters=(SPEC,),
        timers=Timers(),
        database_url=url,
        pubsub_host=bus,
    )


async def catch_up(url: str, bus_host: str, vms: int, heartbeats: int) -> _CatchUpFigures:
    """One run."""
    bus = PubSubBus(PROJECT, emulator_host=bus_host)
    store = PostgresStore(url, name="catch-up")
    house = House(url, seed=1)
    for opened in (store, house.api):
        await opened.open()
    try:
        await make_topics(bus)
        jobs = await running_jobs(house, vms)
        await _observed(house)
        since = await fill(bus, jobs, heartbeats)
        replica = _replica(_settings(url, bus_host), store, bus, house.cloud)
        began = time.perf_counter()
        replica.start()
        try:
            await _until(lambda: _true(replica.leadership.leading), "the replica leads")
            led, cpu = time.perf_counter(), time.process_time()
            await _until(lambda: _all_heard(store, since, vms), "all is heard")
            done, spent = time.perf_counter(), time.process_time() - cpu
        finally:
            await replica.stop()
        return _CatchUpFigures(vms * heartbeats, led - began, done - led, spent)
    finally:
        await bus.close()
        for opened in (store, house.api):
            await opened.close()


def _replica(
    settings: Settings, store: PostgresStore, bus: PubSubBus, cloud: MemoryCloud
) -> Replica:
    adapters = Adapters(
        store=store,
        bus=bus,
        clouds={"mig": Cloud(lambda _: cloud)},
        write=GroupCommit(store).submit,
        wakeups=Listener(settings.database_url).wakeups,
        clock=SystemClock(),
        ids=RandomIds(),
        keys=SIGNER,
        subscriptions=MadeSubscriptions(),
    )
    return Replica(settings, adapters, Metrics(), "catch-up")


async def _true(value: bool) -> bool:
    return value


async def _all_heard(store: PostgresStore, since: datetime, vms: int) -> bool:
    async with store.connection() as connection:
        query = "SELECT count(*) FROM vms WHERE last_beat_at > %s"
        row = await (await connection.execute(query, (since,))).fetchone()
    return row is not None and row[0] >= vms


async def _until(look: object, what: str) -> None:
    assert callable(look)
    deadline = time.perf_counter() + WAIT_S
    while not await look():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not within {WAIT_S:g} s: {what}")
        await asyncio.sleep(POLL_S)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vms", type=int, default=1000)
    parser.add_argument("--heartbeats", type=int, default=50, help="reports of each")
    parser.add_argument("--no-fsync", action="store_true", help="for disks that are very slow")
    args = parser.parse_args()
    configure_logs("critical")
    fsync = not args.no_fsync
    with postgres_server("zen-catch-up-", fsync=fsync) as (directory, server):
        url = fresh_database(server, "catch_up")
        with bus_process(directory / "bus", fsync=fsync) as bus:
            found = on_uvloop(catch_up(url, bus, args.vms, args.heartbeats))
    table = Table("workers", "reports that waited", "s", "per second", "demanded", "per CPU second")
    table.add_row(
        f"{args.vms:,}",
        f"{found.messages:,}",
        figure(found.caught_up_s),
        figure(found.per_s),
        f"{TARGET_PER_S:,}",
        figure(found.per_cpu_s),
    )
    tell(per_s=found.per_s, per_cpu_s=found.per_cpu_s)
    show(table, f"The replica led {figure(found.led_s)} s after its start.")
    return 0 if found.per_s >= TARGET_PER_S else 1


if __name__ == "__main__":
    sys.exit(main())
