"""The API over the in-memory store of sim/, for tests of the API alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx

from config.live import LiveSettings
from config.settings import ApiSettings, Settings
from core.access_store import KnownKey
from core.changes import Change, JobMove, NewJob
from core.cluster import ClusterSpec, RegionSpec
from core.commit import judge, wanted
from core.commit_writes import fold
from core.cost import TenantBudget
from core.ids import RandomIds
from core.job import Job, JobEvent, Lease, Rules, TimelineEntry
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, entry_for, new_job
from core.messages import OutMessage
from core.tenants import Tenant
from scheduler.api.caller import TenantReads
from scheduler.api.etas import KnownForecasts
from scheduler.api.http.app import create_app
from scheduler.api.job_meta import JobMetas
from scheduler.api.manifests import ManifestCache
from scheduler.api.services import Services
from scheduler.operations.metrics import Metrics
from scheduler.secrets.tenant_secrets import TenantSecrets
from scheduler.secrets.vault import SecretVault
from scheduler.submission.submit import SubmissionPorts, Submissions
from scheduler.submission.tenant_access import TenantAccess
from scheduler.uploads.code_trees import CodeTrees
from sim.memory.code import MemoryCode
from sim.memory.reads import MemoryReads
from sim.memory.secrets import MemorySecrets
from sim.memory.store import MemoryStore
from sim.memory.tables import Tables
from sim.memory.writes import apply, known_of
from stores.base import LogStore, ObjectStore
from tests.access import OWNER, bearer, owner_only
from tests.builders import settings as settings_of

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
RULES = Rules()
AS_JSON = {"content-type": "application/json"}


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


class OrderedIds(RandomIds):
    """What is submitted later sorts later, also within one moment."""

    def __init__(self) -> None:
        self.throw_again()
        self._made = 0

    def throw_again(self) -> None:
        """The dice fall as they did at first."""
        self._dice = random.Random(7)

    def uid(self, now: datetime) -> str:
        self._made += 1
        return f"00000000-0000-7000-8000-{self._made:012x}"


class HouseSettings(LiveSettings):
    """As the house has them now: tests change its fields."""

    def __init__(self, house: House) -> None:
        self._house = house

    @property
    def current(self) -> Settings:
        house = self._house
        return settings_of(
            *house.clusters,
            tenants=house.tenants,
            v1_results_url=house.results_url,
            **(house.door or {}),
        )


@dataclass
class House:
    """The API over the in-memory store, and a client."""

    clock: StillClock = field(default_factory=StillClock)
    ids: OrderedIds = field(default_factory=OrderedIds)
    clusters: tuple[ClusterSpec, ...] = CLUSTERS
    logs: LogStore | None = None
    files: ObjectStore | None = None
    results_url: str | None = None
    max_body_bytes: int = 64 * 1024
    checks: Mapping[str, str] = field(default_factory=lambda: {"database": "ok", "bus": "ok"})
    metrics: Metrics = field(default_factory=Metrics)
    tenants: Mapping[str, TenantBudget] = field(default_factory=dict)
    cors_origins: tuple[str, ...] = ()
    door: Mapping[str, object] | None = None
    """Settings for tenants; None: nobody asks who a tenant is."""
    keys: tuple[KnownKey, ...] = ()
    """Who may call besides the owner."""
    vault: SecretVault | None = field(default_factory=lambda: SecretVault([bytes(32)]))
    races: list[Job] = field(default_factory=list)
    """Each commit is beaten by one of these."""

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock, on_commit=self._lose_race)
        self.reads = MemoryReads(self.store)
        self.secrets = MemorySecrets(self.tables.audit_log)
        self.code = MemoryCode()

    # --- what is stored ---

    @property
    def tables(self) -> Tables:
        return self.store.tables

    @property
    def jobs(self) -> dict[tuple[str, str], Job]:
        """By user and job id."""
        return {record.job.v1_key: record.job for record in self.tables.jobs.values()}

    @property
    def sent(self) -> list[OutMessage]:
        return list(self.tables.outbox.values())

    def timeline(self, job: Job) -> list[TimelineEntry]:
        return [row.entry for row in self.tables.jobs[job.uid].events]

    def write(self, *changes: Change) -> None:
        """One atomic batch, at once and past every hook: what the rest of the service did."""
        locked = known_of(self.tables, wanted([changes]))
        refusals = judge([changes], locked.known)
        assert not refusals, refusals
        apply(self.tables, fold([changes]), locked)

    def put_tenant(self, tenant: Tenant) -> None:
        """As it is, whatever its version."""
        self.tables.tenants[tenant.tenant_id] = tenant

    def queue_before(self, count: int, spec: JobSpec) -> None:
        """So many jobs like this one came an hour ago."""
        before = NOW - timedelta(hours=1)
        for number in range(count):
            like = replace(spec, job_id=f"before-{number}")
            job = new_job(self.ids.uid(before), like, "1xl4", before)
            self.write(NewJob(job, entry_for(None, job, JobEvent.SUBMITTED), ""))

    def answer(self, question: str, value: object) -> None:
        """This question of Reads is answered so, for pages whose figures would need a fleet."""

        async def told(*_: object) -> object:
            await self.store.reach()
            return value

        setattr(self.reads, question, told)

    async def _lose_race(self, stage: str) -> None:
        if stage == "before" and self.races:
            self.tables.set_job(self.races.pop(0))

    async def _has_code(self, tenant_id: str, code: str) -> bool:
        return await self.code.use_tree(tenant_id, code, self.clock.now()) is not None

    def _code_trees(self, settings: LiveSettings) -> CodeTrees | None:
        if self.files is None:
            return None
        return CodeTrees(self.code, self.files, self.clock, self.ids, lambda: settings.current.code)

    def services(self) -> Services:
        async def readiness() -> Mapping[str, str]:
            return self.checks

        settings = HouseSettings(self)
        submissions = Submissions(
            SubmissionPorts(self.store.write, self.store, self.clock, self.ids),
            settings,
            on_new=self.metrics.submitted,
            door=TenantAccess(self.store, settings, self.clock, has_code=self._has_code)
            if self.door is not None
            else None,
        )
        return Services(
            store=self.store,
            reads=self.reads,
            bound_reads=partial(TenantReads, self.reads),
            access=owner_only(
                self.clock, self.store, *self.keys, rules=lambda: settings.current.access
            ),
            secrets=TenantSecrets(self.secrets, self.vault, self.ids),
            submissions=submissions,
            settings=settings,
            clock=self.clock,
            ids=self.ids,
            metrics=self.metrics,
            readiness=readiness,
            logs=self.logs,
            shelf=ManifestCache(self.files) if self.files is not None else None,
            metas=JobMetas(self.files, settings) if self.files else None,
            code=self._code_trees(settings),
            version="9.9",
            forecasts=KnownForecasts(self.store.forecasts, self.clock),
            api=ApiSettings(max_body_bytes=self.max_body_bytes, cors_origins=self.cors_origins),
            log_poll_s=0.001,
        )

    def client(self, key: str = OWNER) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(create_app(self.services()))
        return httpx.AsyncClient(transport=transport, base_url="http://zen", headers=bearer(key))

    def move(self, job_id: str, *events: JobEvent) -> Job:
        """Walks a stored job along its road."""
        job = next(job for (_, name), job in self.jobs.items() if name == job_id)
        for event in events:
            lease = LEASE if event is JobEvent.PLACED else None
            after = advance(job, event, NOW, RULES, facts=EventFacts(lease=lease))
            self.write(JobMove(job, after, (entry_for(job, after, event),)))
            job = after
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
