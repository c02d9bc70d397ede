"""One replica of the service, built on ports alone: it runs the same over the production adapters
(scheduler/app.py) and over the in-memory ones in virtual time (sim/)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from config.live import LiveSettings
from config.settings import Settings
from core.audit_store import AuditLog
from core.changes import Snapshot
from core.cluster import RegionSpec
from core.errors import ZenError
from core.job import Job
from core.job_tokens import MintTokens
from core.messages import OutboxRow, OutMessage
from core.ports import Bus, Clock, Cloud, ControlSubscriptions, Ids, Store
from core.wakes import Wake
from messaging.proofs.control import SchedulerSigner
from migs.manager import MigManager
from orchestrator.orchestrator import ClusterOrchestrator
from orchestrator.reconcile.context import Wiring
from scheduler.access.authenticator import Authenticator
from scheduler.cycle.control_subscriptions import ControlSubscriptionCare
from scheduler.cycle.heartbeat_inbox import Inbox
from scheduler.cycle.leadership import DatabaseClock, Leadership
from scheduler.cycle.loop import LoopParts, SchedulerLoop
from scheduler.cycle.outbox_relay import Relay
from scheduler.cycle.start_secrets import Resolve, SealedParts, no_secrets
from scheduler.cycle.subscription_watch import Mend, SubscriptionWatch
from scheduler.cycle.token_renewal import TokenRenewal
from scheduler.cycle.worker_admission import WorkerAdmission
from scheduler.cycle.worker_checks import WorkerChecks
from scheduler.forecast.forecaster import Forecaster
from scheduler.forecast.past_runs import Runtimes
from scheduler.forecast.run_times import predicted_s
from scheduler.operations.audit_anchors import AuditAnchors, anchor_for_ever
from scheduler.operations.costs import Bookkeeper
from scheduler.operations.live_config import ConfigParts, LiveConfig
from scheduler.operations.metrics import Metrics
from scheduler.operations.retention import prune_for_ever
from scheduler.secrets.job_tokens import no_tokens
from scheduler.submission.message_submitters import submit_topics
from scheduler.submission.pubsub_intake import IntakePorts, SubmissionIntake
from scheduler.submission.submit import SubmissionPorts, Submissions, Writer
from scheduler.submission.tenant_access import HasCode, SecretNames, TenantAccess
from scheduler.v1.recall import Recall

log = structlog.get_logger("replica")
RESTART_S = 1.0
AUDIT_S = 0.5
AUDIT_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Adapters:
    """The outside world, as ports."""

    store: Store
    bus: Bus
    clouds: Mapping[str, Cloud]
    """By the word of a cluster's `pool`."""
    write: Writer
    """Stores one submission durably; many that wait are written together."""
    wakeups: Callable[[], AsyncIterator[Wake]]
    """One item each time somebody committed something that matters."""
    clock: Clock
    ids: Ids
    keys: SchedulerSigner
    """The deployment's keys for speaking with workers."""
    subscriptions: ControlSubscriptions
    """By which VMs are told what to do."""
    mend: Mend | None = None
    """Makes subscriptions again that were lost; None: nobody can delete them."""
    config: ConfigParts | None = None
    """None: the configuration does not change while we run."""
    secrets: Resolve = no_secrets
    """Values for references to secrets, when a start is sent."""
    secret_names: SecretNames | None = None
    """Of a tenant's own secrets."""
    has_code: HasCode | None = None
    """Whether a tenant has sent that code."""
    tokens: MintTokens = no_tokens
    """Tokens for attempts, when a start or a renewal is sent."""
    audit_log: AuditLog | None = None
    """What the leader links into a chain; None: nothing is audited."""
    anchors: AuditAnchors | None = None
    """Where its head is written; None: nowhere."""


class Replica:
    """Serves always, leads when it may."""

    def __init__(
        self, settings: Settings, adapters: Adapters, metrics: Metrics, holder: str
    ) -> None:
        self.live = LiveSettings(settings)
        self.metrics = metrics
        self.store, self.bus = adapters.store, adapters.bus
        self.ids = adapters.ids
        self.clock = DatabaseClock(adapters.clock)
        self._adapters = adapters
        self.authenticator: Authenticator | None = None
        """Whose keys messages may carry; None: nobody's."""
        self.leadership = Leadership(self.store, holder, self.live, self.clock)
        self.runtimes = Runtimes(self.store, self.clock)
        self.submissions = Submissions(
            SubmissionPorts(adapters.write, self.store, self.clock, self.ids),
            self.live,
            on_new=self.metrics.submitted,
            door=TenantAccess(
                self.store, self.live, self.clock, adapters.secret_names, adapters.has_code
            ),
            expected=self.runtimes.expected_s,
        )
        self.config = (
            LiveConfig(adapters.config, self.store, self.clock, holder, self.adopt)
            if adapters.config is not None
            else None
        )
        self._loop: SchedulerLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the long-running tasks."""
        ports = IntakePorts(self.bus, self._adapters.write, self.clock, self.authenticator)
        names = self.settings.names
        intakes = [
            SubmissionIntake(ports, names, self.submissions, topic)
            for topic in submit_topics(names, self.settings.submit_topics)
        ]
        self._tasks = [
            forever("leadership", self.leadership.keep),
            forever("lead", self._lead),
            *(forever("intake", intake.run) for intake in intakes),
            forever("listen", self._listen),
            forever("runtimes", self.runtimes.keep),
        ]
        if self.config is not None:
            self._tasks.append(forever("config", self.config.run))

    async def stop(self) -> None:
        """Hand over, so that a successor need not wait for the lease to end. Nor for our tasks:
        what they would still write is refused as soon as another leads."""
        for task in self._tasks:
            task.cancel()
        # The task that keeps the lease must be silent first, or it would be taken once more.
        await asyncio.gather(*self._tasks[:1], return_exceptions=True)
        await self.leadership.resign()
        await self.halt()

    @property
    def settings(self) -> Settings:
        """As configured right now."""
        return self.live.current

    def adopt(self, settings: Settings) -> None:
        """What is in force from now on."""
        self.live.adopt(settings)
        self._wake()

    async def halt(self) -> None:
        """End all tasks; the lease ends by itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- leading -------------------------------------------------------------------------

    async def _lead(self) -> None:
        """While we lead, run the leader's tasks; when we do not, run none of them. Before that we
        must know what is in force: limits may have been lowered while we were away."""
        while True:
            self.leadership.changed.clear()
            if not self.leadership.leading:
                await self.leadership.changed.wait()
                continue
            if self.config is not None:
                await self.config.catch_up()
            driven = await self._driven()
            self.metrics.leading(True)
            tasks, orchestrator = self._leader_tasks(driven)
            try:
                await self.leadership.changed.wait()
            finally:
                self.metrics.leading(False)
                self._loop = None
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await orchestrator.close()

    async def _driven(self) -> Sequence[tuple[str, str]]:
        """Groups that former leaders had to do with. With machines of our own alone there are none,
        and no cloud that could be asked."""
        pools = {cluster.pool for cluster in self.settings.clusters if not cluster.terms.owned}
        if not pools:
            return ()
        for pool in pools:
            self._adapters.clouds[pool].warm_up()
        return await self.store.driven()

    def _leader_tasks(
        self, driven: Sequence[tuple[str, str]]
    ) -> tuple[list[asyncio.Task[None]], ClusterOrchestrator]:
        names = self.settings.names
        orchestrator = self._orchestrator(driven)
        renewal = self._renewal()
        relay = self._relay(renewal.mint)
        inbox = Inbox(self.bus, names.heartbeat_subscription, self._wake, self._wake_soon)
        checks = WorkerChecks(
            self._adapters.keys, self.settings.project, self.metrics.message_refused
        )
        subscriptions = ControlSubscriptionCare(self._adapters.subscriptions, names, self.clock)
        admission = WorkerAdmission(
            self._adapters.clouds, checks, inbox.bring, subscriptions, self.ids
        )
        books = Bookkeeper(self.store, self.live, self.metrics, self.clock, self._wake)
        recall = Recall(self.store, self.bus, names)
        forecaster = self._forecaster(books)

        def seen(snapshot: Snapshot, moves: Sequence[tuple[Job, Job]]) -> None:
            forecaster.seen(snapshot, moves)
            subscriptions.seen(snapshot)
            renewal.seen(snapshot)

        self._loop = SchedulerLoop(
            LoopParts(
                store=self.store,
                bus=self.bus,
                inbox=inbox,
                relay=relay,
                leadership=self.leadership,
                orchestrator=orchestrator,
                metrics=self.metrics,
                settings=self.live,
                ids=self.ids,
                clock=self.clock,
                checks=checks,
                admission=admission,
                budgets=books.standing,
                guess=self.runtimes.guess,
                seen=seen,
                recall=recall,
            )
        )
        tasks = [
            forever("loop", self._loop.run),
            forever("canary", self._loop.canaries),
            forever("relay", relay.run),
            forever("inbox", inbox.fill),
            forever("admission", admission.run),
            forever("control subscriptions", subscriptions.run),
            forever("recall", recall.run),
            forever("tokens", renewal.run),
            forever("retention", lambda: prune_for_ever(self.store, self.live)),
            forever("budgets", books.watch),
            forever("costs", books.settle),
            forever("forecasts", forecaster.run),
        ]
        return [*tasks, *self._optional_tasks()], orchestrator

    def _optional_tasks(self) -> list[asyncio.Task[None]]:
        tasks, names = [], self.settings.names
        if self._adapters.mend is not None:
            topics = submit_topics(names, self.settings.submit_topics)
            read = (names.heartbeat_subscription, *(topic.subscription for topic in topics))
            watch = SubscriptionWatch(
                self._adapters.mend, read, self.store, self.leadership, self.clock
            )
            tasks.append(forever("subscriptions", watch.run))
        if self._adapters.audit_log is not None:
            tasks.append(forever("audit", partial(link_for_ever, self._adapters.audit_log)))
            if self._adapters.anchors is not None:
                anchor = partial(
                    anchor_for_ever,
                    self._adapters.audit_log,
                    self._adapters.anchors,
                    self.clock,
                    self.settings.audit.anchor_every_s,
                )
                tasks.append(forever("anchors", anchor))
        return tasks

    def _forecaster(self, books: Bookkeeper) -> Forecaster:
        return Forecaster(
            self.store,
            self.runtimes.guess,
            self.leadership.term,
            self.metrics,
            self.clock,
            self.live,
            books.standing,
        )

    def _orchestrator(self, driven: Sequence[tuple[str, str]]) -> ClusterOrchestrator:
        wiring = Wiring(
            store=self.store,
            names=self.settings.names,
            settings=self.live,
            ids=self.ids,
            clock=self.clock,
            term=self.leadership.term,
            mig_of=self._mig,
            on_cloud_call=self.metrics.cloud_call,
            predicted=lambda job: predicted_s(self.runtimes.guess(job)),
            advice_of=lambda spec: self._adapters.clouds[spec.pool].advice,
            hears=self._hears,
        )
        return ClusterOrchestrator(wiring, driven)

    def _renewal(self) -> TokenRenewal:
        mint = self._adapters.tokens
        return TokenRenewal(mint, self.store, self.leadership, self.live, self.clock)

    def _relay(self, mint: MintTokens) -> Relay:
        return Relay(
            self.store,
            self.bus,
            self.leadership,
            self.clock,
            self.live,
            self._prove,
            SealedParts(self._adapters.secrets, mint),
        )

    def _prove(self, row: OutboxRow) -> OutMessage:
        return self._adapters.keys.control(row, self.ids.seed())

    def _hears(self) -> bool:
        return self._loop is not None and self._loop.hears()

    def _mig(self, cluster: str, region: str) -> MigManager:
        """The group there, in the cloud that the cluster's VMs come from; Google's is the cloud of
        the ones that left the configuration. Also a group that is not to be asked for several VMs
        at once any more may have to be told so."""
        spec = self.settings.by_name.get(cluster)
        places = {place.region: place for place in spec.regions} if spec is not None else {}
        cloud = self._adapters.clouds[spec.pool if spec is not None and region in places else "mig"]
        compute = cloud.compute(places.get(region) or RegionSpec(region, (), 0.0, 0.0))
        name = self.settings.names.mig(cluster, region)
        return MigManager(name, cluster, region, compute, cloud.flex)

    # --- small parts ---------------------------------------------------------------------

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.poke()

    def _wake_soon(self) -> None:
        if self._loop is not None:
            self._loop.poke_soon()

    async def _listen(self) -> None:
        async for wake in self._adapters.wakeups():
            if self._loop is not None:
                self._loop.hear_of(wake)


async def link_for_ever(log: AuditLog) -> None:
    """Each row of the audit log gets its link within about a second."""
    while True:
        if await log.link(AUDIT_BATCH) < AUDIT_BATCH:
            await asyncio.sleep(AUDIT_S)


def forever(name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    """A task that is started again when it fails: one broken part must not end the others."""

    async def guarded() -> None:
        me = asyncio.current_task()
        # A task that was told to end and answered with an error of its own has still ended:
        # a leader that waits for it would hold the lease and do nothing.
        while me is not None and not me.cancelling():
            try:
                await run()
            except ZenError as error:
                log.warning("task failed, starting it again", task=name, why=str(error))
            except Exception:
                log.exception("task crashed, starting it again", task=name)
            if not me.cancelling():
                await asyncio.sleep(RESTART_S)

    return asyncio.create_task(guarded(), name=name)
