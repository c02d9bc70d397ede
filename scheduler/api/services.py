"""What the API stands on; app.py of the service fills it in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from starlette.requests import Request

from config.live import LiveSettings
from config.settings import ApiSettings
from core.access_rules import AccessRules
from core.access_store import AccessStore
from core.audit_store import AuditLog
from core.cluster import ClusterSpec
from core.errors import BadInput
from core.job import Job
from core.names import Names
from core.ports import Clock, Ids, Store
from core.reads import FleetReads, ServiceSummary
from core.sessions import SessionStore
from core.submission import unknown, unknown_cluster
from identity.verifier import TokenVerifier
from scheduler.access.authenticator import Authenticator
from scheduler.access.people import People
from scheduler.access.sessions import BrowserSessions
from scheduler.api.caller import ApiCaller, Stop, TenantReads, caller_of
from scheduler.api.etas import KnownForecasts
from scheduler.api.job_meta import JobMetas
from scheduler.api.manifests import ManifestCache
from scheduler.operations.audit_anchors import AuditAnchors
from scheduler.operations.live_config import LiveConfig
from scheduler.operations.metrics import Metrics
from scheduler.operations.stop import Stopped, StopRequest, stop_job
from scheduler.secrets.tenant_secrets import TenantSecrets
from scheduler.submission.submit import Submissions
from scheduler.uploads.code_trees import CodeTrees
from stores.base import LogStore

OK = "ok"
Readiness = Callable[[], Awaitable[Mapping[str, str]]]
"""Name of each check → "ok", or what is wrong."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """Said where people look when this is not a real deployment."""

    vm_cap: int
    note: str


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Who may call, and what they did."""

    store: AccessStore
    authenticator: Authenticator
    audit_log: AuditLog
    people: People
    sessions: BrowserSessions
    anchors: AuditAnchors | None = None
    """Where heads of the log's chain are; None: nowhere."""

    @classmethod
    def over(
        cls,
        store: AccessStore,
        sessions: SessionStore,
        audit_log: AuditLog,
        rules: Callable[[], AccessRules],
        clock: Clock,
        ids: Ids,
    ) -> ApiAccess:
        """Keys, people and browsers under the rules in force."""
        people = People(store, TokenVerifier(rules, clock), rules, clock)
        browsers = BrowserSessions(sessions, rules, clock, ids)
        authenticator = Authenticator(store, clock, people, browsers, lambda: rules().roles)
        return cls(store, authenticator, audit_log, people, browsers)


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a route may use."""

    store: Store
    reads: FleetReads
    """What concerns no tenant in particular; jobs: `reads_of`."""
    bound_reads: Callable[[ApiCaller], TenantReads]
    access: ApiAccess
    secrets: TenantSecrets
    submissions: Submissions
    settings: LiveSettings
    clock: Clock
    ids: Ids
    metrics: Metrics
    readiness: Readiness
    logs: LogStore | None = None
    """None: this deployment keeps no logs."""
    shelf: ManifestCache | None = None
    """Stored outputs; None: this deployment keeps none."""
    metas: JobMetas | None = None
    """What jobs say of themselves; None: this deployment keeps nothing."""
    code: CodeTrees | None = None
    """Code of jobs; None: this deployment takes none."""
    version: str = ""
    embedded: Embedded | None = None
    forecasts: KnownForecasts | None = None
    """When waiting jobs will start; None: nobody says."""
    config: LiveConfig | None = None
    """None: the configuration does not change while this runs."""
    api: ApiSettings = field(default_factory=ApiSettings)
    """What a request may look like, and which web pages may call."""
    log_poll_s: float = 0.2
    """First pause of a waiting log request; each further one is longer, up to a second."""

    def reads_of(self, request: Request) -> TenantReads:
        """What the caller of a request may know of jobs."""
        return self.bound_reads(caller_of(request))

    async def summary_of(self, caller: ApiCaller) -> ServiceSummary:
        """The whole service, with numbers of the jobs that the caller may see. VMs, messages and
        alerts are counted for everybody."""
        summary = await self.reads.summary()
        if caller.counted_tenants.every:
            return summary
        own = await self.bound_reads(caller).counts()
        return replace(summary, jobs=own.jobs, oldest_waiting_since=own.oldest_waiting_since)

    async def running_by_region_of(self, caller: ApiCaller) -> Mapping[tuple[str, str], int]:
        """(cluster, region) → jobs that compute there and that the caller may see."""
        if caller.counted_tenants.every:
            return await self.reads.running_by_region()
        return (await self.bound_reads(caller).counts()).running

    def clusters(self) -> tuple[ClusterSpec, ...]:
        """As configured right now."""
        return self.settings.current.clusters

    def refuse_unknown_place(self, cluster: str | None, region: str | None = None) -> None:
        """BadInput for a filter by a cluster or a region that is not configured. Asked only when
        nothing was found: what is left of a cluster that was configured once is shown."""
        clusters = self.clusters()
        faults = []
        if cluster is not None and cluster not in (names := [c.name for c in clusters]):
            faults.append(unknown_cluster(cluster, names))
        regions = {place.region for c in clusters for place in c.regions}
        if region is not None and region not in regions:
            faults.append(unknown("region", region, regions, "region"))
        if faults:
            raise BadInput(faults)

    @property
    def names(self) -> Names:
        return self.settings.current.names

    async def stop(self, job: Job, stop: Stop) -> Stopped:
        """Ask a job to stop, whichever vocabulary the caller speaks."""
        stop.caller.check_owns(job)
        request = self.stop_request(stop)
        stopped = await stop_job(self.store, job.key, request)
        if stopped.before is not None:
            self.metrics.job_moved(stopped.before, stopped.job)
        return stopped

    def stop_request(self, stop: Stop) -> StopRequest:
        rules, now = self.settings.current.rules, self.clock.now()
        return StopRequest(stop.reason, rules, self.names, now, stop.by, stop.caller.actor)
