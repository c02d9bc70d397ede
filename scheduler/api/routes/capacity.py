"""Clusters × regions, and VMs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from core.access import Right
from core.changes import RegionStatus
from core.cluster import ClusterSpec
from core.job import JobStatus
from core.reads import ServiceSummary
from core.region_blocks import RegionBlock, block_on
from core.vm import vm_word
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import Routes, route
from scheduler.api.http.params import Param, Query
from scheduler.api.routes.jobs import PAGE_SIZE, PAGE_TOKEN
from scheduler.api.shapes import Time, iso, iso_or_none, shaped
from scheduler.api.vm_shapes import VmCountsOut, VmsOut, vm_out

TAG = "capacity"


class ClusterJobsOut(Struct, frozen=True):
    """Jobs of a cluster that have not ended."""

    queued: int
    provisioning: int
    assigned: int
    starting: int
    running: int
    preempting: int
    stopping: int


class BlockOut(Struct, frozen=True):
    """Why a region is left alone for now."""

    kind: str
    until: Time
    message: str


class RegionOut(VmCountsOut, frozen=True, kw_only=True):
    """A cluster in one region."""

    region: str
    zones: tuple[str, ...]
    usd_per_hour: float | None
    """Null: the configuration has withdrawn the region, and its last VMs are leaving."""
    target: int
    blocked: BlockOut | None
    why: str
    observed_at: Time | None


class ClusterOut(Struct, frozen=True):
    """A cluster over all its regions."""

    name: str
    gpu_type: str
    gpus: int
    machine_type: str
    spot: bool
    share: bool
    """Several jobs on one VM."""
    drain: bool
    """It is being emptied: no new jobs, no new VMs."""
    vm_max: int
    vm_min: int
    worker: str
    jobs: ClusterJobsOut
    vms: int
    burn_usd_per_hour: float
    regions: tuple[RegionOut, ...]


class ClustersOut(Struct, frozen=True):
    """All clusters of the configuration."""

    clusters: tuple[ClusterOut, ...]


Counts = Mapping[tuple[str, str, str], int]
"""(cluster, region, word) → VMs."""


class CapacityRoutes(Routes):
    """Clusters and VMs."""

    tag = TAG

    @route("GET /api/v1/clusters", Right.FLEET_READ, "All clusters.")
    async def clusters(self, caller: ApiCaller) -> ClustersOut:
        """Clusters × regions: what runs, what is blocked, and why. Jobs that the caller may see are
        counted."""
        reads = self._services.reads
        summary = await self._services.summary_of(caller)
        statuses = await reads.region_statuses()
        blocks = await reads.blocks()
        known = clusters_out(self._services.clusters(), summary, statuses, blocks)
        return ClustersOut(known)

    @route(
        "GET /api/v1/vms",
        Right.FLEET_OPERATE,
        "A page of VMs.",
        params=(
            Param("cluster", "text", "Only of this cluster."),
            Param("region", "text", "Only in this region."),
            Param("gone", "flag", "Also deleted VMs.", default=False),
            PAGE_SIZE,
            PAGE_TOKEN,
        ),
    )
    async def vms(self, query: Query) -> VmsOut:
        """VMs, newest first."""
        cluster, region = query.text("cluster"), query.text("region")
        page = await self._services.reads.vms(
            cluster,
            region,
            query.flag("gone"),
            query.whole("page_size"),
            query.text("page_token"),
        )
        if not page.total:
            self._services.refuse_unknown_place(cluster, region)
        now = self._services.clock.now()
        rows = tuple(vm_out(row, now) for row in page.rows)
        return VmsOut(rows, page.total, page.next_token, page.total_exact)


def clusters_out(
    clusters: Sequence[ClusterSpec],
    summary: ServiceSummary,
    statuses: Iterable[RegionStatus],
    blocks: Sequence[RegionBlock],
) -> tuple[ClusterOut, ...]:
    """Configuration, counts and reasons, brought together."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in summary.vms:
        counts[row.cluster, row.region, vm_word(row.state, row.busy)] += row.count
    seen = {(status.cluster, status.region): status for status in statuses}
    return tuple(
        shaped(
            ClusterOut,
            cluster,
            jobs=_jobs(cluster.name, summary),
            vms=sum(row.count for row in summary.vms if row.cluster == cluster.name),
            burn_usd_per_hour=round(summary.burn_usd_per_hour.get(cluster.name, 0.0), 6),
            regions=tuple(
                _region(
                    cluster,
                    region,
                    counts,
                    seen.get((cluster.name, region)),
                    block_out(blocks, cluster, region, summary.now),
                )
                for region in _regions(cluster, counts)
            ),
        )
        for cluster in clusters
    )


def _regions(cluster: ClusterSpec, counts: Counts) -> list[str]:
    """The configured ones, and withdrawn ones that still hold VMs: a VM that is counted
    is shown somewhere."""
    named = [region.region for region in cluster.regions]
    held = {region for (name, region, _), count in counts.items() if name == cluster.name and count}
    return [*named, *sorted(held - set(named))]


def _jobs(cluster: str, summary: ServiceSummary) -> ClusterJobsOut:
    live = {
        status.lower(): summary.jobs.get((cluster, status), 0)
        for status in JobStatus
        if not status.final
    }
    return ClusterJobsOut(**live)


def _region(
    cluster: ClusterSpec,
    region: str,
    counts: Counts,
    status: RegionStatus | None,
    block: BlockOut | None,
) -> RegionOut:
    spec = next((known for known in cluster.regions if known.region == region), None)
    return RegionOut(
        region=region,
        zones=spec.zones if spec else (),
        usd_per_hour=cluster.usd_per_hour(region) if spec else None,
        target=status.target_size if status else 0,
        **{
            word: counts.get((cluster.name, region, word), 0)
            for word in VmCountsOut.__struct_fields__
        },
        blocked=block,
        why=status.why if status else "",
        observed_at=iso_or_none(status.observed_at) if status else None,
    )


def block_out(
    blocks: Sequence[RegionBlock], cluster: ClusterSpec, region: str, now: datetime
) -> BlockOut | None:
    """The block that ends last: a block of one zone holds the whole group of a region."""
    last = block_on(blocks, cluster, region, now)
    return BlockOut(str(last.kind), iso(last.until), last.message) if last else None
