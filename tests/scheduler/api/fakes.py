"""A store in a dictionary, for tests of the API alone."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import httpx

from core.changes import (
    Committed,
    JobMove,
    NewJob,
    PutTenant,
    RegionStatus,
    ReplayLetter,
    Send,
    Unit,
    View,
)
from core.cluster import ClusterSpec, RegionSpec
from core.cost import CostKind, Life, Settled, Spent, TenantBudget, add_live_spend
from core.cost_report import CostQuestion, CostReport, Tally
from core.errors import Ambiguous, BadInput, Fault, NotFound, StoreDown
from core.forecast import Forecast, Run
from core.ids import RandomIds
from core.job import Job, JobEvent, JobStatus, Lease, Rules, TimelineEntry, advance
from core.messages import OutboxRow, OutMessage
from core.names import Names
from core.ports import LeaderStatus
from core.queueing import Ask, HeadsOf, class_of
from core.reads import (
    AlertRow,
    AttemptRow,
    DeadLetterPage,
    DeadLetterRow,
    EventRow,
    GroupRow,
    JobFilter,
    JobPage,
    JobRow,
    Milestones,
    Summary,
    VmPage,
    VmRow,
)
from core.region_blocks import Trouble
from core.retention import RetentionRules
from core.supply import Experience
from core.tenants import Holding, Tenant, TenantRow, Usage, holdings
from core.timers import Timers
from core.waits import WaitRow
from scheduler.api.etas import KnownForecasts
from scheduler.api.http.app import create_app
from scheduler.api.job_meta import JobMetas
from scheduler.api.manifests import Shelf
from scheduler.api.services import Services
from scheduler.operations.metrics import Metrics
from scheduler.submission.submit import Submissions
from scheduler.submission.tenant_access import Door, DoorRules
from stores.base import LogStore, ObjectStore

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
RULES = Rules()


def cluster(name: str, gpus: int, gpu_type: str, price: float, *regions: str) -> ClusterSpec:
    """A cluster with one zone in each region; the first is the cheapest."""
    return ClusterSpec(
        name=name,
        gpu_type=gpu_type,
        gpus=gpus,
        machine_type=f"machine-{name}",
        vm_max=4,
        regions=tuple(
            RegionSpec(region, (f"{region}-a",), price + index, price / 3)
            for index, region in enumerate(regions or ("us-central1", "us-west1"))
        ),
        gpu_memory_gb=40,
        cpus=12 * gpus,
        memory_gb=85 * gpus,
    )


CLUSTERS = (
    cluster("1xl4", 1, "l4", 0.7, "us-central1", "europe-west4"),
    cluster("2xa100-40gb", 2, "a100-40gb", 7.4),
    cluster("4xa100-40gb", 4, "a100-40gb", 14.7),
    cluster("8xh100-80gb", 8, "h100-80gb", 88.0, "us-east4"),
    replace(cluster("0xcpu", 0, "cpu", 0.19), gpu_memory_gb=0, cpus=4, memory_gb=15),
)


class StillClock:
    """Time that moves when the test says so."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - NOW).total_seconds()


class MemoryStore:
    """Store and Reads for what the API calls; the rest is refused."""

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], Job] = {}
        self.hashes: dict[tuple[str, str], tuple[str, str]] = {}
        self.tenant_rows: dict[str, Tenant] = {"default": Tenant("default")}
        self.position = 1
        self.said: tuple[Forecast, ...] = ()
        self.whys: dict[str, str] = {}
        """job id → what is stored; else the same for all."""
        self.timeline: dict[str, list[TimelineEntry]] = {}
        self.sent: list[OutMessage] = []
        self.vm_rows: tuple[VmRow, ...] = ()
        self.trouble_rows: tuple[Trouble, ...] = ()
        self.experience_rows: tuple[Experience, ...] = ()
        self.attempt_rows: tuple[AttemptRow, ...] = ()
        self.wait_rows: tuple[WaitRow, ...] = ()
        self.alert_rows: tuple[AlertRow, ...] = ()
        self.statuses: tuple[RegionStatus, ...] = ()
        self.letters: dict[str, DeadLetterRow] = {}
        self.the_summary: Summary | None = None
        self.lives: tuple[Life, ...] = ()
        self.asked_cost: CostQuestion | None = None
        self.down = False
        self.broken = False
        self.race: list[Job] = []
        """Each commit is beaten by one of these."""

    # --- Store ---

    async def write(self, unit: Unit) -> str | None:
        # Lets other tasks in, as the real group commit does.
        await asyncio.sleep(0)
        done = await self.commit([unit], None)
        return done.refusals.get(0)

    async def commit(self, units: Sequence[Unit], term: int | None) -> Committed:
        self._answer()
        assert term is None, "the API does not lead"
        refusals: dict[int, str] = {}
        for number, unit in enumerate(units):
            if self.race:
                job = self.race.pop(0)
                self.jobs[job.key] = job
            refusal = self._refusal(unit)
            if refusal:
                refusals[number] = refusal
            else:
                self._apply(unit)
        return Committed(tuple(n not in refusals for n in range(len(units))), refusals)

    def _refusal(self, unit: Unit) -> str:
        for change in unit:
            if isinstance(change, NewJob) and change.job.key in self.jobs:
                return f"job {change.job.spec.job_id} exists"
            if isinstance(change, JobMove):
                stored = self.jobs[change.before.key]
                if stored.version != change.before.version:
                    return "version"
            if isinstance(change, ReplayLetter) and self.letters[change.message_id].replayed_at:
                return "sent again already"
        return ""

    def _apply(self, unit: Unit) -> None:
        for change in unit:
            if isinstance(change, NewJob):
                self.jobs[change.job.key] = change.job
                self.hashes[change.job.key] = (change.job.uid, change.content_hash)
                self.timeline[change.job.uid] = [change.entry]
            elif isinstance(change, JobMove):
                self.jobs[change.after.key] = change.after
                self.timeline[change.after.uid] += change.entries
            elif isinstance(change, PutTenant):
                self.tenant_rows[change.tenant.tenant_id] = change.tenant
            elif isinstance(change, ReplayLetter):
                row = self.letters[change.message_id]
                self.letters[change.message_id] = replace(row, replayed_at=change.at)
            elif isinstance(change, Send):
                self.sent.append(change.message)
            else:
                raise AssertionError(f"the API writes no {change}")

    async def find_job(self, job_id: str, user_id: str | None) -> Job:
        self._answer()
        found = [
            job
            for (user, name), job in self.jobs.items()
            if name == job_id and user_id in (None, user)
        ]
        if not found:
            raise NotFound(f"no job {job_id}")
        if len(found) > 1:
            raise Ambiguous(f"job {job_id} exists for several users: name one with user_id")
        return found[0]

    async def find_group(self, group: str, user_id: str | None) -> str:
        self._answer()
        owners = sorted({j.spec.user_id for j in self.jobs.values() if j.spec.group == group})
        found = [user for user in owners if user_id in (None, user)]
        if len(found) != 1:
            raise NotFound(f"no group {group}") if not found else Ambiguous("name one")
        return found[0]

    async def open_jobs(self, group: str, user_id: str, limit: int) -> Sequence[Job]:
        live = (j for j in self.jobs.values() if j.spec.group == group and not j.status.final)
        return [j for j in live if j.status is not JobStatus.STOPPING][:limit]

    async def members(self, gang: str) -> Sequence[Job]:
        found = (j for j in self.jobs.values() if j.gang is not None and j.gang.uid == gang)
        return sorted(found, key=lambda j: j.gang.rank if j.gang else 0)

    async def queued(self, cluster: str, tier: int, tenant_id: str, most: int) -> int:
        waiting = (j for j in self.jobs.values() if j.status is JobStatus.QUEUED)
        mine = [j for j in waiting if (j.cluster, j.spec.tenant_id) == (cluster, tenant_id)]
        return min(most, sum(class_of(j.spec.priority) == tier for j in mine))

    async def content_hash(self, user_id: str, job_id: str) -> tuple[str, str] | None:
        self._answer()
        return self.hashes.get((user_id, job_id))

    async def lead(self, holder: str, lease_s: float) -> LeaderStatus:
        raise AssertionError("the API does not lead")

    async def resign(self, holder: str, term: int) -> None:
        raise AssertionError("the API does not lead")

    async def tenants(self) -> Sequence[TenantRow]:
        self._answer()
        return [TenantRow(self.tenant_rows[name], Usage()) for name in sorted(self.tenant_rows)]

    async def holdings(self, tenant_id: str | None = None) -> Mapping[str, Holding]:
        held = holdings(self.jobs.values())
        return {name: each for name, each in held.items() if tenant_id in (None, name)}

    async def heads(self, wanted: Sequence[HeadsOf], limit: int) -> Sequence[Job]:
        raise NotImplementedError

    async def runs(self, since: datetime, limit: int) -> Sequence[Run]:
        raise NotImplementedError

    async def forecasts(self) -> Sequence[Forecast]:
        return self.said

    async def driven(self) -> Sequence[tuple[str, str]]:
        raise AssertionError("the API drives nothing")

    async def view(self, queue_limit: int, ask: Ask | None = None) -> View:
        raise AssertionError("the API takes no view")

    async def outbox(
        self, limit: int, topics: Collection[str] = (), *, besides: bool = True
    ) -> Sequence[OutboxRow]:
        raise AssertionError("the API relays nothing")

    async def published(self, outbox_ids: Sequence[int]) -> None:
        raise AssertionError("the API relays nothing")

    async def prune(self, rules: RetentionRules, batch: int) -> Mapping[str, int]:
        raise AssertionError("the API prunes nothing")

    # --- Reads ---

    async def job(self, job_id: str, user_id: str | None) -> JobRow:
        found = await self.find_job(job_id, user_id)
        return _row(found, self.whys.get(job_id, "no idle VM"), self.position)

    async def group(self, group: str, user_id: str | None) -> GroupRow:
        owner = await self.find_group(group, user_id)
        found = (j.status for j in self.jobs.values() if j.spec.group == group)
        return GroupRow(group, owner, Counter(found))

    async def list_jobs(
        self, where: JobFilter, size: int, token: str | None, offset: int = 0
    ) -> JobPage:
        self._answer()
        if token is not None and not token.isdigit():
            raise BadInput([Fault("page_token", token, "a next_page_token of ours")])
        found = [job for job in reversed(self.jobs.values()) if _matches(job, where)]
        start = int(token or offset)
        more = start + size < len(found)
        rows = tuple(_row(job) for job in found[start : start + size])
        return JobPage(rows, len(found), str(start + size) if more else None)

    async def events(self, uid: str, size: int, after: int) -> Sequence[EventRow]:
        rows = [EventRow(n, entry) for n, entry in enumerate(self.timeline[uid], 1)]
        return [row for row in rows if row.seq > after][:size]

    async def waits(self, uid: str) -> Sequence[WaitRow]:
        return self.wait_rows

    async def attempts(self, uid: str) -> Sequence[AttemptRow]:
        return self.attempt_rows

    async def milestones(self, uids: Sequence[str]) -> Mapping[str, Milestones]:
        self._answer()
        return {
            uid: Milestones({entry.to_status: entry.at for entry in self.timeline[uid]})
            for uid in uids
        }

    async def running_by_region(self) -> Mapping[tuple[str, str], int]:
        self._answer()
        running = (job for job in self.jobs.values() if job.status is JobStatus.RUNNING)
        return Counter((job.cluster, job.lease.region) for job in running if job.lease)

    async def vms(
        self, cluster: str | None, region: str | None, gone: bool, size: int, token: str | None
    ) -> VmPage:
        return VmPage(self.vm_rows[:size], len(self.vm_rows), None)

    async def region_statuses(self) -> Sequence[RegionStatus]:
        return self.statuses

    async def experience(self) -> Sequence[Experience]:
        return self.experience_rows

    async def troubles(self) -> Sequence[Trouble]:
        return self.trouble_rows

    async def alerts(self, open_only: bool, size: int) -> Sequence[AlertRow]:
        return [row for row in self.alert_rows if not open_only or row.cleared_at is None][:size]

    async def dead_letters(
        self, source: str | None, size: int, token: str | None
    ) -> DeadLetterPage:
        self._answer()
        found = [row for row in self.letters.values() if source in (None, row.letter.source)]
        return DeadLetterPage(tuple(found[:size]), len(found), None)

    async def dead_letter(self, message_id: str) -> DeadLetterRow:
        self._answer()
        if message_id not in self.letters:
            raise NotFound(f"there is no dead letter {message_id}")
        return self.letters[message_id]

    async def cost(self, question: CostQuestion) -> CostReport:
        self._answer()
        self.asked_cost = question
        tally = Tally(question, NOW)
        for life in self.lives:
            tally.add_life(life)
        return tally.report()

    async def spent(self) -> Mapping[str, Spent]:
        self._answer()
        return add_live_spend({}, self.lives, NOW)

    async def settle_costs(self, batch: int) -> Settled:
        raise NotImplementedError

    async def summary(self) -> Summary:
        self._answer()
        if self.the_summary is not None:
            return self.the_summary
        counts: Counter[tuple[str, JobStatus]] = Counter(
            (job.cluster, job.status) for job in self.jobs.values()
        )
        return Summary(NOW, "me", 3, NOW + timedelta(seconds=8), counts, (), None, 2, 1)

    def _answer(self) -> None:
        if self.down:
            raise StoreDown("the database does not answer")
        if self.broken:
            raise RuntimeError("a bug with a secret in its text")


class MemoryReads:
    """The same store behind the port whose `jobs` is a question."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.job = store.job
        self.jobs = store.list_jobs
        self.events = store.events
        self.group = store.group
        self.attempts = store.attempts
        self.waits = store.waits
        self.milestones = store.milestones
        self.running_by_region = store.running_by_region
        self.vms = store.vms
        self.region_statuses = store.region_statuses
        self.experience = store.experience
        self.troubles = store.troubles
        self.alerts = store.alerts
        self.dead_letters = store.dead_letters
        self.dead_letter = store.dead_letter
        self.cost = store.cost
        self.summary = store.summary


def _row(job: Job, why: str = "no idle VM", position: int = 1) -> JobRow:
    return JobRow(
        job, why if not job.status.final else "", position, None, None, {CostKind.USEFUL: 0.5}
    )


def _matches(job: Job, where: JobFilter) -> bool:
    return (
        where.user_id in (None, job.spec.user_id)
        and where.tenant_id in (None, job.spec.tenant_id)
        and where.cluster in (None, job.cluster)
        and where.group in (None, job.spec.group)
        and (not where.job_ids or job.spec.job_id in where.job_ids)
        and (not where.statuses or job.status in where.statuses)
        and all(job.spec.labels.get(key) == value for key, value in where.labels.items())
    )


@dataclass
class House:
    """The API over a store in memory, and a client."""

    store: MemoryStore = field(default_factory=MemoryStore)
    clock: StillClock = field(default_factory=StillClock)
    clusters: tuple[ClusterSpec, ...] = CLUSTERS
    logs: LogStore | None = None
    files: ObjectStore | None = None
    results_url: str | None = None
    max_body_bytes: int = 64 * 1024
    checks: Mapping[str, str] = field(default_factory=lambda: {"database": "ok", "bus": "ok"})
    metrics: Metrics = field(default_factory=Metrics)
    tenants: Mapping[str, TenantBudget] = field(default_factory=dict)
    cors_origins: tuple[str, ...] = ()
    door_rules: DoorRules | None = None
    """None: nobody asks who a tenant is."""

    def _door(self) -> Door | None:
        rules = self.door_rules
        return Door(self.store, lambda: rules, self.clock) if rules is not None else None

    def services(self) -> Services:
        async def readiness() -> Mapping[str, str]:
            return self.checks

        ids = RandomIds(random.Random(7))
        submissions = Submissions(
            self.store.write,
            self.store,
            lambda: self.clusters,
            Timers(),
            self.clock,
            ids,
            on_new=lambda job: self.metrics.job_moved(None, job),
            door=self._door(),
        )
        return Services(
            store=self.store,
            reads=MemoryReads(self.store),
            submissions=submissions,
            clusters=lambda: self.clusters,
            rules=lambda: RULES,
            names=Names(),
            clock=self.clock,
            ids=ids,
            metrics=self.metrics,
            readiness=readiness,
            logs=self.logs,
            shelf=Shelf(self.files) if self.files is not None else None,
            metas=JobMetas(self.files, lambda: self.results_url) if self.files else None,
            version="9.9",
            tenants=lambda: self.tenants,
            forecasts=KnownForecasts(self.store.forecasts, self.clock),
            max_body_bytes=self.max_body_bytes,
            cors_origins=self.cors_origins,
            log_poll_s=0.001,
        )

    def client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(create_app(self.services()))
        return httpx.AsyncClient(transport=transport, base_url="http://zen")

    def move(self, job_id: str, *events: JobEvent) -> Job:
        """Walks a stored job along its road."""
        job = next(job for (_, name), job in self.store.jobs.items() if name == job_id)
        for event in events:
            lease = LEASE if event is JobEvent.PLACED else None
            job = advance(job, event, NOW, RULES, lease=lease)
        self.store.jobs[job.key] = job
        return job


LEASE = Lease("lease1", "vm-1", "vm-uid-1", "us-central1", "us-central1-a", (0, 1))
TO_RUNNING = (JobEvent.ADMITTED, JobEvent.PLACED, JobEvent.CLAIMED, JobEvent.STARTED)


def assert_error(answer: httpx.Response, status: int, code: str) -> dict[str, object]:
    """The one shape of errors."""
    body: dict[str, object] = answer.json()
    assert answer.status_code == status, answer.text
    assert body["code"] == code
    assert body["error"] == body["message"] == body["detail"]
    assert isinstance(body["error"], str)
    assert body["error"]
    assert "Traceback" not in answer.text
    assert body["request_id"] == answer.headers["X-Request-Id"]
    assert isinstance(body["faults"], list)
    return body
