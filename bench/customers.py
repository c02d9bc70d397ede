"""Who submits while a leader is measured: another replica's customers, whose jobs are simply there,
and the leader's own. Theirs are checked, given a cluster and a bound, written with others and
answered; each is timed from the moment at which it was due to come."""

from __future__ import annotations

import asyncio
import time
from itertools import count

from bench.crowd import CrowdSize
from bench.fleet import FleetPace
from core.changes import NewJob
from core.clock import SystemClock
from core.ids import RandomIds
from core.job import E
from core.job_fields import JobSpec
from core.job_steps import entry_for, new_job
from db.store import PostgresStore
from scheduler.submission.submit import Submissions


class Customers:
    """As many a second, whether the door keeps up or not."""

    def __init__(self, door: Submissions, size: CrowdSize, per_s: float) -> None:
        self._door, self._size, self._per_s = door, size, per_s
        self.took: list[float] = []
        self._open: set[asyncio.Task[None]] = set()

    async def come(self) -> None:
        began = time.perf_counter()
        try:
            for number in count():
                due = began + number / self._per_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                task = asyncio.create_task(self._one(number, due), name="customer")
                self._open.add(task)
                task.add_done_callback(self._open.discard)
        finally:
            await asyncio.gather(*self._open)

    async def _one(self, number: int, due: float) -> None:
        tenant = f"tenant-{number * 7 % self._size.tenants}"
        cluster = f"c-{number % self._size.clusters}"
        body = {"command": ["true"], "cluster": cluster, "tenant_id": tenant, "user_id": "u"}
        await self._door.submit(body, idempotency_key=None)
        self.took.append((time.perf_counter() - due) * 1e3)


async def submit_for_ever(url: str, size: CrowdSize, pace: FleetPace) -> None:
    """Through a store of its own, as another replica would."""
    store, ids, clock = PostgresStore(url, name="bench-api"), RandomIds(), SystemClock()
    await store.open()
    number = 0
    try:
        while True:
            number += 1
            now, tenant = clock.now(), f"tenant-{number * 7 % size.tenants}"
            uid = ids.uid(now)
            spec = JobSpec(job_id=f"new-{uid}", user_id="u", tenant_id=tenant, command=("true",))
            job = new_job(uid, spec, f"c-{number % size.clusters}", now)
            await store.commit([(NewJob(job, entry_for(None, job, E.SUBMITTED), "h"),)], None)
            await asyncio.sleep(1 / pace.ends_per_s)
    finally:
        await store.close()
