"""Jobs that come and go at a steady rate through a real replica: `bench.stored_bytes --minutes`.

The replica leads over a real database; submissions go through its own door and are audited, starts
and stops through its relay. The workers are pretended (bench/fleet.py): their messages are real and
signed, and cost little, so that a rate of 100 jobs a second leaves a core for others.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import psutil
import psycopg

from bench.crowd import NAMES, CrowdSize, renew
from bench.decide import settings_for
from bench.fleet import BenchFleet, FleetPace
from bench.house import fresh_database, on_uvloop
from bench.local import postgres_server
from bench.proven import SIGNER, MadeSubscriptions
from core.access import EVERY_TENANT, Tenants
from core.audit_log import Actor
from core.clock import SystemClock
from core.groups import Owner
from core.ids import RandomIds
from core.ports import Cloud
from db.audit_log import PostgresAuditLog
from db.notifications import Listener
from db.store import PostgresStore
from scheduler.operations.logs import configure_logs
from scheduler.operations.metrics import Metrics
from scheduler.replica import Adapters, Replica
from scheduler.submission.group_commit import GroupCommit
from scheduler.submission.submit import Submissions

SIZE = CrowdSize(tenants=20, clusters=4, vms=80)
ENDS_PER_BUSY_VM = 2.0
"""A job runs half a second, on the average."""
SAMPLE_S = 10.0
_SEEN = """
SELECT (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c
        WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace)::bigint,
    sum(n_live_tup)::bigint, sum(n_dead_tup)::bigint,
    (SELECT coalesce(sum(counted), 0) FROM job_counts
        WHERE tenant_id = '' AND status = 'SUCCEEDED')::bigint,
    (SELECT coalesce(sum(counted), 0) FROM job_counts
        WHERE tenant_id = '' AND status = 'QUEUED')::bigint
FROM pg_stat_user_tables
"""


@dataclass(frozen=True, slots=True)
class ChurnSample:
    """How it stands at one moment."""

    minutes: float
    jobs: int
    """That have ended."""
    queued: int
    db_mb: float
    live_rows: int
    dead_rows: int
    rss_mb: float

    @property
    def dead_share(self) -> float:
        return self.dead_rows / max(1, self.live_rows + self.dead_rows)


def sample(url: str, began: float, process: psutil.Process) -> ChurnSample:
    """The statistics of the server are a second old at most."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(_SEEN.encode()).fetchone()
    assert row is not None
    size, live, dead, ended, queued = row
    minutes = (time.monotonic() - began) / 60
    rss = process.memory_info().rss / 2**20
    return ChurnSample(minutes, ended, queued, size / 2**20, live, dead, rss)


@dataclass(frozen=True, slots=True)
class BenchSubmitter:
    """Who may submit for everybody."""

    actor: Actor
    tenants: Tenants = EVERY_TENANT

    def claim(self, named: Owner) -> Owner:
        return named


class SteadyArrivals:
    """So many submissions a second; a door that is late is not waited for, up to a bound."""

    def __init__(self, door: Submissions, per_s: float) -> None:
        self._door, self._per_s = door, per_s
        self._room = asyncio.Semaphore(200)

    async def come(self) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in count():
                await asyncio.sleep(max(0.0, began + number / self._per_s - time.monotonic()))
                await self._room.acquire()
                group.create_task(self._one(number))

    async def _one(self, number: int) -> None:
        try:
            body = {
                "command": ["true"],
                "cluster": f"c-{number % SIZE.clusters}",
                "tenant_id": f"tenant-{number * 7 % SIZE.tenants}",
                "user_id": "u",
            }
            by = BenchSubmitter(Actor("key:bench", "u", "127.0.0.1", f"{number:016x}"))
            await self._door.submit(body, idempotency_key=None, by=by)
        finally:
            self._room.release()


@asynccontextmanager
async def leading(url: str, fleet: BenchFleet) -> AsyncIterator[Replica]:
    store = PostgresStore(url, name="bench-leader", operation_s=120.0)
    await store.open()
    writer = GroupCommit(store)
    adapters = Adapters(
        store=store,
        bus=fleet,
        clouds={"mig": Cloud(lambda _: fleet)},
        write=writer.submit,
        wakeups=Listener(url).wakeups,
        clock=SystemClock(),
        ids=RandomIds(),
        keys=SIGNER,
        subscriptions=MadeSubscriptions(),
        audit_log=PostgresAuditLog(store),
    )
    replica = Replica(settings_for(SIZE), adapters, Metrics(), "bench-leader")
    replica.start()
    try:
        yield replica
    finally:
        await replica.stop()
        await writer.close()
        await store.close()


async def _run(url: str, minutes: float, per_s: float, seen: Callable[[ChurnSample], None]) -> None:
    pace = FleetPace(10.0, ENDS_PER_BUSY_VM * SIZE.vms)
    fleet = BenchFleet(NAMES, SIZE.workers(), pace)
    process = psutil.Process(os.getpid())
    async with leading(url, fleet) as replica:
        others = [
            asyncio.create_task(fleet.live(), name="fleet"),
            asyncio.create_task(SteadyArrivals(replica.submissions, per_s).come(), name="arrivals"),
        ]
        began = time.monotonic()
        try:
            while time.monotonic() - began < 60 * minutes:
                await asyncio.sleep(SAMPLE_S)
                seen(await asyncio.to_thread(sample, url, began, process))
                for task in others:
                    if task.done():
                        task.result()
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)


def churn(minutes: float, per_s: float, seen: Callable[[ChurnSample], None]) -> None:
    """A database of its own, made durable as a service's is."""
    configure_logs("error")
    with postgres_server("zen-churn-", fsync=True) as (_, server):
        url = fresh_database(server, "churn")
        renew(url, SIZE)
        on_uvloop(_run(url, minutes, per_s, seen))


def later(samples: Sequence[ChurnSample]) -> Sequence[ChurnSample]:
    """From minute 10 on, of a shorter run the second half: the beginning fills caches."""
    whole = samples[-1].minutes
    return [s for s in samples if s.minutes >= min(10.0, whole / 2)]
