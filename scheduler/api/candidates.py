"""A submission that is only asked about: where it could run, at what price, how soon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from core.cluster import ClusterSpec, SupplyKey
from core.forecast import Forecast
from core.job import WAITING
from core.reads import ServiceSummary
from core.region_blocks import RegionBlock, block_on
from core.supply import (
    SupplyHistory,
    regional,
    success_probability,
    usual_boot_s,
    usual_delivery_s,
)
from scheduler.api.services import Services
from scheduler.submission.cluster_selection import ClusterCandidate
from scheduler.submission.quotes import price_fields
from scheduler.submission.submit import Preview


class CandidateOut(Struct, frozen=True):
    """A cluster that has what the job asks for."""

    cluster: str
    machine_type: str
    gpus_per_vm: int
    spot: bool
    usd_per_hour: float
    """One VM (of a shared one: the job's part) in the cheapest region that the job allows."""
    usd_per_hour_max: float
    vms: int
    """Most VMs of the submission that run at once."""
    total_usd_per_hour: float
    """The whole submission, at most."""
    regions: int
    """That the job allows."""
    regions_open: int
    """Of these, not blocked now."""
    success_probability: float
    """How likely the best of the open regions is to deliver a VM now, 0 to 1, by what it delivered
    and refused so far; 0: all are blocked."""
    eta_s: float | None
    """When it would start, from now on; null: nothing can be said, and `eta_based_on` says why."""
    eta_based_on: str
    chosen: bool
    needs: tuple[str, ...]
    """What the job must agree to first: allow_larger, spot, no_spot (standard VMs)."""
    drained: bool
    """It takes no new jobs."""


class DryRunOut(Struct, frozen=True):
    """What would become of the submission. Nothing was stored, and nothing is bought."""

    cluster: str | None
    """null: it would be refused; the message says why."""
    message: str
    confirm: str | None
    """Why its price must be confirmed; null: it need not be."""
    candidates: tuple[CandidateOut, ...]
    """In the order in which they would be taken."""


class _Known:
    """What is known about supply and queues now."""

    def __init__(
        self,
        seen: Mapping[SupplyKey, SupplyHistory],
        blocks: Sequence[RegionBlock],
        summary: ServiceSummary,
        forecasts: Mapping[str, Forecast],
    ) -> None:
        self.seen, self.blocks = seen, blocks
        self.summary, self.forecasts = summary, forecasts

    @property
    def now(self) -> datetime:
        return self.summary.now

    def record(self, cluster: ClusterSpec, region: str) -> SupplyHistory | None:
        return self.seen.get(cluster.supply_key(region))

    def open_regions(self, preview: Preview, cluster: ClusterSpec) -> tuple[list[str], list[str]]:
        """(all that the job may be given, those of them that are not blocked)."""
        spec = preview.spec
        allowed = [
            r.region
            for r in cluster.regions
            if spec.allows_region(r.region) and spec.affords(cluster.usd_per_hour(r.region))
        ]
        blocks = {r: block_on(self.blocks, cluster, r, self.now) for r in allowed}
        return allowed, [region for region in allowed if blocks[region] is None]

    def idle(self, cluster: ClusterSpec, regions: Sequence[str]) -> int:
        return sum(
            row.count
            for row in self.summary.vms
            if row.cluster == cluster.name
            and row.state.ready
            and not row.busy
            and row.region in regions
        )

    def waiting(self, cluster: ClusterSpec) -> int:
        jobs = self.summary.jobs
        return sum(jobs.get((cluster.name, status), 0) for status in WAITING)

    def eta(self, cluster: ClusterSpec, allowed: list[str], usable: list[str]) -> Eta:
        """Behind all that wait there; else on a VM that is idle, or on a new one."""
        waiting = self.waiting(cluster)
        if waiting:
            forecast = self.forecasts.get(cluster.name)
            told = [f.told for f in forecast.jobs.values() if f.told] if forecast else []
            if not told and not usable:
                return None, "all its regions are blocked"
            if not told and self.vms(cluster) + waiting >= cluster.vm_max:
                return None, f"behind {waiting} waiting jobs; estimate pending"
            if not told:
                return self._new_vm_s(cluster, usable), f"a new VM; {waiting} jobs wait as well"
            last = max(moment.p50_at for moment in told)
            return max(0.0, (last - self.now).total_seconds()), f"behind {waiting} waiting jobs"
        if self.idle(cluster, allowed):
            return 0.0, "an idle VM"
        if not usable:
            return None, "all its regions are blocked"
        return self._new_vm_s(cluster, usable), "a new VM"

    def vms(self, cluster: ClusterSpec) -> int:
        return sum(row.count for row in self.summary.vms if row.cluster == cluster.name)

    def _new_vm_s(self, cluster: ClusterSpec, usable: list[str]) -> float:
        boot_s = usual_boot_s(regional(self.seen.values(), cluster).values())
        delivery_s = (
            usual_delivery_s(self.record(cluster, region), cluster.terms) for region in usable
        )
        return min(delivery_s) + boot_s


Eta = tuple[float | None, str]


async def dry_run_out(services: Services, preview: Preview) -> DryRunOut:
    """The preview with what is known about supply and queues."""
    reads = services.reads
    known = _Known(
        {record.place: record for record in await reads.supply()},
        await reads.blocks(),
        await reads.summary(),
        await services.forecasts.now() if services.forecasts is not None else {},
    )
    chosen = preview.choice.cluster if preview.choice is not None else None
    rows = tuple(_candidate_out(preview, candidate, known) for candidate in preview.candidates)
    return DryRunOut(chosen, preview.message, preview.confirm, rows)


def _candidate_out(preview: Preview, candidate: ClusterCandidate, known: _Known) -> CandidateOut:
    cluster, quote = candidate.cluster, candidate.quote
    allowed, usable = known.open_regions(preview, cluster)
    likely = [success_probability(known.record(cluster, region), known.now) for region in usable]
    eta_s, based_on = known.eta(cluster, allowed, usable)
    chosen = preview.choice is not None and preview.choice.cluster == cluster.name
    return CandidateOut(
        cluster=cluster.name,
        **price_fields(quote),
        regions=len(allowed),
        regions_open=len(usable),
        success_probability=round(max(likely, default=0.0), 3),
        eta_s=None if eta_s is None else round(eta_s, 1),
        eta_based_on=based_on,
        chosen=chosen,
        needs=candidate.needs,
        drained=cluster.drain,
    )
