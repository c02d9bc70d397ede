"""What a job's price cap leaves of a cluster, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from core.capacity import ClusterSpec, RegionSpec
from core.job import JobSpec


def within_cap(wish: JobSpec, spec: ClusterSpec) -> Iterator[RegionSpec]:
    """The regions that the job allows and may pay."""
    for r in spec.regions:
        if wish.allows_region(r.region) and wish.affords(spec.usd_per_hour(r.region)):
            yield r


def may_be_bought(wish: JobSpec, spec: ClusterSpec) -> bool:
    """Whether there is such a region."""
    return any(True for _ in within_cap(wish, spec))


def price_words(wish: JobSpec, spec: ClusterSpec) -> str:
    """Why no region that the job allows may serve it; empty: its cap is not the reason."""
    if wish.max_usd_per_hour is None:
        return ""
    allowed = [r.region for r in spec.regions if wish.allows_region(r.region)]
    if not allowed or may_be_bought(wish, spec):
        return ""
    usd, cheapest = min((spec.usd_per_hour(region), region) for region in allowed)
    which = "no region" if len(allowed) == len(spec.regions) else "none of its regions"
    return (
        f"{which} is within its price cap of ${wish.max_usd_per_hour:g} per VM and hour; the "
        f"cheapest is {cheapest} at ${usd:g}: it starts when a price falls to its cap, or "
        "submitted again with a higher one"
    )
