"""Races on the real database: what several parts want to write at the same moment.

    python -m bench.races [--stops 1000] [--drains 1000] [--submits 20] [--seed 1]

- stops: people stop jobs while their VMs' beats (claimed, running, ended) come in.
- drains: the cluster manager gives idle VMs back while the loop places new jobs on them.
- submits: the same submission 50 times at once, half over REST, half as messages.

The parts are the service's own (loop, relay, cluster manager, API, intake) over PostgreSQL; the
bus and the cloud are in memory, so that a hundred thousand races take minutes. Exit code 1 if
anything ended as it must not.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import httpx
from rich.table import Table

from bench.report import figure, show
from core.capacity import (
    ClusterSpec,
    Create,
    Delete,
    Member,
    MigSnapshot,
    RegionSpec,
    Vm,
    VmState,
    move_vm,
    take_lease,
)
from core.changes import Change, Committed, JobMove, NewJob, NewVm, Unit, View, VmMove
from core.clock import SystemClock
from core.errors import CloudRefused, StoreDown
from core.ids import RandomIds
from core.job import E, Job, JobSpec, Lease, Rules, advance, entry_for, new_job
from core.messages import BeatStatus, Heartbeat, InMessage, OutMessage, StopJob
from core.names import Names
from core.submission import content_hash
from core.timers import Timers
from db import migrate
from db.audit import Audit, audit
from db.embedded import EmbeddedPostgres
from db.reads import PostgresReads
from db.store import PostgresStore
from db.submit import GroupCommit
from messaging.codec import decode_control, encode_heartbeat
from migs.manager import MigManager
from orchestrator.manager import ClusterManager, Wiring
from scheduler.api.app import create_app
from scheduler.api.services import Services
from scheduler.dbclock import DatabaseClock
from scheduler.inbox import Inbox
from scheduler.intake import SubmissionIntake
from scheduler.leadership import Leadership
from scheduler.logs import configure_logs
from scheduler.loop import LoopParts, SchedulerLoop
from scheduler.metrics import Metrics
from scheduler.relay import Relay
from scheduler.stop import stop_job
from scheduler.submit import Submissions

B = BeatStatus
NAMES = Names()
# An idle VM is given back at once, so that every job that comes races with the drain.
TIMERS = Timers(idle_timeout_s=0.001, observe_s=0.001, loop_interval_s=0.05)
RULES = Rules(TIMERS)
REGION = "us-central1"
SPEC = ClusterSpec(
    name="1xl4",
    gpu_type="l4",
    gpus=1,
    machine_type="g2-standard-4",
    vm_max=100_000,
    regions=(RegionSpec(REGION, (f"{REGION}-a",), 1.0, 0.5),),
)
BATCH = 100
SAME = 50
WAIT_S = 30.0


@dataclass(slots=True)
class Result:
    """What came of many races of one kind."""

    kind: str
    races: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    collisions: int = 0
    """Writes that a guard refused: the races that were really met."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


class CountingStore:
    """The store, and how often its guards said no."""

    def __init__(self, inner: PostgresStore) -> None:
        self._inner = inner
        self.refused = 0
        self.lead = inner.lead
        self.resign = inner.resign
        self.view = inner.view
        self.find_job = inner.find_job
        self.content_hash = inner.content_hash
        self.outbox = inner.outbox
        self.published = inner.published
        self.prune = inner.prune

    async def commit(self, units: Sequence[Unit], term: int | None) -> Committed:
        done = await self._inner.commit(units, term)
        self.refused += len(done.refusals)
        return done


class Line:
    """An open subscription of the bus in memory."""

    def __init__(self, queue: asyncio.Queue[InMessage]) -> None:
        self._queue = queue

    async def batches(self) -> AsyncIterator[Sequence[InMessage]]:
        while True:
            yield [await self._queue.get()]

    async def ack(self, ack_ids: Sequence[str]) -> None: ...
    async def nack(self, ack_ids: Sequence[str]) -> None: ...
    async def close(self) -> None: ...


class MemoryBus:
    """Heartbeats go into one queue; a stop wakes the worker whose lease it names."""

    def __init__(self) -> None:
        self.beats: asyncio.Queue[InMessage] = asyncio.Queue()
        self.stops: dict[str, asyncio.Event] = {}
        self._count = 0

    async def publish(
        self,
        messages: Sequence[OutMessage],
        timeout_s: float,  # noqa: ARG002  # the port's
    ) -> Sequence[str]:
        return [self._one(message) for message in messages]

    def _one(self, message: OutMessage) -> str:
        self._count += 1
        number = str(self._count)
        now = SystemClock().now()
        got = InMessage(number, number, now, message.body, message.attributes)
        if message.topic == NAMES.heartbeat_topic:
            self.beats.put_nowait(got)
        elif message.topic == NAMES.control_topic:
            order = decode_control(got)
            if isinstance(order, StopJob) and order.lease_id in self.stops:
                self.stops[order.lease_id].set()
        return number

    def subscribe(self, subscription: str, *, max_messages: int = 1000) -> Line:  # noqa: ARG002
        return Line(self.beats)


class MemoryCloud:
    """One group; it deletes what it is told to, and looks first whether somebody works there."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.members: dict[str, str] = {}
        self.deleted = 0
        self.leased_deleted: list[str] = []

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        members = tuple(
            Member(name, f"{region}-a", "NONE", "RUNNING", instance_id)
            for name, instance_id in self.members.items()
        )
        now = SystemClock().now()
        return MigSnapshot(mig, cluster, region, len(members), True, members, now)

    async def create(self, mig: str, action: Create) -> None:  # noqa: ARG002  # the port's
        raise CloudRefused("this cloud only takes back")

    async def delete(self, mig: str, action: Delete) -> None:  # noqa: ARG002  # the port's
        view = await self._store.view(0)
        held = {job.lease.vm_name for job in view.jobs if job.lease is not None}
        held |= {vm.name for vm in view.vms if vm.leases}
        self.leased_deleted += [name for name in action.names if name in held]
        for name in action.names:
            self.deleted += self.members.pop(name, None) is not None


class StillOrchestrator:
    """The managers are run by the race itself."""

    def poke(self, view: View) -> None: ...


class House:
    """The leader's parts over the real database."""

    def __init__(self, url: str, seed: int) -> None:
        self.dice = random.Random(seed)
        self.ids = RandomIds(self.dice)
        self.clock = DatabaseClock(SystemClock())
        self._leaders = PostgresStore(url)
        self.api = PostgresStore(url)
        self.store = CountingStore(self._leaders)
        self.bus = MemoryBus()
        self.cloud = MemoryCloud(self.api)
        self.leadership = Leadership(self.store, "racer", TIMERS, self.clock)
        self.relay = Relay(self.store, self.bus, self.leadership, self.clock, 0.05)
        self.inbox = Inbox(self.bus, NAMES.heartbeat_subscription, self._wake)
        self.loop = SchedulerLoop(self._parts())
        self.manager = ClusterManager(SPEC, self._wiring())

    def _wake(self) -> None:
        self.loop.poke()

    def _parts(self) -> LoopParts:
        return LoopParts(
            store=self.store,
            bus=self.bus,
            inbox=self.inbox,
            relay=self.relay,
            leadership=self.leadership,
            orchestrator=StillOrchestrator(),  # type: ignore[arg-type]  # poke() is all that is used
            metrics=Metrics(),
            clusters=lambda: {SPEC.name: SPEC},
            rules=RULES,
            names=NAMES,
            ids=self.ids,
            clock=self.clock,
            queue_limit=1000,
        )

    def _wiring(self) -> Wiring:
        return Wiring(
            store=self.store,
            names=NAMES,
            timers=TIMERS,
            ids=self.ids,
            clock=self.clock,
            term=self.leadership.term,
            mig_of=lambda cluster, region: MigManager("mig", cluster, region, self.cloud),
            on_cloud_call=Metrics().cloud_call,
        )

    # --- making --------------------------------------------------------------------------

    def new_vm(self, now: datetime) -> tuple[Vm, list[Change]]:
        """A VM whose worker is ready, and the changes that make it."""
        uid = self.ids.uid(now)
        vm = Vm(
            uid=uid,
            name=f"{NAMES.vm_base(SPEC.name, REGION)}-{uid[-12:]}",
            cluster=SPEC.name,
            region=REGION,
            state=VmState.REQUESTED,
            version=1,
            request_id=self.ids.request_id(),
            gpus=1,
            spot=False,
            usd_per_hour=1.0,
            requested_at=now,
            state_since=now,
        )
        # Its id and zone are still to be learned by observation: one more step that races.
        awake = move_vm(vm, VmState.READY, now, "ready", boot_nonce="boot")
        self.cloud.members[vm.name] = uid[-6:]
        return awake, [NewVm(vm, SPEC.vm_max), VmMove(vm, awake)]

    def new_job(self, now: datetime) -> tuple[Job, list[Change]]:
        uid = self.ids.uid(now)
        job = new_job(uid, JobSpec(job_id=f"race-{uid[-12:]}", command=("true",)), SPEC.name, now)
        entry = entry_for(None, job, E.SUBMITTED)
        return job, [NewJob(job, entry, content_hash(job.spec))]

    def new_placed(self, now: datetime) -> tuple[Job, list[Change]]:
        """A job on a VM, its start just sent."""
        vm, changes = self.new_vm(now)
        job, more = self.new_job(now)
        changes += more
        lease = Lease(self.ids.token(), vm.name, vm.uid, REGION, vm.zone, (0,))
        for event in (E.ADMITTED, E.PLACED):
            after = advance(job, event, now, RULES, lease=lease if event is E.PLACED else None)
            changes.append(JobMove(job, after, (entry_for(job, after, event),)))
            job = after
        changes.append(VmMove(vm, take_lease(vm, lease.lease_id)))
        return job, changes

    async def put(self, units: Sequence[Sequence[Change]]) -> None:
        done = await self.api.commit([tuple(unit) for unit in units], None)
        assert done.all_applied, done.refusals

    async def pause(self, most_ms: float) -> None:
        await asyncio.sleep(self.dice.random() * most_ms / 1000)

    async def now(self) -> datetime:
        return (await self.api.view(0)).now

    async def open(self) -> None:
        await self._leaders.open()
        await self.api.open()
        await self.leadership.renew()

    async def close(self) -> None:
        await self._leaders.close()
        await self.api.close()


@asynccontextmanager
async def house_on(url: str, seed: int) -> AsyncIterator[House]:
    """Leads until left; its loop, relay and letter box run meanwhile."""
    house = House(url, seed)
    await house.open()
    tasks = [
        asyncio.create_task(part)
        for part in (
            house.leadership.keep(),
            house.relay.run(),
            house.inbox.fill(),
        )
    ]
    try:
        yield house
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await house.close()


# --- stops against beats ------------------------------------------------------------------


async def race_stops(url: str, count: int, seed: int) -> Result:
    """Every job must end CANCELLED or SUCCEEDED, with a history that the table allows."""
    result = Result("stop against beats")
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
        _judge(await audit(house.api), result)
    result.seconds = time.perf_counter() - began
    return result


async def _stop_batch(house: House, size: int, result: Result) -> None:
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
    natural_s = house.dice.random() * 0.15
    try:
        async with asyncio.timeout(natural_s):
            await stop.wait()
    except TimeoutError:
        await _say(house, job, lease, B.COMPLETED, exit_code=0)
    else:
        await _say(house, job, lease, B.STOPPED, exit_code=143)


async def _say(
    house: House, job: Job, lease: Lease, status: BeatStatus, exit_code: int | None = None
) -> None:
    beat = Heartbeat(
        status=status,
        vm_name=lease.vm_name,
        job_id=job.spec.job_id,
        attempt=job.attempt,
        lease_id=lease.lease_id,
        boot_nonce="boot",
        exit_code=exit_code,
    )
    await house.bus.publish([encode_heartbeat(beat, NAMES)], 1.0)


async def _stop(house: House, job: Job) -> None:
    await house.pause(40)
    await _insist(house, job)


async def _insist(house: House, job: Job) -> None:
    """As a caller should: a busy database is asked again."""
    deadline = time.perf_counter() + WAIT_S
    while True:
        try:
            now = house.clock.now()
            await stop_job(house.api, job.spec.job_id, "0", "raced", RULES, NAMES, now)
        except StoreDown:
            if time.perf_counter() > deadline:
                raise
        else:
            return


async def _until_ended(house: House, jobs: Sequence[Job], result: Result) -> None:
    deadline = time.perf_counter() + WAIT_S
    left = {job.uid for job in jobs}
    while left:
        house.loop.poke()
        view = await house.api.view(0)
        left &= {job.uid for job in view.jobs}
        if left and time.perf_counter() > deadline:
            stuck = [f"{j.spec.job_id} {j.status}" for j in view.jobs if j.uid in left]
            result.faults.append(f"not ended after {WAIT_S:g} s: {', '.join(stuck[:5])}")
            return
        await asyncio.sleep(0.005)


# --- drains against placements ------------------------------------------------------------


async def race_drains(url: str, count: int, seed: int) -> Result:
    """Each VM either serves a job or is given back; none that serves is deleted."""
    result = Result("drain against placement")
    began = time.perf_counter()
    async with house_on(url, seed) as house:
        while result.races < count:
            await _drain_batch(house, min(BATCH, count - result.races), result)
        result.outcomes["VMs deleted"] = house.cloud.deleted
        result.collisions = house.store.refused
        if lost := house.cloud.leased_deleted:
            result.faults.append(f"{len(lost)} leased VMs deleted, e.g. {lost[0]}")
        _judge(await audit(house.api), result)
    result.seconds = time.perf_counter() - began
    return result


async def _drain_batch(house: House, size: int, result: Result) -> None:
    """As many idle VMs as new jobs; loop and manager look at them at the same moment."""
    now = await house.now()
    vms = [house.new_vm(now) for _ in range(size)]
    jobs = [house.new_job(now) for _ in range(size)]
    await house.put([changes for _, changes in vms])
    await house.put([changes for _, changes in jobs])

    async def place() -> None:
        await house.pause(150)
        await house.loop.turn()

    await asyncio.gather(house.manager.reconcile(), place())
    # What was drained is deleted now, while the next turn would place again if it could.
    await asyncio.gather(house.manager.reconcile(), place())
    view = await house.api.view(1000)
    placed = [job for job in view.jobs if job.lease is not None]
    result.outcomes["placed"] += len(placed)
    for job in placed:
        assert job.lease is not None
        await _say(house, job, job.lease, B.COMPLETED, exit_code=0)
    waiting = [job for job in view.jobs if job.lease is None]
    for job in waiting:
        await _insist(house, job)
    deadline = time.perf_counter() + WAIT_S
    while (await house.api.view(1000)).jobs and time.perf_counter() < deadline:
        await house.loop.turn()
    await _clear_fleet(house, result)
    result.races += size


async def _clear_fleet(house: House, result: Result) -> None:
    deadline = time.perf_counter() + WAIT_S
    while (await house.api.view(0)).vms:
        await house.manager.reconcile()
        if time.perf_counter() > deadline:
            result.faults.append(f"VMs left after {WAIT_S:g} s")
            return


# --- the same submission, many times ------------------------------------------------------


async def race_submits(url: str, rounds: int, seed: int) -> Result:
    """Fifty at once over two replicas and two doors: one job, and every answer is the same."""
    result = Result(f"{SAME} equal submissions at once")
    began = time.perf_counter()
    stores = [PostgresStore(url), PostgresStore(url)]
    replicas = []
    for store in stores:
        await store.open()
        replicas.append(_replica(store, seed))
    try:
        for number in range(rounds):
            await _submit_round(number, replicas, result)
        judged = await audit(stores[0])
        letters = (await PostgresReads(stores[0]).dead_letters(None, 10, None)).total
    finally:
        for store in stores:
            await store.close()
    if len(judged.jobs) != rounds:
        result.faults.append(f"{len(judged.jobs)} jobs came of {rounds} submissions")
    if letters:
        result.faults.append(f"{letters} of the repeats became dead letters")
    result.faults += judged.faults()
    result.seconds = time.perf_counter() - began
    return result


@dataclass(frozen=True, slots=True)
class Door:
    """One replica's two ways in."""

    http: httpx.AsyncClient
    intake: SubmissionIntake


def _replica(store: PostgresStore, seed: int) -> Door:
    clock, ids = SystemClock(), RandomIds(random.Random(f"{seed} {id(store)}"))
    submissions = Submissions(GroupCommit(store).submit, store, lambda: [SPEC], TIMERS, clock, ids)

    async def readiness() -> Mapping[str, str]:
        return {}

    services = Services(
        store=store,
        reads=PostgresReads(store),
        submissions=submissions,
        clusters=lambda: [SPEC],
        rules=RULES,
        names=NAMES,
        clock=clock,
        ids=ids,
        metrics=Metrics(),
        readiness=readiness,
    )
    transport = httpx.ASGITransport(create_app(services))
    intake = SubmissionIntake(MemoryBus(), "submit", submissions, store, clock)
    return Door(httpx.AsyncClient(transport=transport, base_url="http://zen"), intake)


async def _submit_round(number: int, doors: Sequence[Door], result: Result) -> None:
    """Known by an id of its own, or by an idempotency key, in turns."""
    by_key = number % 2 == 1
    wish = b'{"command": ["true"], "gpu_type": "l4"' + (
        b"}" if by_key else b', "job_id": "same-%d"}' % number
    )
    key = f"key-{number}"

    async def rest(door: Door) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"} | (
            {"Idempotency-Key": key} if by_key else {}
        )
        answer = await door.http.post("/api/v1/jobs", content=wish, headers=headers)
        return answer.status_code, answer.content

    async def message(door: Door, n: int) -> None:
        name = f"{number}-{n}"
        attributes = {"idempotency_key": key} if by_key else {}
        await door.intake.accept(InMessage(name, name, SystemClock().now(), wish, attributes))

    half = SAME // 2
    answers, _ = await asyncio.gather(
        asyncio.gather(*(rest(doors[n % 2]) for n in range(half))),
        asyncio.gather(*(message(doors[n % 2], n) for n in range(half))),
    )
    distinct = set(answers)
    if len(distinct) != 1 or answers[0][0] != 201:
        result.faults.append(f"round {number}: {len(distinct)} different answers: {distinct}")
    result.races += 1
    result.outcomes["equal answers"] += len(distinct) == 1


# --- judging ------------------------------------------------------------------------------


def _judge(found: Audit, result: Result) -> None:
    for job in found.jobs:
        result.outcomes[str(job.status)] += 1
        if job.status not in ("CANCELLED", "SUCCEEDED"):
            result.faults.append(f"{job.job_id} ended {job.status}")
    result.faults += found.faults()


async def run_all(url: str, args: argparse.Namespace) -> list[Result]:
    """Each on a database of its own, so that one's rows do not slow the next."""
    return [
        await race_stops(_fresh(url, "stops"), args.stops, args.seed),
        await race_drains(_fresh(url, "drains"), args.drains, args.seed),
        await race_submits(_fresh(url, "submits"), args.submits, args.seed),
    ]


def _fresh(url: str, name: str) -> str:
    import psycopg  # noqa: PLC0415  # only the command makes databases

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    base, _, query = url.partition("?")
    fresh = f"{base.rpartition('/')[0]}/{name}?{query}"
    migrate.upgrade(fresh)
    return fresh


def table_of(results: Sequence[Result]) -> Table:
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
    with tempfile.TemporaryDirectory(prefix="zen-races-") as directory:
        server = EmbeddedPostgres(Path(directory) / "pg", fsync=False)
        try:
            results = asyncio.run(run_all(server.start(), args))
        finally:
            server.stop()
    show(table_of(results), "met: writes that a guard refused because the other side was faster.")
    faults = [f"{result.kind}: {fault}" for result in results for fault in result.faults]
    for fault in faults[:20]:
        print(f"FAULT: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
