"""The service about itself: status, health, readiness, alerts, metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct
from starlette.responses import Response

from core.access import PUBLIC, Right
from core.errors import StoreDown
from core.job import JobStatus
from core.reads import ServiceSummary
from core.vm import vm_word
from scheduler.api.caller import ApiCaller
from scheduler.api.etas import KnownForecasts
from scheduler.api.http.endpoint import ResponseDoc, Routes, route
from scheduler.api.http.params import Param, Query
from scheduler.api.http.problems import NotReady
from scheduler.api.services import OK
from scheduler.api.shapes import JobState, Time, iso, iso_or_none, shaped, statuses_of
from scheduler.api.vm_shapes import AlertsOut, VmCountsOut, alert_out
from scheduler.operations.live_config import LiveConfig
from scheduler.operations.metrics import CONTENT_TYPE

ALERTS_MAX = 500


class EmbeddedOut(Struct, frozen=True):
    """This is no real deployment, and this is how it is limited."""

    vm_cap: int
    note: str


class ConfigStatusOut(Struct, frozen=True):
    """Which configuration is in force here, and how this replica's file stands to it."""

    version: int
    since: Time | None
    file: str
    state: str
    faults: int


class EtaStatusOut(Struct, frozen=True):
    """How true the ETAs were: of the jobs that were told one and have started."""

    told: int
    p50_held: int
    """So many started before the first p50 that they were told."""
    p90_held: int


class StatusOut(Struct, frozen=True):
    """The whole house at a glance."""

    now: Time
    leader: str
    term: int
    leader_until: Time | None
    jobs: Mapping[str, int]
    vms: VmCountsOut
    clusters: int
    oldest_waiting_since: Time | None
    outbox: int
    open_alerts: int
    burn_usd_per_hour: float
    etas: EtaStatusOut | None
    config: ConfigStatusOut | None
    embedded: EmbeddedOut | None
    version: str


class ClusterStatusOut(Struct, frozen=True):
    """The same in the words of multi-tenant clients."""

    total_nodes: int
    online_nodes: int
    total_gpus: int
    available_gpus: int
    total_jobs: int
    running_jobs: int
    pending_jobs: int


class HealthOut(Struct, frozen=True):
    """The process lives."""

    status: str


class HealthyOut(Struct, frozen=True):
    """The process lives, in the words of other systems' clients."""

    status: str
    timestamp: Time


class ReadyOut(Struct, frozen=True):
    """The service can work."""

    status: str
    checks: Mapping[str, str]


class ServiceRoutes(Routes):
    """Status, health and metrics."""

    tag = "service"

    @route("GET /api/v1/status", Right.FLEET_READ, "Leader, jobs, VMs, alerts.")
    async def status(self, caller: ApiCaller) -> StatusOut:
        """The whole service at a glance.

        `jobs`, `oldest_waiting_since` and `etas` are about jobs that the caller may see; `etas` is
        null for callers who do not see all tenants.
        """
        services = self._services
        summary = await services.summary_of(caller)
        embedded = services.embedded
        return StatusOut(
            now=iso(summary.now),
            leader=summary.leader,
            term=summary.term,
            leader_until=iso_or_none(summary.leader_until),
            jobs=_jobs(summary),
            vms=_vms(summary),
            clusters=len(services.clusters()),
            oldest_waiting_since=iso_or_none(summary.oldest_waiting_since),
            outbox=summary.outbox,
            open_alerts=sum(summary.open_alerts.values()),
            burn_usd_per_hour=round(sum(summary.burn_usd_per_hour.values()), 6),
            etas=await _etas(services.forecasts) if caller.counted_tenants.every else None,
            config=_config(services.config),
            embedded=shaped(EmbeddedOut, embedded) if embedded else None,
            version=services.version,
        )

    @route("GET /api/v1/cluster/status", Right.FLEET_READ, "Counts.")
    async def cluster_status(self, caller: ApiCaller) -> ClusterStatusOut:
        """Nodes, GPUs and the jobs that the caller may see, counted."""
        summary = await self._services.summary_of(caller)
        gpus = {cluster.name: cluster.gpus for cluster in self._services.clusters()}
        jobs = _jobs(summary)
        ready = [row for row in summary.vms if row.state.ready]
        idle = [row for row in ready if not row.busy]
        return ClusterStatusOut(
            total_nodes=sum(row.count for row in summary.vms),
            online_nodes=sum(row.count for row in ready),
            total_gpus=sum(row.count * gpus.get(row.cluster, 0) for row in summary.vms),
            available_gpus=sum(row.count * gpus.get(row.cluster, 0) for row in idle),
            total_jobs=sum(jobs.values()),
            running_jobs=sum(jobs[status] for status in statuses_of(JobState.RUNNING)),
            pending_jobs=sum(jobs[status] for status in statuses_of(JobState.PENDING)),
        )

    @route(
        "GET /api/v1/alerts",
        Right.FLEET_OPERATE,
        f"Alerts, at most {ALERTS_MAX}.",
        params=(Param("all", "flag", "Also cleared alerts.", default=False),),
    )
    async def alerts(self, query: Query) -> AlertsOut:
        """What a human should know, newest first."""
        rows = await self._services.reads.alerts(not query.flag("all"), ALERTS_MAX)
        return AlertsOut(tuple(alert_out(row) for row in rows))

    @route("GET /api/v1/health", PUBLIC, "It does.")
    async def health(self) -> HealthOut:
        """Does the process live?"""
        return HealthOut(OK)

    @route("GET /health", PUBLIC, "It does.")
    async def healthy(self) -> HealthyOut:
        """Does the process live? As clients of other systems ask."""
        return HealthyOut("healthy", iso(self._services.clock.now()))

    @route("GET /api/v1/ready", PUBLIC, "It can.", errors=(503,))
    async def ready(self) -> ReadyOut:
        """Can the service work?"""
        checks = await self._services.readiness()
        failing = {name: said for name, said in checks.items() if said != OK}
        if failing:
            raise NotReady(checks, failing)
        return ReadyOut("ready", checks)

    @route(
        "GET /metrics",
        Right.METRICS_READ,
        ResponseDoc(
            "Text format 0.0.4.", text="gpu_scheduler_leader 1.0\n", content_type="text/plain"
        ),
    )
    async def metrics(self) -> Response:
        """Prometheus metrics."""
        metrics = self._services.metrics
        try:
            metrics.refresh(await self._services.reads.summary())
        except StoreDown:
            # The counters are this process's own: a scrape during an outage is worth most.
            metrics.refresh(None)
        return Response(metrics.text(), media_type=CONTENT_TYPE)


async def _etas(known: KnownForecasts | None) -> EtaStatusOut | None:
    return None if known is None else shaped(EtaStatusOut, await known.record())


def _config(live: LiveConfig | None) -> ConfigStatusOut | None:
    if live is None:
        return None
    report, version = live.report, live.version
    return ConfigStatusOut(
        version=version.version if version else 0,
        since=iso(version.at) if version else None,
        file=report.path,
        state=str(report.standing),
        faults=len(report.faults),
    )


def _jobs(summary: ServiceSummary) -> dict[str, int]:
    counts = dict.fromkeys((str(status) for status in JobStatus), 0)
    for (_, status), count in summary.jobs.items():
        counts[status] += count
    return counts


def _vms(summary: ServiceSummary) -> VmCountsOut:
    counts: Counter[str] = Counter()
    for row in summary.vms:
        counts[vm_word(row.state, row.busy)] += row.count
    return VmCountsOut(**{word: counts[word] for word in VmCountsOut.__struct_fields__})
