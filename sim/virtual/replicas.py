"""The replicas of the service: the real thing over in-memory adapters, each in a process that can
be killed at every boundary, frozen, cut off, and started again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from config.settings import Settings
from core.actions import Create, Delete, Queue
from core.errors import StoreDown
from core.ids import RandomIds
from core.messages import OutMessage
from core.mig import MigSnapshot, Queued
from core.ports import Cloud
from core.wakes import Wake
from messaging.proofs.control import SchedulerSigner
from messaging.proofs.enrolment import EnrolmentTokens, enrolment_secret
from migs.own_machines import open_own_machines
from scheduler.access.authenticator import Authenticator
from scheduler.operations.metrics import Metrics
from scheduler.queue.blocked_clusters import KnownRegionBlocks
from scheduler.replica import Adapters, Replica
from scheduler.submission.group_commit import GroupCommit
from sim.memory.access import MemoryAccess
from sim.memory.reads import MemoryReads
from sim.memory.store import MemoryStore, Stage
from sim.virtual.bus import GRID_S, MemoryBus, MemoryInbound, PretendBroker
from sim.virtual.checkers import Checkers
from sim.virtual.compute import CloudInTime, VirtualCompute
from sim.virtual.config import Paper
from sim.virtual.control_subscriptions import MemoryControlSubscriptions
from sim.virtual.keys import known_keys
from sim.virtual.loop import Process, VirtualClock, VirtualLoop
from sim.virtual.trace import Trace

SCHEDULER_CLOCK_WRONG_S = 30.0
SLOW_ANSWERS = 0.2
FOLLOW_S = 1.5
"""Less often than in real life: questions of those who do not lead are most of an idle hour."""


@dataclass(slots=True)
class CrashOdds:
    """How often a replica dies at each kind of boundary, and how often an answer is lost."""

    commit: float = 0.0
    publish: float = 0.0
    cloud_call: float = 0.0
    lost_answer: float = 0.0
    late_effect: float = 0.0


class Tripwire:
    """Counts the boundaries that a run passes; the replica that reaches number `at` dies there."""

    def __init__(self, at: int | None = None) -> None:
        self.passed: list[tuple[str, str]] = []
        """(kind, "before" or "after"), in order."""
        self._at = at

    def reached(self, what: str, stage: str) -> bool:
        self.passed.append((what, stage))
        return len(self.passed) - 1 == self._at


@dataclass(slots=True)
class Ground:
    """What all replicas stand on."""

    settings: Settings
    loop: VirtualLoop
    store: MemoryStore
    broker: PretendBroker
    cloud: CloudInTime
    dice: random.Random
    trace: Trace
    checkers: Checkers
    keys: SchedulerSigner
    odds: CrashOdds = field(default_factory=CrashOdds)
    tripwire: Tripwire | None = None
    paper: Paper | None = None
    """The configuration file; None: it does not change in this run."""


class Host:
    """A place for a replica: the process in it may change."""

    def __init__(self, ground: Ground, index: int) -> None:
        self.index = index
        self._ground = ground
        self._boots = 0
        self.process: Process | None = None
        self.replica: Replica | None = None
        self.door: MemoryStore = ground.store
        self.clock = VirtualClock(ground.loop)
        self.freeze_at_commit = False
        """Stop right before the next commit takes effect: the worst moment for a leader."""

    @property
    def up(self) -> bool:
        return self.process is not None and not self.process.dead

    @property
    def awake(self) -> bool:
        return self.up and self.process is not None and not self.process.frozen

    @property
    def name(self) -> str:
        return f"replica-{self.index}.{self._boots}"

    @property
    def leads(self) -> bool:
        return self.up and self.replica is not None and self.replica.leadership.leading

    def start(self) -> None:
        """A fresh process; nothing is remembered from the last."""
        if self.up:
            return
        self._boots += 1
        self.freeze_at_commit = False
        ground = self._ground
        self.process = ground.loop.process(self.name)
        wrong_s = ground.dice.uniform(-SCHEDULER_CLOCK_WRONG_S, SCHEDULER_CLOCK_WRONG_S)
        self.clock = VirtualClock(ground.loop, wrong_s, ground.dice.uniform(0, 1e6))
        down = self.door.down
        self.door = ground.store.door(on_commit=self._on_commit, pause=self._pause)
        self.door.down = down
        if ground.tripwire is not None:
            self.door.on_mark = self._on_mark
        ground.trace.note("replica", f"{self.name} starts", "replicas")
        self.process.spawn(self._boot())

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None and not self.process.dead:
            self._ground.trace.note("replica", f"{self.name} is killed", "replicas")
            self.process.kill()
            self.door.hang_up()
            self.replica = None

    def freeze(self) -> None:
        assert self.process is not None
        self._ground.trace.note("replica", f"{self.name} is frozen", "replicas")
        self.process.freeze()

    def thaw(self) -> None:
        if self.process is not None and self.process.frozen and not self.process.dead:
            self._ground.trace.note("replica", f"{self.name} thaws", "replicas")
            self.process.thaw()

    async def _boot(self) -> None:
        ground, process = self._ground, self.process
        assert process is not None
        cloud = VirtualCompute(ground.cloud, ground.loop, ground.dice, ground.trace)
        cloud.on_create = self._created
        cloud.on_delete = lambda _, action: ground.checkers.deleting(action)
        bus = MemoryBus(ground.broker, process, ground.dice, ground.trace)
        compute = _CrashingCompute(cloud, self)
        # What the pretend cloud's word for an instance is made with follows from the same key.
        secrets = [enrolment_secret(key) for key in ground.keys.keys]
        identities = EnrolmentTokens(secrets, self.clock)
        adapters = Adapters(
            store=self.door,
            bus=_CrashingBus(bus, self),
            clouds={
                "mig": Cloud(lambda _: compute, flex=compute, advice=cloud, identities=identities),
                "static": replace(
                    open_own_machines(ground.settings, self.clock), identities=identities
                ),
            },
            write=GroupCommit(self.door).submit,
            wakeups=self._news,
            clock=self.clock,
            ids=RandomIds(random.Random(f"{ground.dice.random()}/{self.name}")),
            subscriptions=MemoryControlSubscriptions(
                ground.broker, process, ground.settings.names, ground.dice
            ),
            keys=ground.keys,
            config=ground.paper.parts(self.door) if ground.paper is not None else None,
        )
        self.replica = Replica(ground.settings, adapters, Metrics(), self.name)
        self.replica.leadership.follow_s = FOLLOW_S
        blocks = KnownRegionBlocks(MemoryReads(self.door).blocks, self.replica.clock)
        self.replica.submissions.blocks = blocks
        self.replica.authenticator = Authenticator(MemoryAccess(known_keys()), self.replica.clock)
        self.replica.start()

    def _created(self, mig: str, action: Create | Queue) -> None:
        prefix, suffix = f"{self._ground.settings.names.prefix}-", f"-{action.region}-mig"
        self._ground.checkers.created(mig.removeprefix(prefix).removesuffix(suffix), action)

    async def _news(self) -> AsyncIterator[Wake]:
        """The database's news, when the bus's come: a commit is not worth a cycle of its own."""
        async for wake in self.door.wakeups():
            await asyncio.sleep(GRID_S - self._ground.loop.time() % GRID_S)
            yield wake

    # --- boundaries ------------------------------------------------------------------------

    async def _pause(self) -> None:
        # Most answers come at once; a few take long enough for others to get in between.
        slow = self._ground.dice.random() < SLOW_ANSWERS
        await asyncio.sleep(self._ground.dice.uniform(0.001, 0.05) if slow else 0)

    async def _on_commit(self, stage: Stage) -> None:
        ground = self._ground
        if stage == "before" and self.freeze_at_commit:
            self.freeze_at_commit = False
            self.freeze()
            await asyncio.sleep(0)
        if stage == "after":
            ground.checkers.committed()
        await self.perhaps_crash("commit", stage, ground.odds.commit)
        if stage == "after" and ground.dice.random() < ground.odds.lost_answer:
            ground.trace.fault("commit_answer_lost", self.name)
            raise StoreDown("the connection was lost before the answer came")

    async def _on_mark(self, stage: Stage) -> None:
        await self.perhaps_crash("mark", stage, 0.0)

    async def perhaps_crash(self, what: str, stage: str, odds: float) -> None:
        """The process ends here and now, if the dice say so or the wire is reached."""
        wire = self._ground.tripwire
        tripped = wire is not None and wire.reached(what, stage)
        if self._ground.dice.random() < odds or tripped:
            self._ground.trace.fault(f"crash_at_{what}", f"{self.name} {stage}", "replicas")
            self.kill()
            await asyncio.get_running_loop().create_future()

    @property
    def odds(self) -> CrashOdds:
        return self._ground.odds


class _CrashingBus:
    """The bus of a replica that may die before or after a publish."""

    def __init__(self, bus: MemoryBus, host: Host) -> None:
        self._bus, self._host = bus, host

    async def publish(self, messages: Sequence[OutMessage], timeout_s: float) -> Sequence[str]:
        await self._host.perhaps_crash("publish", "before", self._host.odds.publish)
        ids = await self._bus.publish(messages, timeout_s)
        await self._host.perhaps_crash("publish", "after", self._host.odds.publish)
        return ids

    def subscribe(self, subscription: str, *, max_messages: int = 1000) -> MemoryInbound:
        return self._bus.subscribe(subscription, max_messages=max_messages)


class _CrashingCompute:
    """The cloud client of a replica that may die before or after a call."""

    def __init__(self, compute: VirtualCompute, host: Host) -> None:
        self._compute, self._host = compute, host

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        return await self._compute.observe(mig, cluster, region)

    async def create(self, mig: str, action: Create) -> None:
        await self._call(partial(self._compute.create, mig, action))

    async def delete(self, mig: str, action: Delete) -> None:
        await self._call(partial(self._compute.delete, mig, action))

    async def queue(self, mig: str, action: Queue) -> None:
        await self._call(partial(self._compute.queue, mig, action))

    async def queued(self, mig: str, region: str) -> tuple[Queued, ...]:
        return await self._compute.queued(mig, region)

    async def unqueue(self, mig: str, region: str, name: str, request_id: str) -> None:
        await self._crash("before")
        await self._compute.unqueue(mig, region, name, request_id)
        await self._crash("after")

    async def _call(self, call: Callable[[], Awaitable[None]]) -> None:
        await self._crash("before")
        self._compute.late_odds = self._host.odds.late_effect
        await call()
        await self._crash("after")

    async def _crash(self, stage: str) -> None:
        await self._host.perhaps_crash("cloud_call", stage, self._host.odds.cloud_call)
