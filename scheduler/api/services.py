"""What the API stands on; app.py of the service fills it in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from config.live import LiveSettings
from config.settings import ApiSettings
from core.cluster import ClusterSpec
from core.errors import BadInput
from core.names import Names
from core.ports import Clock, Ids, Store
from core.reads import Reads
from core.submission import unknown, unknown_cluster
from scheduler.api.etas import KnownForecasts
from scheduler.api.job_meta import JobMetas
from scheduler.api.manifests import ManifestCache
from scheduler.operations.live_config import LiveConfig
from scheduler.operations.metrics import Metrics
from scheduler.operations.stop import Stopped, StopRequest, stop_job
from scheduler.submission.submit import Submissions
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
class Services:
    """Everything a route may use."""

    store: Store
    reads: Reads
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

    async def stop(
        self, job_id: str, user_id: str, reason: str, *, by: Mapping[str, str]
    ) -> Stopped:
        """Ask a job to stop, whichever vocabulary the caller speaks."""
        request = self.stop_request(reason, by)
        stopped = await stop_job(self.store, job_id, user_id, request)
        if stopped.before is not None:
            self.metrics.job_moved(stopped.before, stopped.job)
        return stopped

    def stop_request(self, reason: str, by: Mapping[str, str]) -> StopRequest:
        return StopRequest(reason, self.settings.current.rules, self.names, self.clock.now(), by)
