"""One run: the world, the work, the misfortune, the healing, and the verdict."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from config.settings import Settings
from core.changes import PutTenant
from core.clock import SystemClock
from core.ids import RandomIds
from core.job import JobStatus
from core.messages import OutMessage
from core.tenants import Tenant
from messaging.proofs.control import SEALED, SchedulerSigner, open_start
from messaging.proofs.enrolment import enrolment_secret
from messaging.proofs.keys import SchedulerKey, WorkerKeys
from messaging.proofs.sealing import NotForUs
from sim.cloud.world import World
from sim.memory.store import MemoryStore
from sim.virtual import bill_check
from sim.virtual.bus import PretendBroker
from sim.virtual.byzantine import Byzantine
from sim.virtual.checkers import Checkers
from sim.virtual.clients import PretendClients
from sim.virtual.compute import CloudInTime
from sim.virtual.config import Paper
from sim.virtual.fault_plan import Chaos
from sim.virtual.fault_targets import Stage
from sim.virtual.loop import Stalled, VirtualClock, VirtualLoop
from sim.virtual.operators import Desk, Office
from sim.virtual.pretend_jobs import nature_of
from sim.virtual.pretend_vms import BAD_GPUS, PretendVms, Site
from sim.virtual.replicas import Ground, Host
from sim.virtual.setting import cloud_world, settings
from sim.virtual.trace import Trace, Violation
from sim.virtual.worker_truth import WorkerTruth
from sim.virtual.workload import REPLIES, make_orders, tenants_of

REPLICAS = 3
HEAL_BOUND_S, HEAL_BOUND_EACH_S = 3 * 3600.0, 5.0
"""How long after healing every job must have ended: and so much for each, since quotas and limits
let a backlog shrink no faster than that."""
REST_BOUND_S = 600.0
"""How long after the last job every group must be back at its floor."""
QUIET_S = 60.0
"""How long they must stay there: what leaves and comes again is not at rest."""
LOOK_S = 10.0
ORPHANS_EVERY_S = 30.0
COLLECT_EVERY_S = 3600.0
"""Garbage is collected at moments that the seed fixes."""
EXPECTED_ERRORS = frozenset({"the bus refuses a topic, its messages are kept"})
"""What the service rightly tells a human; any other error in its log is a finding."""
FAULTS_MIN_S = 600.0


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """What to simulate."""

    seed: int
    jobs: int = 200
    replicas: int = REPLICAS
    faults: bool = True
    verbose: bool = False
    forged: int = 400
    """Messages that a lying VM sends while things go wrong."""

    @property
    def fault_s(self) -> float:
        """How long things go wrong: long enough for the machines to do most of the work."""
        return max(FAULTS_MIN_S, self.jobs * 5.0) if self.faults else 300.0


@dataclass(slots=True)
class SeedResult:
    """What came of it."""

    plan: SimulationPlan
    violations: list[Violation]
    digest: str
    events: int
    virtual_s: float
    wall_s: float
    faults: Counter[str]
    transitions: Counter[str]
    statuses: Counter[str]
    messages: int = 0
    """Given to the bus while it misbehaved."""
    lines: list[str] = field(default_factory=list)
    about: Mapping[str, list[str]] = field(default_factory=dict)


class SimulationRun:
    """Builds everything on one loop and lets it go."""

    def __init__(
        self, plan: SimulationPlan, watch: Callable[[SimulationRun], None] = lambda _: None
    ) -> None:
        self.plan = plan
        self._watch = watch
        """Is shown the run every now and then; must not touch it."""
        self.loop = self._make_loop()
        self.settings = self._settings()
        self.trace = Trace(self.loop, keep_all=plan.verbose)
        ids = RandomIds(self._dice("keys"))
        self.scheduler_key = SchedulerKey.from_seeds(ids.seed(), ids.seed())
        self._broken: asyncio.Event = asyncio.Event()
        self._healed_at: float | None = None
        self.store = MemoryStore(VirtualClock(self.loop, 17.0))
        self.checkers = Checkers(
            self.trace,
            self.store.tables,
            self.settings.clusters,
            self.loop.time,
            self._broken.set,
        )
        self.broker = PretendBroker(
            self.loop, self._dice("bus"), VirtualClock(self.loop, -41.0), self.trace
        )
        self.truth = self.checkers.truth = WorkerTruth(self.settings.names, self.checkers.broken)
        self.cloud = CloudInTime(self.loop, self._world())
        self.checkers.cloud_counts = self._in_the_cloud
        self.worker_keys: dict[str, WorkerKeys] = {}
        self.checkers.opened = self._opened
        self.fleet = self._fleet()
        self.checkers.could_not_speak = self.fleet.could_not_speak
        self.liar = Byzantine(
            self.loop,
            self.broker,
            self.fleet,
            self.settings.names,
            self._dice("byzantine"),
            self.trace,
        )
        self.liar.opened = self.truth.opened
        self.broker.on_taken = self._taken
        self.hosts = self._hosts()
        self.clients = PretendClients(
            self.loop,
            self.hosts,
            self.broker,
            self.settings.names,
            self._dice("clients"),
            self.trace,
            self.checkers,
        )

    def _dice(self, what: str) -> random.Random:
        """Dice of their own for each part, all from the one seed."""
        return random.Random(f"{self.plan.seed}/{what}")

    def _make_loop(self) -> VirtualLoop:
        return VirtualLoop()

    def _settings(self) -> Settings:
        return settings()

    def _world(self) -> World:
        return cloud_world(self.plan.seed, self.settings.names, self._dice("scene"))

    def _fleet(self) -> PretendVms:
        return PretendVms(self._site())

    def _site(self) -> Site:
        return Site(
            nature=partial(nature_of, self.plan.seed),
            loop=self.loop,
            broker=self.broker,
            cloud=self.cloud,
            names=self.settings.names,
            timers=self.settings.timers,
            dice=self._dice("vms"),
            trace=self.trace,
            log=self.checkers.computing,
            checkpoints={},
            project=self.settings.project,
            scheduler=self.scheduler_key.public,
            truth=self.truth,
            secret=enrolment_secret(self.scheduler_key),
            keys=self.worker_keys,
            bad_gpus=BAD_GPUS if self.plan.faults else 0.0,
        )

    def _hosts(self) -> list[Host]:
        self.ground = Ground(
            settings=self.settings,
            loop=self.loop,
            store=self.store,
            broker=self.broker,
            cloud=self.cloud,
            dice=self._dice("replicas"),
            trace=self.trace,
            checkers=self.checkers,
            keys=SchedulerSigner((self.scheduler_key,)),
            paper=self._paper(),
        )
        return [Host(self.ground, index) for index in range(self.plan.replicas)]

    def _paper(self) -> Paper | None:
        return Paper(self.settings) if self.plan.faults else None

    def _taken(self, message: OutMessage) -> None:
        self.checkers.published(message)
        self.truth.published(message)
        self.liar.sees(message)

    def _opened(self, message: OutMessage) -> bytes:
        """What a message for a worker says, with the keys of its boot; nothing, if it is forged."""
        if SEALED not in message.attributes:
            return message.body
        keys = self.worker_keys.get(message.attributes.get("boot_nonce", ""))
        try:
            return open_start(message.body, message.attributes, keys) if keys else b""
        except NotForUs:
            return b""

    def _in_the_cloud(self, cluster: str) -> int:
        """Members of the cluster's groups, without the ones that others put there."""
        names, now = self.settings.names, self.loop.time()
        ours = {names.mig(cluster, r.region) for r in self.settings.cluster(cluster).regions}
        skip = self.checkers.foreign | self.checkers.strangers
        return sum(
            name not in skip
            for mig in self.cloud.cloud.migs(None, now)
            if mig.spec.name in ours
            for name in mig.members
        )

    # --- the run ---------------------------------------------------------------------------

    def run(self) -> SeedResult:
        """From the first submission to the verdict."""
        clock = SystemClock()
        began = clock.monotonic()
        self.loop.set_exception_handler(self._crashed)
        # When the garbage collector comes must not depend on how much memory was used before: a
        # run would not be the same every time. What was killed is kept, it is never garbage.
        collects = gc.isenabled()
        gc.disable()
        try:
            with _logs_are_watched(self._logged):
                try:
                    self.loop.run_until_complete(self._play())
                except Stalled as error:
                    self.checkers.broken("stalled", str(error))
            outcome = self._outcome(clock.monotonic() - began)
            with _logs_are_watched(lambda _: None):
                self.loop.dispose()
        finally:
            if collects:
                gc.enable()
        return outcome

    async def _play(self) -> None:
        ending = asyncio.create_task(self._broken.wait())
        playing = asyncio.create_task(self._acts())
        await asyncio.wait([ending, playing], return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            playing.result()
        for task in (ending, playing):
            task.cancel()

    async def _acts(self) -> None:
        plan = self.plan
        self._make_infrastructure()
        tenants = tenants_of(self.settings.clusters)
        await self.store.commit([(PutTenant(tenant),) for tenant in tenants], None)
        for host in self.hosts:
            host.start()
        self.cloud.settle()
        self._look_after_orphans()
        self.loop.later(COLLECT_EVERY_S, self._collect)
        orders = make_orders(plan.seed, plan.jobs, plan.fault_s * 0.8, self.settings.clusters)
        self.clients.schedule(orders)
        if plan.faults:
            stage = Stage(
                self.loop, self.ground, self.hosts, self.fleet, self.clients, self._dice("chaos")
            )
            chaos = Chaos(stage)
            chaos.begin()
            self.liar.over = lambda: chaos.over
            self.liar.begin(plan.forged)
            Desk(self._office(tenants, lambda: chaos.over)).begin()
            await asyncio.sleep(plan.fault_s)
            chaos.heal()
            self._healed_at = self.loop.time()
        await self._until_done()
        await self._until_at_rest()
        self.checkers.committed()
        floors = {cluster.name: cluster.vm_min for cluster in self.settings.clusters}
        self.checkers.at_the_end(self.cloud.cloud, floors)
        for what in bill_check.faults(self.store.tables, (await self.store.snapshot(0)).now):
            self.checkers.broken("I12", what)

    def _office(self, tenants: Sequence[Tenant], over: Callable[[], bool]) -> Office:
        return Office(
            self.clients,
            self.store,
            self.settings.names,
            tenants,
            self._dice("desk"),
            self.trace,
            over,
        )

    def _look_after_orphans(self) -> None:
        self.cloud.settle()
        self.checkers.look_for_orphans(self.cloud.cloud, self._healed_at)
        self._watch(self)
        self.loop.later(ORPHANS_EVERY_S, self._look_after_orphans)

    def _collect(self) -> None:
        gc.collect()
        self.loop.later(COLLECT_EVERY_S, self._collect)

    def _make_infrastructure(self) -> None:
        names, broker = self.settings.names, self.broker
        topics = (
            names.heartbeat_topic,
            names.control_topic,
            names.submit_topic,
            names.submit_dead_topic,
            REPLIES,
        )
        for topic in topics:
            broker.add_topic(topic)
        for name, topic in (
            (names.heartbeat_subscription, names.heartbeat_topic),
            (names.submit_subscription, names.submit_topic),
        ):
            broker.add_subscription(name, topic, ordered=False)

    async def _until_done(self) -> None:
        ends_at = self.loop.time() + HEAL_BOUND_S + HEAL_BOUND_EACH_S * self.plan.jobs
        while self.loop.time() < ends_at:
            await asyncio.sleep(LOOK_S)
            if not self.clients.busy and not self.broker.unread and not self.checkers.waiting:
                return

    async def _until_at_rest(self) -> None:
        """Every group is at its floor, and was so a while ago; at worst the bound has passed, and
        the checkers say what is not."""
        ends_at = self.loop.time() + REST_BOUND_S
        quiet_since: float | None = None
        while (now := self.loop.time()) < ends_at:
            if not self._all_at_rest():
                quiet_since = None
            elif quiet_since is None:
                quiet_since = now
            elif now - quiet_since >= QUIET_S:
                return
            await asyncio.sleep(LOOK_S)

    def _all_at_rest(self) -> bool:
        """An orphan that is never reaped keeps the run going until the checkers notice."""
        self.checkers.look_for_orphans(self.cloud.cloud, self._healed_at)
        floors = ((cluster.name, cluster.vm_min) for cluster in self.settings.clusters)
        return not self.checkers.unowned and all(self.checkers.at_floor(*each) for each in floors)

    # --- what the service says of itself -----------------------------------------------------

    def _crashed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.checkers.broken("crash", f"{context.get('message')}: {error!r}")

    def _logged(self, event: Mapping[str, Any]) -> None:
        if event.get("event") not in EXPECTED_ERRORS:
            self.checkers.broken("crash", f"the service logged an error: {dict(event)}")

    def _statuses(self) -> Counter[str]:
        """Of a gang its first member counts: that is the job that was submitted."""
        jobs = (record.job for record in self.store.tables.jobs.values())
        return Counter(str(j.status) for j in jobs if j.gang is None or j.gang.rank == 0)

    def progress(self) -> str:
        """How far it is, in words."""
        ended = sum(n for status, n in self._statuses().items() if JobStatus(status).final)
        hours = self.loop.time() / 3600
        return (
            f"seed {self.plan.seed}: {hours:.2f} virtual hours, {ended:,} jobs ended of "
            f"{self.plan.jobs:,} submissions"
        )

    def _outcome(self, wall_s: float) -> SeedResult:
        checkers = self.checkers
        subjects = [s for violation in checkers.violations[:1] for s in violation.subjects if s]
        return SeedResult(
            plan=self.plan,
            violations=list(checkers.violations),
            digest=self.trace.digest,
            events=self.trace.events,
            virtual_s=self.loop.time(),
            wall_s=wall_s,
            faults=self.trace.faults,
            transitions=self.trace.transitions,
            statuses=self._statuses(),
            messages=self.trace.messages,
            lines=self.trace.lines,
            about={subject: self.trace.about(subject) for subject in subjects},
        )


@contextmanager
def _logs_are_watched(on_error: Any) -> Iterator[None]:
    """An error in the service's log is a finding; the rest is not formatted at all."""

    def watch(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        on_error(event)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.processors.format_exc_info, watch],
        wrapper_class=structlog.make_filtering_bound_logger(40),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def simulate(
    plan: SimulationPlan, watch: Callable[[SimulationRun], None] = lambda _: None
) -> SeedResult:
    """One run of one seed."""
    return SimulationRun(plan, watch).run()
