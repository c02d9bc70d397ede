"""The leader's own parts over a real database, with a bus and a cloud in memory: for races and
other measurements that need no processes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import psycopg
import uvloop

from bench.proven import PROVEN, SIGNER, MadeSubscriptions
from config.live import LiveSettings
from core.actions import Create, Delete
from core.changes import AtomicBatch, Change, Committed, JobMove, NewJob, NewVm, Snapshot, VmMove
from core.clock import SystemClock
from core.cluster import ClusterSpec, RegionSpec
from core.errors import CloudRefused
from core.ids import RandomIds
from core.job import E, Job, Lease, Rules
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, entry_for, new_job
from core.messages import InMessage, OutMessage, StopJob
from core.mig import MachineState, ManagedInstance, MigSnapshot
from core.names import Names
from core.submission import content_hash
from core.timers import Timers
from core.vm import Vm, VmEvent, advance_vm, new_vm, take_lease
from db import migrate
from db.store import PostgresStore
from messaging.codec import decode_control
from messaging.proofs.control import SEALED
from migs.manager import MigManager
from orchestrator.cluster_manager import ClusterManager
from orchestrator.reconcile.context import Wiring
from scheduler.cycle.control_subscriptions import ControlSubscriptionCare
from scheduler.cycle.heartbeat_inbox import Inbox
from scheduler.cycle.leadership import DatabaseClock, Leadership
from scheduler.cycle.loop import LoopParts, SchedulerLoop
from scheduler.cycle.outbox_relay import Relay
from scheduler.cycle.worker_admission import WorkerAdmission
from scheduler.cycle.worker_checks import WorkerChecks
from scheduler.operations.metrics import Metrics
from sim.virtual.setting import settings

Result = TypeVar("Result")
NAMES = Names()
# An idle VM is given back at once, so that every job that comes races with the drain.
# The lease outlasts a machine that gives us no time: who leads is not what is measured here.
TIMERS = Timers(idle_timeout_s=0.001, observe_s=0.001, loop_interval_s=0.05, leader_lease_s=600.0)
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
SETTINGS = replace(settings(), names=NAMES, clusters=(SPEC,), timers=TIMERS, queue_limit=1000)


class CountingStore(PostgresStore):
    """The store, and how often its guards said no."""

    refused = 0

    async def commit(self, batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        done = await super().commit(batches, term)
        self.refused += len(done.refusals)
        return done


class MemorySubscription:
    """An open subscription of the bus in memory."""

    def __init__(self, queue: asyncio.Queue[InMessage]) -> None:
        self._queue = queue

    async def batches(self) -> AsyncIterator[Sequence[InMessage]]:
        while True:
            yield [await self._queue.get()]

    async def ack(self, ack_ids: Sequence[str]) -> None: ...
    async def nack(self, ack_ids: Sequence[str]) -> None: ...
    async def close(self) -> None: ...


class BenchBus:
    """Heartbeats go into one queue; a stop wakes the worker whose lease it names."""

    def __init__(self) -> None:
        self.heartbeats: asyncio.Queue[InMessage] = asyncio.Queue()
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
            self.heartbeats.put_nowait(got)
        elif message.topic == NAMES.control_topic:
            # Starts are sealed, and nobody here waits for one.
            order = decode_control(got) if SEALED not in message.attributes else None
            if isinstance(order, StopJob) and order.lease_id in self.stops:
                self.stops[order.lease_id].set()
        return number

    def subscribe(self, subscription: str, *, max_messages: int = 1000) -> MemorySubscription:  # noqa: ARG002
        return MemorySubscription(self.heartbeats)


class MemoryCloud:
    """One group; it deletes what it is told to, and looks first whether somebody works there."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.members: dict[str, str] = {}
        self.deleted = 0
        self.leased_deleted: list[str] = []

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        members = tuple(
            ManagedInstance(name, f"{region}-a", MachineState.RUNNING, instance_id)
            for name, instance_id in self.members.items()
        )
        now = SystemClock().now()
        return MigSnapshot(mig, cluster, region, len(members), True, members, now)

    async def create(self, mig: str, action: Create) -> None:  # noqa: ARG002  # the port's
        raise CloudRefused("this cloud only takes back")

    async def delete(self, mig: str, action: Delete) -> None:  # noqa: ARG002  # the port's
        snapshot = await self._store.snapshot(0)
        held = {job.lease.vm_name for job in snapshot.jobs if job.lease is not None}
        held |= {vm.name for vm in snapshot.vms if vm.leases}
        self.leased_deleted += [name for name in action.names if name in held]
        for name in action.names:
            self.deleted += self.members.pop(name, None) is not None


class StillOrchestrator:
    """The managers are run by the race itself."""

    def poke(self, snapshot: Snapshot, admitted: Mapping[str, Sequence[str]]) -> None: ...


class House:
    """The leader's parts over the real database."""

    def __init__(self, url: str, seed: int) -> None:
        self.dice = random.Random(seed)
        self.ids = RandomIds(self.dice)
        self.clock = DatabaseClock(SystemClock())
        self.store = CountingStore(url)
        self.api = PostgresStore(url)
        self.bus = BenchBus()
        self.cloud = MemoryCloud(self.api)
        self.settings = LiveSettings(SETTINGS)
        self.leadership = Leadership(self.store, "racer", self.settings, self.clock)
        self.relay = Relay(
            self.store,
            self.bus,
            self.leadership,
            self.clock,
            self.settings,
            lambda row: SIGNER.control(row, self.ids.seed()),
        )
        self.inbox = Inbox(self.bus, NAMES.heartbeat_subscription, self._wake, self._wake)
        self.checks = WorkerChecks(SIGNER, SETTINGS.project)
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
            settings=self.settings,
            ids=self.ids,
            clock=self.clock,
            checks=self.checks,
            admission=WorkerAdmission(
                {},
                self.checks,
                self.inbox.bring,
                ControlSubscriptionCare(MadeSubscriptions(), NAMES, self.clock),
                self.ids,
            ),
        )

    def _wiring(self) -> Wiring:
        return Wiring(
            store=self.store,
            names=NAMES,
            settings=self.settings,
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
        name = f"{NAMES.vm_base(SPEC.name, REGION)}-{uid[-12:]}"
        vm = new_vm(SPEC, REGION, uid=uid, name=name, now=now, reason="")
        vm = replace(vm, request_id=self.ids.request_id())
        # Its id and zone are still to be learned by observation: one more step that races.
        awake = advance_vm(
            vm, VmEvent.WORKER_READY, now, "ready", boot_nonce="boot", worker_keys=PROVEN
        )
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
            after = advance(
                job, event, now, RULES, facts=EventFacts(lease=lease if event is E.PLACED else None)
            )
            changes.append(JobMove(job, after, (entry_for(job, after, event),)))
            job = after
        changes.append(VmMove(vm, take_lease(vm, lease.lease_id)))
        return job, changes

    async def put(self, batches: Sequence[Sequence[Change]]) -> None:
        done = await self.api.commit([tuple(batch) for batch in batches], None)
        assert done.all_applied, done.refusals

    async def pause(self, most_ms: float) -> None:
        await asyncio.sleep(self.dice.random() * most_ms / 1000)

    async def now(self) -> datetime:
        return (await self.api.snapshot(0)).now

    async def open(self) -> None:
        await self.store.open()
        await self.api.open()
        await self.leadership.renew()

    async def close(self) -> None:
        await self.store.close()
        await self.api.close()


@asynccontextmanager
async def house_on(url: str, seed: int) -> AsyncIterator[House]:
    """Leads until left; its loop, relay and inbox run meanwhile."""
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


def on_uvloop(work: Coroutine[object, object, Result]) -> Result:
    """On the event loop that a replica runs on."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def fresh_database(url: str, name: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    base, _, query = url.partition("?")
    fresh = f"{base.rpartition('/')[0]}/{name}?{query}"
    migrate.upgrade(fresh)
    return fresh


def drop_database(url: str, name: str) -> None:
    """Once it has been judged."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
