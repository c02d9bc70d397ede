"""Where a new VM may be put, or why it may not, and what is taken. Pure."""

import random
from collections import Counter
from collections.abc import Callable, Mapping

from sim.cloud.faults import (
    GLOBAL,
    GLOBAL_METRIC,
    AddressSpace,
    CreateError,
    FaultBoard,
    Permissions,
    QuotaFault,
    Unsupported,
)
from sim.cloud.model import Allocation, CreateFailure, PretendInstance, PretendVm
from sim.cloud.world import MigSpec, World, region_of


class Market:
    """The capacity of a world under its faults."""

    def __init__(self, world: World, faults: FaultBoard) -> None:
        self._world = world
        self._faults = faults
        self._pools = dict(world.physics.capacity)
        self._quotas = dict(world.physics.quotas)
        self.pools_used: Counter[tuple[str, str, bool]] = Counter()
        self.quotas_used: Counter[tuple[str, str]] = Counter()

    def learn(self, world: World) -> None:
        self._world = world

    def take(self, spec: MigSpec, zone: str) -> Allocation:
        uses = tuple((_quota_key(spec, metric), n) for metric, n in spec.quota_use().items())
        hold = Allocation((zone, spec.machine_type, spec.spot), uses)
        self.pools_used[hold.pool] += 1
        for key, amount in hold.quotas:
            self.quotas_used[key] += amount
        return hold

    def give_back(self, holder: PretendVm | PretendInstance) -> None:
        """Frees what the holder holds; a second time changes nothing."""
        hold, holder.hold = holder.hold, None
        if hold is None:
            return
        self.pools_used[hold.pool] -= 1
        for key, amount in hold.quotas:
            self.quotas_used[key] -= amount

    def limit(self, zone: str, machine_type: str, spot: bool) -> int | None:
        return self._pools.get((zone, machine_type, spot), self._world.physics.capacity_default)

    def place(
        self, spec: MigSpec, siblings: Mapping[str, int], dice: random.Random, now: float
    ) -> str | CreateFailure:
        """The zone that takes one more VM of this group, or the error that Google would report."""
        region = spec.region
        if self._faults.newest(Permissions, now, region=region):
            return _permissions(self._world, dice.choice(spec.zones))
        if (error := self._faults.newest(CreateError, now, region=region)) is not None:
            return _create_error(error, dice.choice(spec.zones))
        supported = [z for z in spec.zones if self._supports(z, spec, now)]
        if not supported:
            return _unsupported(spec, dice.choice(spec.zones))
        if self._machine_is_full():
            return _machine_full(self._world, dice.choice(supported))
        over = self._quota_exceeded(spec, now)
        if over is not None:
            return _quota(region, over[0], over[1], dice.choice(supported))
        if self._faults.newest(AddressSpace, now, region=region):
            return _addresses(self._world, region, dice.choice(supported))
        free = {z for z in supported if self._has_room(z, spec, now)}
        zone = _pick(spec.target_shape, supported, free, siblings, dice)
        return zone if zone in free else self._stockout(spec, zone, now)

    def _machine_is_full(self) -> bool:
        most = self._world.physics.vms_max
        return most is not None and self.pools_used.total() >= most

    def _supports(self, zone: str, spec: MigSpec, now: float) -> bool:
        kind = spec.machine_type
        return self._faults.newest(Unsupported, now, zone=zone, machine_type=kind) is None

    def _has_room(self, zone: str, spec: MigSpec, now: float) -> bool:
        return self.room(zone, spec.machine_type, spec.spot, 1, now) > 0

    def room(self, zone: str, machine_type: str, spot: bool, most: int, now: float) -> int:
        """How many such VMs a zone could take now, counted up to `most`."""
        if self._faults.stocked_out(zone, region_of(zone), machine_type, spot, now):
            return 0
        limit = self.limit(zone, machine_type, spot)
        if limit is None:
            return most
        return max(0, min(most, limit - self.pools_used[zone, machine_type, spot]))

    def _quota_exceeded(self, spec: MigSpec, now: float) -> tuple[str, float] | None:
        for metric, amount in spec.quota_use().items():
            key = _quota_key(spec, metric)
            fault = self._faults.newest(QuotaFault, now, region=key[0], metric=metric)
            limit = self._quotas.get(key) if fault is None else fault.limit
            if limit is not None and self.quotas_used[key] + amount > limit:
                return metric, limit
        return None

    def _stockout(self, spec: MigSpec, zone: str, now: float) -> CreateFailure:
        # Google names zones of the region that could take it, also zones the group does not use.
        others = [
            z
            for z in self._world.zones_of(spec.region)
            if z != zone and self._supports(z, spec, now) and self._has_room(z, spec, now)
        ]
        return _stockout(self._world.project, spec, zone, ",".join(others))


def _pick(
    shape: str,
    supported: list[str],
    free: set[str],
    siblings: Mapping[str, int],
    dice: random.Random,
) -> str:
    """The zone in which a group of this shape tries, which may be one without capacity."""

    def fewest(zones: list[str]) -> str:
        return min(zones, key=lambda z: (siblings.get(z, 0), z))

    usable = [z for z in supported if z in free]
    pick: dict[str, Callable[[], str]] = {
        "ANY": lambda: dice.choice(usable or supported),
        # Even spread comes first, so a group can hang on one empty zone for ever.
        "EVEN": lambda: fewest(supported),
        "BALANCED": lambda: fewest(usable or supported),
        "ANY_SINGLE_ZONE": lambda: next(
            (z for z in supported if siblings.get(z)), dice.choice(usable or supported)
        ),
    }
    return pick[shape]()


def _stockout(project: str, spec: MigSpec, zone: str, available: str) -> CreateFailure:
    attachment = f"{spec.accelerator}:{spec.gpus}" if spec.accelerator else ""
    hint = (
        f" Consider trying your request in the {available} zone(s), which currently has capacity "
        "to accommodate your request."
        if available
        else ""
    )
    return CreateFailure(
        code="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        message=(
            f"The zone 'projects/{project}/zones/{zone}' does not have enough resources available "
            "to fulfill the request. (resource type:compute)."
        ),
        zone=zone,
        reason="resource_availability",
        metadatas=(
            ("attachment", attachment),
            ("vmType", spec.machine_type),
            ("zone", zone),
            ("zonesAvailable", available),
        ),
        localized=(
            f"A {spec.machine_type} VM instance is currently unavailable in the {zone} zone.{hint} "
            "Alternatively, you can try your request again with a different VM hardware "
            "configuration or at a later time."
        ),
    )


def _quota_key(spec: MigSpec, metric: str) -> tuple[str, str]:
    return (GLOBAL if metric == GLOBAL_METRIC else spec.region, metric)


def _create_error(error: CreateError, zone: str) -> CreateFailure:
    return CreateFailure(code=error.code, message=error.message, zone=zone)


def _quota(region: str, metric: str, limit: float, zone: str) -> CreateFailure:
    where = "globally" if metric == GLOBAL_METRIC else f"in region {region}"
    return CreateFailure(
        code="QUOTA_EXCEEDED",
        message=f"Quota '{metric}' exceeded.  Limit: {limit:.1f} {where}.",
        zone=zone,
        quota=(metric, limit),
    )


def _machine_full(world: World, zone: str) -> CreateFailure:
    limit = float(world.physics.vms_max or 0)
    return CreateFailure(
        code="QUOTA_EXCEEDED",
        message=(
            f"Quota 'PRETEND_VMS' exceeded.  Limit: {limit:.1f} globally: the machine that plays "
            "the cloud carries no more."
        ),
        zone=zone,
        quota=("PRETEND_VMS", limit),
    )


def _unsupported(spec: MigSpec, zone: str) -> CreateFailure:
    return CreateFailure(
        code="UNSUPPORTED_OPERATION",
        message=f"Machine type {spec.machine_type} is not supported in zone {zone}.",
        zone=zone,
    )


def _addresses(world: World, region: str, zone: str) -> CreateFailure:
    return CreateFailure(
        code="IP_SPACE_EXHAUSTED",
        message=(
            f"IP space of 'projects/{world.project}/regions/{region}/subnetworks/default' is "
            "exhausted."
        ),
        zone=zone,
    )


def _permissions(world: World, zone: str) -> CreateFailure:
    return CreateFailure(
        code="PERMISSIONS_ERROR",
        message=f"Required 'compute.instances.create' permission for 'projects/{world.project}'",
        zone=zone,
    )
