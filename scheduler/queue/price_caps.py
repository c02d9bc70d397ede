"""What a job's price cap and its size leave of a cluster, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from core.cluster import ClusterSpec, RegionSpec
from core.job_fields import JobSpec


def within_cap(request: JobSpec, spec: ClusterSpec) -> Iterator[RegionSpec]:
    """The regions that the job allows and may pay."""
    for r in spec.regions:
        if request.allows_region(r.region) and request.affords(spec.usd_per_hour(r.region)):
            yield r


def may_be_bought(request: JobSpec, spec: ClusterSpec) -> bool:
    """Whether there is such a region, and its VMs are large enough."""
    return not size_words(request, spec) and any(True for _ in within_cap(request, spec))


def size_words(request: JobSpec, spec: ClusterSpec) -> str:
    """Why no VM of the cluster is large enough; empty: its VMs are. A size that is not configured
    is not held against a job."""
    limits = (
        (request.gpu_count, spec.gpus, "GPUs"),
        (request.cpu_cores, spec.cpus or request.cpu_cores, "cores"),
        (request.memory_mb, spec.memory_gb * 1024 or request.memory_mb, "MB of memory"),
    )
    for asked, there, unit in limits:
        if asked > there:
            return (
                f"no VM of {spec.name} is large enough: it asks for {asked:g} {unit}, a VM has "
                f"{there:g}; submitted again with less it could start"
            )
    return ""


def price_words(request: JobSpec, spec: ClusterSpec) -> str:
    """Why no region that the job allows may serve it; empty: neither its size nor its cap is the
    reason."""
    if large := size_words(request, spec):
        return large
    if request.max_usd_per_hour is None:
        return ""
    allowed = [r.region for r in spec.regions if request.allows_region(r.region)]
    if not allowed or any(True for _ in within_cap(request, spec)):
        return ""
    usd, cheapest = min((spec.usd_per_hour(region), region) for region in allowed)
    which = "no region" if len(allowed) == len(spec.regions) else "none of its regions"
    return (
        f"{which} is within its price cap of ${request.max_usd_per_hour:g} per VM and hour; the "
        f"cheapest is {cheapest} at ${usd:g}: it starts when a price falls to its cap, or "
        "submitted again with a higher one"
    )
