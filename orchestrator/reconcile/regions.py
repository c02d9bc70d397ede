"""Where a cluster may have VMs: in the regions of its configuration, and in regions that were
withdrawn from it, until nothing of ours is left there.

A group tries for ever to make a member that it was asked for, so a region that is withdrawn goes
on being looked at, as often as an idle one. Which regions were driven is known by the rows of
their status, which outlive a leader: they are written before anything is asked for there, and taken
away when the region's group was seen without anything of ours.
"""

from __future__ import annotations

from collections.abc import Iterable

from core.changes import Snapshot
from core.cluster import ClusterSpec, RegionSpec
from core.mig import MigSnapshot
from core.names import Names

WATCHED = "withdrawn from the cluster: watched until nothing of ours is left there"


class ClusterRegions:
    """The regions of one cluster."""

    def __init__(self, names: Names, driven: Iterable[str]) -> None:
        self._names = names
        self._driven = set(driven)

    def drive(self, regions: Iterable[RegionSpec]) -> None:
        """Their status is stored: from now on they are watched until they are seen empty."""
        self._driven.update(region.region for region in regions)

    def forget(self, region: str) -> None:
        """Seen empty, and that is stored."""
        self._driven.discard(region)

    def withdrawn(self, spec: ClusterSpec) -> list[str]:
        """Regions that only wait to be seen empty."""
        return sorted(self._driven.difference(region.region for region in spec.regions))

    def watched(self, spec: ClusterSpec, snapshot: Snapshot) -> list[str]:
        """Regions of the configuration, and regions that may still hold something of ours."""
        found = [region.region for region in spec.regions]
        return list(dict.fromkeys([*found, *_held(spec, snapshot), *self.withdrawn(spec)]))

    def abandoned(self, spec: ClusterSpec, snapshot: Snapshot) -> frozenset[str]:
        """Withdrawn, and nothing is known of ours there: if the next look finds nothing either,
        it is forgotten."""
        return frozenset(self.withdrawn(spec)).difference(_held(spec, snapshot))

    def is_clear(self, observed: MigSnapshot) -> bool:
        """Nothing of ours is in the group, and it is not about to make anything."""
        ours = any(self._names.is_vm_of(observed.cluster, m.name) for m in observed.members)
        return not ours and observed.target_size <= len(observed.members)


def _held(spec: ClusterSpec, snapshot: Snapshot) -> list[str]:
    asked = [r.region for r in snapshot.requests if r.cluster == spec.name]
    return [*(vm.region for vm in snapshot.vms), *asked]
