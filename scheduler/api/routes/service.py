"""The service about itself: status, health, readiness, alerts, metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from core.errors import StoreDown
from core.job import JobStatus
from core.reads import ServiceSummary
from core.vm import vm_word
from scheduler.api import examples
from scheduler.api.etas import KnownForecasts
from scheduler.api.http.endpoint import PREFIX, Endpoint, ResponseDoc, reply
from scheduler.api.http.params import Param, Query
from scheduler.api.http.problems import NotReady
from scheduler.api.services import OK, Services
from scheduler.api.shapes import JobState, Time, iso, iso_or_none, statuses_of
from scheduler.api.vm_shapes import AlertsOut, alert_out
from scheduler.operations.live_config import LiveConfig
from scheduler.operations.metrics import CONTENT_TYPE

ALERTS_MAX = 500
TAG = "service"
HEALTHY = "healthy"


class VmCountsOut(Struct, frozen=True):
    """VMs that are not gone."""

    requested: int
    booting: int
    idle: int
    busy: int
    draining: int
    deleting: int


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


class ServiceRoutes:
    """The handlers."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def status(self, _: Request, __: Query) -> Response:
        services = self._services
        summary = await services.reads.summary()
        embedded = services.embedded
        return reply(
            StatusOut(
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
                etas=await _etas(services.forecasts),
                config=_config(services.config),
                embedded=EmbeddedOut(embedded.vm_cap, embedded.note) if embedded else None,
                version=services.version,
            )
        )

    async def cluster_status(self, _: Request, __: Query) -> Response:
        summary = await self._services.reads.summary()
        gpus = {cluster.name: cluster.gpus for cluster in self._services.clusters()}
        jobs = _jobs(summary)
        ready = [row for row in summary.vms if row.state.ready]
        idle = [row for row in ready if not row.busy]
        return reply(
            ClusterStatusOut(
                total_nodes=sum(row.count for row in summary.vms),
                online_nodes=sum(row.count for row in ready),
                total_gpus=sum(row.count * gpus.get(row.cluster, 0) for row in summary.vms),
                available_gpus=sum(row.count * gpus.get(row.cluster, 0) for row in idle),
                total_jobs=sum(jobs.values()),
                running_jobs=sum(jobs[status] for status in statuses_of(JobState.RUNNING)),
                pending_jobs=sum(jobs[status] for status in statuses_of(JobState.PENDING)),
            )
        )

    async def alerts(self, _: Request, query: Query) -> Response:
        rows = await self._services.reads.alerts(not query.flag("all"), ALERTS_MAX)
        return reply(AlertsOut(tuple(alert_out(row) for row in rows)))

    async def health(self, _: Request, __: Query) -> Response:
        return reply(HealthOut(OK))

    async def healthy(self, _: Request, __: Query) -> Response:
        return reply(HealthyOut(HEALTHY, iso(self._services.clock.now())))

    async def ready(self, _: Request, __: Query) -> Response:
        checks = await self._services.readiness()
        failing = {name: said for name, said in checks.items() if said != OK}
        if failing:
            raise NotReady(checks, failing)
        return reply(ReadyOut("ready", checks))

    async def metrics(self, _: Request, __: Query) -> Response:
        metrics = self._services.metrics
        try:
            metrics.refresh(await self._services.reads.summary())
        except StoreDown:
            # The counters are this process's own: a scrape during an outage is worth most.
            metrics.refresh(None)
        return Response(metrics.text(), media_type=CONTENT_TYPE)


async def _etas(known: KnownForecasts | None) -> EtaStatusOut | None:
    if known is None:
        return None
    record = await known.record()
    return EtaStatusOut(record.told, record.p50_held, record.p90_held)


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


def endpoints(services: Services) -> list[Endpoint]:
    """What this file serves."""
    on = ServiceRoutes(services)
    every = Param("all", "flag", "Also cleared alerts.", default=False)
    return [
        Endpoint(
            method="GET",
            path=f"{PREFIX}/status",
            summary="The whole service at a glance",
            tag=TAG,
            handle=on.status,
            answers={200: ResponseDoc("Leader, jobs, VMs, alerts.", StatusOut, examples.STATUS)},
            errors=(422, 503),
        ),
        Endpoint(
            method="GET",
            path=f"{PREFIX}/cluster/status",
            summary="Nodes, GPUs and jobs, counted",
            tag=TAG,
            handle=on.cluster_status,
            answers={200: ResponseDoc("Counts.", ClusterStatusOut, examples.CLUSTER_STATUS)},
            errors=(422, 503),
        ),
        Endpoint(
            method="GET",
            path=f"{PREFIX}/alerts",
            summary=f"What a human should know; at most {ALERTS_MAX}, newest first",
            tag=TAG,
            handle=on.alerts,
            answers={200: ResponseDoc("Alerts.", AlertsOut, examples.ALERTS)},
            params=(every,),
            errors=(422, 503),
        ),
        Endpoint(
            method="GET",
            path=f"{PREFIX}/health",
            summary="Does the process live?",
            tag=TAG,
            handle=on.health,
            answers={200: ResponseDoc("It does.", HealthOut, {"status": OK})},
            errors=(422,),
        ),
        Endpoint(
            method="GET",
            path="/health",
            summary="Does the process live? As clients of other systems ask",
            tag=TAG,
            handle=on.healthy,
            answers={
                200: ResponseDoc(
                    "It does.",
                    HealthyOut,
                    {"status": HEALTHY, "timestamp": "2026-01-31T12:00:00.000Z"},
                )
            },
            errors=(422,),
        ),
        Endpoint(
            method="GET",
            path=f"{PREFIX}/ready",
            summary="Can the service work?",
            tag=TAG,
            handle=on.ready,
            answers={200: ResponseDoc("It can.", ReadyOut, examples.READY)},
            errors=(422, 503),
        ),
        Endpoint(
            method="GET",
            path="/metrics",
            summary="Prometheus metrics",
            tag=TAG,
            handle=on.metrics,
            answers={
                200: ResponseDoc(
                    "Text format 0.0.4.", None, "gpu_scheduler_leader 1.0\n", "text/plain"
                )
            },
            errors=(422,),
        ),
    ]
