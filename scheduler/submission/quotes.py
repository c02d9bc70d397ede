"""What a job costs in a cluster, before anything is bought. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.cluster import ClusterSpec
from core.groups import parse_array
from core.job_fields import JobSpec


@dataclass(frozen=True, slots=True)
class Quote:
    """The price of a submission in one cluster, per hour."""

    cluster: str
    machine_type: str
    gpu_type: str
    gpus: int
    """Of one VM."""
    used: int
    """GPUs of one VM that the job asked for."""
    shared: bool
    spot: bool
    usd_per_hour: float
    """One VM (of a shared one: the job's part) in the cheapest region that the job allows."""
    usd_per_hour_max: float
    """The same in the dearest region that the job allows."""
    vms: int
    """Most VMs of this submission that run at once: replicas × jobs of an array, within vm_max."""
    vms_asked: int = 1
    """The same without that limit: another cluster may have a higher one."""

    @property
    def total_usd_per_hour(self) -> float:
        """The whole submission, at most."""
        return self.vms * self.usd_per_hour_max

    @property
    def machine(self) -> str:
        """4 × L4 per VM."""
        if not self.gpus:
            return "no GPUs"
        kind = self.gpu_type.upper()
        if self.shared:
            return f"{self.used} of the {self.gpus} × {kind} of a shared VM"
        return f"{self.gpus} × {kind} per VM"

    @property
    def price(self) -> str:
        """$0.70/h, or from the cheapest region to the dearest; of several VMs their sum as well."""
        one = between(self.usd_per_hour, self.usd_per_hour_max)
        where = "" if " to " not in one else " by region"
        if self.vms == 1:
            return one + where
        whole = between(self.vms * self.usd_per_hour, self.total_usd_per_hour)
        return f"{one} each{where}, {whole} for {self.vms} VMs"

    def words(self) -> str:
        """4 × L4 per VM, spot, $1.20/h."""
        return f"{self.machine}, {'spot, ' if self.spot else ''}{self.price}"


def prices_of(spec: JobSpec, cluster: ClusterSpec) -> tuple[float, float]:
    """What one VM (of a shared one: the job's part) costs per hour in the cheapest and the dearest
    region that the job allows. A region that is dearer than the job's own limit is not asked."""
    most = spec.max_usd_per_hour
    regions = (r.region for r in cluster.regions if spec.allows_region(r.region))
    prices = [cluster.usd_per_hour(region) for region in regions]
    allowed = [usd for usd in prices if most is None or usd <= most] or prices or [0.0]
    part = spec.gpu_count / cluster.gpus if _has_part(spec, cluster) else 1.0
    return min(allowed) * part, max(allowed) * part


def _has_part(spec: JobSpec, cluster: ClusterSpec) -> bool:
    return cluster.share and spec.gpu_count > 0


def quote_of(spec: JobSpec, cluster: ClusterSpec) -> Quote:
    """What the submission costs there."""
    shared = _has_part(spec, cluster)
    cheapest, dearest = prices_of(spec, cluster)
    jobs = len(parse_array(spec.array) or ()) if spec.array is not None else 1
    at_once = cluster.vm_max * cluster.jobs_per_vm(spec.gpu_count)
    return Quote(
        cluster=cluster.name,
        machine_type=cluster.machine_type,
        gpu_type=cluster.gpu_type,
        gpus=cluster.gpus,
        used=spec.gpu_count,
        shared=shared,
        spot=cluster.spot,
        usd_per_hour=cheapest,
        usd_per_hour_max=dearest,
        vms=max(1, min(jobs * spec.replicas, at_once)),
        vms_asked=max(1, jobs * spec.replicas),
    )


def is_larger(spec: JobSpec, cluster: ClusterSpec) -> bool:
    """Whether the job would pay for GPUs that it did not ask for. On a shared VM it has a part of
    its own; a job without GPUs has none there."""
    return cluster.gpus > spec.gpu_count and not _has_part(spec, cluster)


def usd(amount: float) -> str:
    """$0.70; small amounts keep two digits that say something."""
    return f"${amount:.2f}" if amount >= 0.1 or not amount else f"${amount:.2g}"


def between(low: float, high: float) -> str:
    """$0.70/h, or $0.70 to $0.84/h."""
    least, most = usd(low), usd(high)
    return f"{least}/h" if least == most else f"{least} to {most}/h"


def price_fields(quote: Quote | None) -> dict[str, Any]:
    """The price of a submission as answers tell it; nothing if its cluster is gone."""
    if quote is None:
        return {}
    return {
        "machine_type": quote.machine_type,
        "gpus_per_vm": quote.gpus,
        "spot": quote.spot,
        "usd_per_hour": round(quote.usd_per_hour, 4),
        "usd_per_hour_max": round(quote.usd_per_hour_max, 4),
        "vms": quote.vms,
        "total_usd_per_hour": round(quote.total_usd_per_hour, 4),
    }
