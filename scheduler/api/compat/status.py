"""`GET /status` of REST version 1: clusters × regions, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from core.access import Right
from core.changes import RegionStatus
from core.client_statuses import WORDS
from core.cluster import ClusterSpec
from core.job import JobStatus
from core.names import Names
from core.reads import AlertRow, ServiceSummary
from scheduler.api.caller import ApiCaller
from scheduler.api.compat.customer import TAG, v1_time
from scheduler.api.http.endpoint import Routes, route
from scheduler.api.services import Services

ACTIVITIES_MAX = 50
RUNNING = frozenset({JobStatus.RUNNING, JobStatus.PREEMPTING, JobStatus.STOPPING})
PENDING = frozenset(
    {JobStatus.QUEUED, JobStatus.PROVISIONING, JobStatus.ASSIGNED, JobStatus.STARTING}
)


class OverallOut(Struct, frozen=True):
    """The whole house."""

    total_jobs: int
    running_jobs: int
    pending_jobs: int
    completed_jobs: int
    failed_jobs: int
    total_clusters: int
    total_running_vms: int
    total_target_vms: int


class V1ClusterJobsOut(Struct, frozen=True):
    """Jobs of a cluster that have not ended."""

    running: int
    pending: int


class V1RegionJobsOut(Struct, frozen=True):
    """Jobs of a region."""

    running: int


class V1RegionOut(Struct, frozen=True):
    """A managed instance group."""

    region: str
    mig_name: str
    target_size: int
    current_size: int
    jobs: V1RegionJobsOut


class ClusterSummaryOut(Struct, frozen=True):
    """A cluster over all its regions."""

    total_regions: int
    active_regions: int
    total_running_vms: int
    total_target_vms: int
    jobs: V1ClusterJobsOut


class V1ClusterOut(Struct, frozen=True):
    """A cluster."""

    name: str
    cluster_summary: ClusterSummaryOut
    regions: tuple[V1RegionOut, ...]


class ActivityOut(Struct, frozen=True):
    """Something that was done or noticed."""

    timestamp: str
    activity: str


class V1StatusOut(Struct, frozen=True):
    """Everything at a glance."""

    overall_summary: OverallOut
    clusters: tuple[V1ClusterOut, ...]
    timestamp: str
    recent_activities: tuple[ActivityOut, ...]
    cluster_status: Mapping[str, Mapping[str, tuple[int, int]]]
    """For older clients: cluster → region → target size and VMs."""
    running_jobs: int
    pending_jobs: int
    scheduler_id: str
    """This and what follows: for clients that submit a `definition`. Every replica answers for the
    leader."""
    current_leader: str | None
    is_leader: bool
    redis_connected: bool
    """Whether the store answers; theirs is Redis."""
    uptime_seconds: float
    queue_size: int
    claimed_jobs: int
    job_stats: Mapping[str, int]


class CustomerStatusRoutes(Routes):
    """The status of REST version 1."""

    tag = TAG
    lenient = True

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._since = services.clock.monotonic()

    @route("GET /status", Right.FLEET_READ, "Counts.")
    async def status(self, caller: ApiCaller) -> V1StatusOut:
        """Clusters × regions, and the jobs that the caller may see, counted (v1)."""
        reads = self._services.reads
        summary = await self._services.summary_of(caller)
        statuses = await reads.region_statuses()
        running = await self._services.running_by_region_of(caller)
        sizes = Sizes(self._services.names, summary, statuses, running)
        clusters = tuple(sizes.cluster(spec) for spec in self._services.clusters())
        overall = _overall(summary, clusters)
        sees_alerts = caller.may(Right.FLEET_OPERATE)
        alerts = await reads.alerts(False, ACTIVITIES_MAX) if sees_alerts else ()
        return V1StatusOut(
            overall_summary=overall,
            clusters=clusters,
            timestamp=v1_time(summary.now),
            # Alerts may name tenants.
            recent_activities=_activities(statuses, alerts),
            cluster_status={
                cluster.name: {r.region: (r.target_size, r.current_size) for r in cluster.regions}
                for cluster in clusters
            },
            running_jobs=overall.running_jobs,
            pending_jobs=overall.pending_jobs,
            scheduler_id=summary.leader,
            current_leader=summary.leader or None,
            is_leader=bool(summary.leader),
            redis_connected=True,
            uptime_seconds=self._services.clock.monotonic() - self._since,
            queue_size=overall.pending_jobs,
            claimed_jobs=overall.running_jobs,
            job_stats=by_state(summary),
        )


class Sizes:
    """Counts of one moment."""

    def __init__(
        self,
        names: Names,
        summary: ServiceSummary,
        statuses: Iterable[RegionStatus],
        running: Mapping[tuple[str, str], int],
    ) -> None:
        self._names, self._jobs, self._running = names, summary.jobs, running
        self._targets = {(row.cluster, row.region): row.target_size for row in statuses}
        self._up: Counter[tuple[str, str]] = Counter()
        for row in summary.vms:
            if row.state.up:
                self._up[row.cluster, row.region] += row.count

    def cluster(self, spec: ClusterSpec) -> V1ClusterOut:
        regions = tuple(self._region(spec.name, region.region) for region in spec.regions)
        pending = sum(self._jobs.get((spec.name, status), 0) for status in PENDING)
        running = sum(self._jobs.get((spec.name, status), 0) for status in RUNNING)
        return V1ClusterOut(
            name=spec.name,
            cluster_summary=ClusterSummaryOut(
                total_regions=len(regions),
                active_regions=sum(r.target_size > 0 or r.current_size > 0 for r in regions),
                total_running_vms=sum(r.current_size for r in regions),
                total_target_vms=sum(r.target_size for r in regions),
                jobs=V1ClusterJobsOut(running, pending),
            ),
            regions=regions,
        )

    def _region(self, cluster: str, region: str) -> V1RegionOut:
        key = (cluster, region)
        return V1RegionOut(
            region=region,
            mig_name=self._names.mig(cluster, region),
            target_size=self._targets.get(key, 0),
            current_size=self._up[key],
            jobs=V1RegionJobsOut(self._running.get(key, 0)),
        )


def _overall(summary: ServiceSummary, clusters: Sequence[V1ClusterOut]) -> OverallOut:
    counts: Counter[JobStatus] = Counter()
    for (_, status), count in summary.jobs.items():
        counts[status] += count
    return OverallOut(
        total_jobs=counts.total(),
        running_jobs=sum(counts[status] for status in RUNNING),
        pending_jobs=sum(counts[status] for status in PENDING),
        completed_jobs=counts[JobStatus.SUCCEEDED],
        failed_jobs=counts[JobStatus.FAILED],
        total_clusters=len(clusters),
        total_running_vms=sum(c.cluster_summary.total_running_vms for c in clusters),
        total_target_vms=sum(c.cluster_summary.total_target_vms for c in clusters),
    )


def by_state(summary: ServiceSummary) -> dict[str, int]:
    """Jobs counted in the words of clients that submit a `definition`."""
    found = dict.fromkeys((words.definition for words in WORDS.values()), 0)
    for (_, status), count in summary.jobs.items():
        found[WORDS[status].definition] += count
    return found


def _activities(
    statuses: Iterable[RegionStatus], alerts: Iterable[AlertRow]
) -> tuple[ActivityOut, ...]:
    found = [
        (row.observed_at, f"{row.cluster} in {row.region}: {row.why}")
        for row in statuses
        if row.observed_at is not None and row.why
    ]
    found += [(row.last_seen_at, f"{row.kind} {row.subject}: {row.message}") for row in alerts]
    found.sort(reverse=True)
    return tuple(ActivityOut(v1_time(at), words) for at, words in found[:ACTIVITIES_MAX])
