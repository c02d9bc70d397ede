"""The leader's loop. One cycle reads as numbered steps; everything it decides is in the plan
builder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from config.live import LiveSettings
from config.settings import Settings
from core.alerts import FLEET_SILENT
from core.changes import AtomicBatch, Change, DeadLetter, Snapshot
from core.errors import BusDown, StoreDown, TermPassed
from core.job import Job
from core.job_users import draw_user
from core.messages import Canary, Control, InMessage, KeepWarm, OutMessage, StartJob
from core.ports import Bus, Clock, Ids, Store
from core.queueing import Ask
from core.reasons import RefusalKind
from core.wakes import Wake
from messaging.codec import BadMessage, decode_heartbeat, encode_canary, encode_for
from messaging.proofs.heartbeats import PROOF
from orchestrator.orchestrator import ClusterOrchestrator
from scheduler.cycle.checkpoints import Checkpoints
from scheduler.cycle.crowded import crowded
from scheduler.cycle.heartbeat_inbox import Inbox
from scheduler.cycle.heartbeats import ReceivedHeartbeat, apply_heartbeats
from scheduler.cycle.leadership import Leadership
from scheduler.cycle.outbox_relay import Relay
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import BusClock, Silence, find_silent
from scheduler.cycle.token_renewal import addressed
from scheduler.cycle.worker_admission import WorkerAdmission
from scheduler.cycle.worker_checks import WorkerChecks
from scheduler.forecast.run_times import Guess, unknown
from scheduler.operations.dead_letters import HEARTBEATS
from scheduler.operations.metrics import Metrics
from scheduler.placement.simulation_results import Answers
from scheduler.plan_builder import PlanBuilder
from scheduler.queue.budgets import BudgetStatus, alert_changes
from scheduler.queue.heads import TenantQueues, heads_for
from scheduler.secrets.job_tokens import kinds_for
from scheduler.v1.recall import Recall

log = structlog.get_logger("loop")
MAIL_PER_CYCLE = 5_000
"""Many heartbeats of one worker cost one write, so a backlog is cheapest in big bites; this one
takes a tenth of a second."""
TRIES_PER_CYCLE = 3
REST_MAX_S = 0.05
ROUTINE_MAX_S = 0.5
"""How long that may wait to share a cycle which changes no decision at once. Heartbeats that only
show life: a large fleet sends a thousand of them a second, and silence is counted in tens of
seconds. Jobs that come behind others where nothing is free."""
CANARY_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class LoopParts:
    """Everything a cycle touches."""

    store: Store
    bus: Bus
    inbox: Inbox
    relay: Relay
    leadership: Leadership
    orchestrator: ClusterOrchestrator
    metrics: Metrics
    settings: LiveSettings
    ids: Ids
    clock: Clock
    checks: WorkerChecks
    admission: WorkerAdmission
    budgets: Callable[[], BudgetStatus] = BudgetStatus
    """How tenants stand with what they may spend."""
    guess: Callable[[Job], Guess] = unknown
    """How long a job runs, from what ran before."""
    seen: Callable[[Snapshot, Sequence[tuple[Job, Job]]], None] = lambda _, __: None
    """Is shown the snapshot of each cycle and what moved in it."""
    recall: Recall | None = None
    """Takes back what v1 workers shall not find any more."""


@dataclass(slots=True)
class Mail:
    """A cycle's messages, decoded. Bad ones become dead letters, the canary sets the clock."""

    messages: list[InMessage] = field(default_factory=list)
    heartbeats: list[ReceivedHeartbeat] = field(default_factory=list)
    dead: list[Change] = field(default_factory=list)


class SchedulerLoop:
    """Woken by events (a submission, a heartbeat that changes a state), never slower than its
    interval."""

    def __init__(self, parts: LoopParts) -> None:
        self._parts = parts
        self._wake = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        self._bus_clock = BusClock()
        self._canary_seq = 0
        self._one_by_one = 0
        """How many messages are still to be read one per cycle: one of them crashed a cycle."""
        self._mail = Mail()
        self._kept_warm: dict[str, float] = {}
        self._tenants = TenantQueues()
        self._crowded: frozenset[str] = frozenset()
        """Clusters where nothing was free and jobs waited when the last cycle ended."""
        self._checkpoints = Checkpoints()
        self._answers = Answers()
        self._take(parts.settings.current)

    def _take(self, settings: Settings) -> None:
        """The snapshot that a whole cycle goes by."""
        self._settings, self._rules, self._clusters = settings, settings.rules, settings.by_name

    def poke(self) -> None:
        """Something happened: take a cycle soon."""
        self._wake.set()

    def hear_of(self, wake: Wake) -> None:
        """A commit, of ours or of another replica. Jobs that come where nothing is free and others
        wait already change no decision at once."""
        if wake.clusters is not None and wake.clusters <= self._crowded:
            self.poke_soon()
        else:
            self.poke()

    def poke_soon(self) -> None:
        """Something came that changes no decision: it shares the next cycle, or has its own."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(ROUTINE_MAX_S, self.poke)

    async def run(self) -> None:
        """For ever, while we lead."""
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass  # nothing woke us: the interval carries on
            self._wake.clear()
            self._soon_is_now()
            started = self._parts.clock.monotonic()
            await self._guarded_cycle()
            await self._rest(self._parts.clock.monotonic() - started)

    def _soon_is_now(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    @property
    def _interval_s(self) -> float:
        return self._parts.settings.current.timers.loop_interval_s

    async def _rest(self, worked_s: float) -> None:
        """As long as it has worked, up to a blink, unless mail waits that is worth a cycle:
        whatever else this process does gets its half, and what comes shares the next cycle."""
        if worked_s > 0 and not self._parts.inbox.urgent:
            await asyncio.sleep(min(worked_s, REST_MAX_S))

    async def _guarded_cycle(self) -> None:
        try:
            await self.cycle()
        except TermPassed as error:
            self._parts.leadership.lost(str(error))
        except StoreDown as error:
            log.warning("cycle abandoned, its messages are kept", why=str(error))
            self._parts.inbox.put_back(self._mail.messages)
            await asyncio.sleep(self._interval_s)
        except Exception:
            # One bad cycle must not end the service: nothing was committed, the next one retries.
            log.exception("cycle crashed")
            await self._isolate()
            await asyncio.sleep(self._interval_s)

    async def _isolate(self) -> None:
        """A message may have crashed the cycle: read the same mail one by one, and put the one
        that crashes alone among the dead letters, so that the others are heard."""
        messages = self._mail.messages
        if len(messages) != 1:
            self._one_by_one = len(messages)
            self._parts.inbox.put_back(messages)
            return
        dead_letter = _dead_letter(messages[0], "the scheduler crashed on it; its log says how")
        try:
            await self._parts.store.commit([(dead_letter,)], self._parts.leadership.term())
            await self._parts.inbox.ack(messages)
        except (StoreDown, TermPassed):
            self._parts.inbox.put_back(messages)

    async def cycle(self) -> None:
        parts = self._parts
        started = parts.clock.monotonic()
        # 1 leader?
        if not parts.leadership.leading:
            return
        if parts.settings.current is not self._settings:
            self._take(parts.settings.current)
        # 2 drain the inbox
        mail = self._mail = self._open_mail()
        snapshot, plan, committed = await self._decide_and_commit(mail)
        # 6 relay, and acknowledge what is committed
        parts.relay.poke()
        if parts.recall is not None:
            parts.recall.look(plan, self._rules.v1_clusters)
        # 7 demand, 8 reconcile clusters: in tasks of their own
        parts.orchestrator.poke(snapshot, plan.admitted)
        parts.seen(snapshot, plan.moves)
        self._crowded = crowded(plan, self._clusters)
        if committed:
            self._checkpoints.forget(plan.moves)
            kept = parts.admission.take(mail.messages, self._clusters)
            later = {message.message_id for message in kept}
            done = [message for message in mail.messages if message.message_id not in later]
            await parts.inbox.ack(done)
        else:
            parts.inbox.put_back(mail.messages)
        for before, after in plan.moves:
            parts.metrics.job_moved(before, after)
        parts.metrics.cycle(parts.clock.monotonic() - started)
        if parts.inbox.urgent or not committed:
            self.poke()

    async def _decide_and_commit(self, mail: Mail) -> tuple[Snapshot, PlanBuilder, bool]:
        parts = self._parts
        tries = 0
        while True:
            # 3 load one consistent snapshot
            snapshot = await parts.store.snapshot(self._settings.queue_limit, self._heads())
            # 4 plan jobs, 9 record each why
            plan, batches = self._decide(snapshot, mail)
            # 5 commit transitions and outbox, guarded by our term
            if not batches:
                return snapshot, plan, True
            done = await parts.store.commit(batches, parts.leadership.term())
            tries += 1
            refused = done.refusals.values()
            settled = all(refusal.kind is RefusalKind.UNSTORABLE for refusal in refused)
            if settled or tries == TRIES_PER_CYCLE:
                return snapshot, plan, settled
            # A stop or a scale-in came between: look again with the same mail.
            log.info("the world moved, looking again", guards=sorted(set(map(str, refused))))

    def hears(self) -> bool:
        """Whether workers can be heard: only then does their silence mean something."""
        return self._bus_clock.steady(self._parts.clock.monotonic(), self._settings.timers)

    def _deaf(self) -> frozenset[str]:
        """Clusters whose workers could not be told anything of late."""
        parts, names = self._parts, self._settings.names
        settling_s, v1 = self._settings.timers.settling_s, self._rules.v1_clusters
        deaf: frozenset[str] = frozenset()
        if parts.relay.held((names.control_topic,), settling_s):
            deaf |= self._clusters.keys() - v1
        if parts.relay.held((names.start_topic, names.stop_topic), settling_s):
            deaf |= v1
        return deaf

    async def canaries(self) -> None:
        """Send one at once and then every `canary_s`, while we lead."""
        parts = self._parts
        while True:
            if parts.leadership.leading:
                self._canary_seq += 1
                canary = Canary(parts.leadership.term(), self._canary_seq)
                try:
                    message = parts.checks.signer.canary(
                        encode_canary(canary, self._settings.names)
                    )
                    await parts.bus.publish([message], CANARY_TIMEOUT_S)
                except BusDown as error:
                    log.warning("canary not sent: nobody ages", why=str(error))
            await asyncio.sleep(parts.settings.current.timers.canary_s)

    def _open_mail(self) -> Mail:
        most = 1 if self._one_by_one else MAIL_PER_CYCLE
        self._one_by_one = max(0, self._one_by_one - 1)
        mail = Mail(messages=self._parts.inbox.take(most))
        for message in mail.messages:
            try:
                news = decode_heartbeat(message)
            except BadMessage as error:
                mail.dead.append(_dead_letter(message, str(error)))
                continue
            if isinstance(news, Canary):
                self._hear_canary(news, message)
            else:
                proof = message.attributes.get(PROOF, "")
                mail.heartbeats.append(
                    ReceivedHeartbeat(
                        news, message.publish_time, message.message_id, message.body, proof
                    )
                )
        return mail

    def _hear_canary(self, canary: Canary, message: InMessage) -> None:
        if self._parts.checks.is_canary(canary, message):
            moment, timers = self._parts.clock.monotonic(), self._settings.timers
            self._bus_clock.canary_back(message.publish_time, moment, timers)

    def _decide(self, snapshot: Snapshot, mail: Mail) -> tuple[PlanBuilder, list[AtomicBatch]]:
        parts, settings = self._parts, self._settings
        plan = PlanBuilder(snapshot, self._rules, lambda message: self._encode(message, plan))
        plan.hear = lambda said: self._checkpoints.hear((said,))
        plan.saved = self._checkpoints.saved
        if parts.recall is not None:
            plan.recalled = parts.recall.recalled
        parts.checks.begin(snapshot.now)
        apply_heartbeats(plan, mail.heartbeats, parts.checks.check, self._rules.v1_clusters)
        steady = self.hears()
        silence = (
            find_silent(plan.active, plan.heartbeats, self._bus_clock.bus_now, settings.timers)
            if steady
            else Silence(())
        )
        budgets, timers = parts.budgets(), settings.timers
        unsent_s = timers.claim_timeout_s + timers.settling_s
        around = Circumstances(
            self._clusters,
            silence,
            steady,
            budgets,
            settings.capacity.typical_run_s,
            settings.capacity.price_band,
            parts.guess,
            self._checkpoints.saved_at,
            self._answers,
            self._deaf(),
            parts.relay.unsent(unsent_s),
            parts.relay.refused_starts(unsent_s),
            parts.relay.withheld(timers.claim_timeout_s),
        )
        reasons = plan_jobs(plan, snapshot, around, parts.ids)
        self._keep_warm(plan)
        alerts = [
            *_fleet_alert(silence, snapshot),
            *alert_changes(budgets, snapshot.open_alerts, snapshot.now),
            *parts.checks.alerts(snapshot.open_alerts, plan.active.names),
        ]
        alone = (*mail.dead, *reasons, *alerts, *plan.wait_notes)
        batches = [*plan.batches, *((change,) for change in alone)]
        return plan, batches

    def _heads(self) -> Ask:
        """No more of the queue than this cycle can use."""
        held, settings = self._parts.budgets().held.keys(), self._settings
        ahead_s = settings.capacity.typical_run_s
        return heads_for(self._clusters, held, settings.queue, ahead_s, self._tenants)

    def _keep_warm(self, plan: PlanBuilder) -> None:
        """A worker without work and without a word from us powers its VM off. VMs that a floor
        keeps are spoken to now and then; the others are left to that last lock."""
        now = self._parts.clock.monotonic()
        pace_s = self._settings.timers.agent_idle_off_s / 3
        clusters = self._clusters.items()
        floors = {name for name, spec in clusters if spec.vm_min or spec.floors}
        warm = {vm.uid for cluster in floors for vm in plan.idle_in(cluster)}
        for uid in sorted(warm):  # the order of messages must not depend on hashes
            if now - self._kept_warm.get(uid, now - pace_s) >= pace_s:
                self._kept_warm[uid] = now
                vm = plan.vms[uid]
                plan.tell(KeepWarm(vm.name, vm.boot_nonce))
        self._kept_warm = {uid: at for uid, at in self._kept_warm.items() if uid in warm}

    def _encode(self, message: Control, plan: PlanBuilder) -> OutMessage:
        """For the outbox: a start says there for whom it will be sealed."""
        names = self._settings.names
        if isinstance(message, StartJob):
            secret = self._parts.checks.signer.user_secret
            message = replace(message, user_draw=draw_user(secret, message))
        out = encode_for(message, names, self._rules.v1_clusters)
        if not isinstance(message, StartJob) or out.topic != names.control_topic:
            return out
        vm = plan.vms[plan.active.names[message.vm_name]]
        return addressed(out, vm, kinds_for(message.spec, self._settings))


def _dead_letter(message: InMessage, reason: str) -> DeadLetter:
    return DeadLetter(
        message_id=message.message_id,
        source=HEARTBEATS,
        body=message.body,
        attributes=message.attributes,
        reason=reason,
        at=message.publish_time,
    )


def _fleet_alert(silence: Silence, snapshot: Snapshot) -> Sequence[Change]:
    open_now = (FLEET_SILENT.name, HEARTBEATS) in snapshot.open_alerts
    if silence.frozen_why is not None and not open_now:
        return [FLEET_SILENT.raised(HEARTBEATS, snapshot.now, reason=silence.frozen_why)]
    if open_now and silence.frozen_why is None:
        return [FLEET_SILENT.cleared(HEARTBEATS, snapshot.now)]
    return []
