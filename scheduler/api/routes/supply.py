"""What regions have delivered and refused: the knowledge that the search for VMs goes by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, structs

from core.access import Right
from core.cluster import ClusterSpec, SupplyKey
from core.names import Names
from core.reads import AlertRow
from core.region_blocks import RegionBlock
from core.supply import SupplyHistory, fade, preemptions_per_hour, success_probability
from scheduler.api.http.endpoint import Routes, route
from scheduler.api.http.params import Param, Query
from scheduler.api.routes.capacity import TAG, BlockOut, block_out
from scheduler.api.shapes import Time, iso, iso_or_none

ALERTS_MAX = 500


class PlaceAlertOut(Struct, frozen=True):
    """What a human was told about the region's group, and nobody has mended."""

    kind: str
    since: Time
    message: str


class PlaceOut(Struct, frozen=True):
    """One cluster in one region, or in one zone of it."""

    cluster: str
    region: str
    zone: str
    """Empty: the whole region."""
    spot: bool
    usd_per_hour: float
    belief: float
    """How likely it is to deliver a VM now, 0 to 1."""
    hits: float
    """Deliveries; older ones count less."""
    misses: float
    last_outcome: str | None
    last_at: Time | None
    usual_delivery_s: float | None
    """From the request to RUNNING; null: none seen."""
    usual_boot_s: float | None
    """From RUNNING to READY."""
    preemptions_per_hour: float | None
    """Of one VM; null: not spot."""
    blocked: BlockOut | None
    alerts: tuple[PlaceAlertOut, ...] = ()
    """Open alerts about the group of the region: between two refusals nothing is blocked, and
    nothing is better either."""


class CapacityOut(Struct, frozen=True):
    """All places, cluster by cluster, in the order of the configuration."""

    places: tuple[PlaceOut, ...]


class SupplyRoutes(Routes):
    """The supply history, place by place."""

    tag = TAG

    @route(
        "GET /api/v1/capacity",
        Right.FLEET_READ,
        "All places.",
        params=(
            Param("cluster", "text", "Only of this cluster."),
            Param("zones", "flag", "Also each zone by itself.", default=False),
        ),
    )
    async def capacity(self, query: Query) -> CapacityOut:
        """What each region has delivered and refused, and how likely it is to deliver."""
        reads, only = self._services.reads, query.text("cluster")
        self._services.refuse_unknown_place(only)
        seen = {record.place: record for record in await reads.supply()}
        blocks = await reads.blocks()
        now = (await reads.summary()).now
        clusters = [c for c in self._services.clusters() if only in (None, c.name)]
        told = alerts_by_subject(await reads.alerts(True, ALERTS_MAX))
        names = self._services.names
        zones = query.flag("zones")
        return CapacityOut(
            tuple(
                place
                for cluster in clusters
                for place in places_out(cluster, seen, blocks, zones, now, names, told)
            )
        )


def alerts_by_subject(rows: Iterable[AlertRow]) -> dict[str, tuple[PlaceAlertOut, ...]]:
    """Subject → its open alerts, the oldest first."""
    found: dict[str, tuple[PlaceAlertOut, ...]] = {}
    for row in sorted(rows, key=lambda row: (row.raised_at, row.alert_id)):
        told = PlaceAlertOut(row.kind, iso(row.raised_at), row.message)
        found[row.subject] = (*found.get(row.subject, ()), told)
    return found


def places_out(
    cluster: ClusterSpec,
    seen: Mapping[SupplyKey, SupplyHistory],
    blocks: Sequence[RegionBlock],
    zones: bool,
    now: datetime,
    names: Names,
    told: Mapping[str, tuple[PlaceAlertOut, ...]],
) -> Iterator[PlaceOut]:
    """The regions of a cluster, each followed by its zones if they are asked for."""
    for region in cluster.regions:
        block = block_out(blocks, cluster, region.region, now)
        alerts = told.get(names.mig(cluster.name, region.region), ())
        place = cluster.supply_key(region.region)
        whole = _place_out(cluster, place, seen.get(place), block, now)
        yield structs.replace(whole, alerts=alerts)
        for zone in region.zones if zones else ():
            place = cluster.supply_key(region.region, zone)
            yield _place_out(cluster, place, seen.get(place), None, now)


def _place_out(
    cluster: ClusterSpec,
    place: SupplyKey,
    known: SupplyHistory | None,
    block: BlockOut | None,
    now: datetime,
) -> PlaceOut:
    record = known or SupplyHistory.none_of(place, now)
    left = fade(now - record.updated_at)
    taken = preemptions_per_hour(known, 0.0, now) if cluster.spot else None
    return PlaceOut(
        cluster=cluster.name,
        region=record.region,
        zone=record.zone,
        spot=cluster.spot,
        usd_per_hour=cluster.usd_per_hour(record.region),
        belief=round(success_probability(known, now), 3),
        hits=round(record.hits * left, 2),
        misses=round(record.misses * left, 2),
        last_outcome=None if record.last is None else str(record.last),
        last_at=iso_or_none(record.last_at),
        usual_delivery_s=round(record.delivery.usual_s, 1) if record.delivery.weight else None,
        usual_boot_s=round(record.boot.usual_s, 1) if record.boot.weight else None,
        preemptions_per_hour=None if taken is None else round(taken, 4),
        blocked=block,
    )
