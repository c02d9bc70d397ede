"""Clusters from the checked document: what belongs together must agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from config.document import Document, KeyPath
from config.floors import build_floors
from core.clouds import CLOUDS
from core.cluster import ClusterSpec, RegionSpec
from core.names import CPU_TYPE, SPOT_SUFFIX, Names, parse_cluster
from core.queueing import QueueRule
from core.submission import nearest, shown


@dataclass(frozen=True, slots=True)
class _Catalogue:
    """The sections that clusters refer to."""

    gpus: Mapping[str, Any]
    machines: Mapping[str, Any]
    prices: Mapping[str, Any]
    names: Names


def build_clusters(document: Document, values: Mapping[str, Any]) -> tuple[ClusterSpec, ...]:
    """Every cluster whose parts agree; what does not is noted in the document."""
    catalogue = _Catalogue(
        gpus=values["gpus"],
        machines=values["machines"],
        prices=values["prices"].get("gpus", {}),
        names=Names(values.get("prefix", Names().prefix)),
    )
    _check_gpu_types(document, catalogue)
    clusters = values["clusters"]
    if not clusters and not document.faults:
        document.fault(("clusters",), "none", "at least one cluster")
    found = [_Reader(document, catalogue, name, given).read() for name, given in clusters.items()]
    return tuple(cluster for cluster in found if cluster is not None)


def _check_gpu_types(document: Document, catalogue: _Catalogue) -> None:
    for gpu_type, gpu in catalogue.gpus.items():
        for region, zones in gpu.get("zones", {}).items():
            _full_zones(document, ("gpus", gpu_type, "zones", region), region, zones)
    for gpu_type in catalogue.prices:
        if gpu_type not in catalogue.gpus:
            path = ("prices", "gpus", gpu_type)
            document.fault(path, "a GPU type without an entry", nearest(gpu_type, catalogue.gpus))
    for name, machine in catalogue.machines.items():
        gpu_type, gpus = machine.get("gpu_type"), machine.get("gpus")
        if (gpu_type is None) != (gpus is None):
            got = f"gpu_type {shown(gpu_type)} with gpus {shown(gpus)}"
            document.fault(("machines", name), got, "both of them or neither")
        elif gpu_type is not None and gpu_type not in catalogue.gpus:
            path = ("machines", name, "gpu_type")
            document.fault(path, shown(gpu_type), nearest(gpu_type, catalogue.gpus))


_AS_GIVEN = (
    *("machine_type", "spot", "drain", "worker", "trusted_tenants_only", "pool", "share"),
    *("share_between_tenants", "idle_timeout_s", "flex_start_wait_s"),
)


class _Reader:
    """One cluster: what is wrong with it is noted in the document."""

    def __init__(
        self, document: Document, catalogue: _Catalogue, name: str, given: Mapping[str, Any]
    ) -> None:
        self._document, self._catalogue, self._name, self._given = document, catalogue, name, given
        self._path = ("clusters", name)
        self._gpus, self._gpu_type = parse_cluster(name)
        # What it names wrongly is noted already.
        self._terms = CLOUDS[given.get("pool") or "mig"]
        self._machine = self._found_machine()

    def read(self) -> ClusterSpec | None:
        given, gpu_type, machine = self._given, self._gpu_type, self._machine
        self._check()
        floors = build_floors(self._document, self._path, given)
        regions = [self._region(region) for region in given.get("regions", {})]
        if self._document.faults or machine is None:
            return None  # nothing will be built of it, and what is at fault was left out of `given`
        return ClusterSpec(
            name=self._name,
            gpu_type=gpu_type,
            gpus=self._gpus,
            # A cluster that is drained grows no more, whatever its limit: zero says so everywhere.
            vm_max=0 if given["drain"] else given["vm_max"],
            regions=tuple(region for region in regions if region is not None),
            # Machines that are there anyway are kept, whether there is work or not.
            vm_min=0 if given["drain"] else given["vm_max" if self._terms.owned else "vm_min"],
            gpu_memory_gb=self._catalogue.gpus[gpu_type].get("memory_gb", 0) if self._gpus else 0,
            cpus=machine.get("cpus", 0),
            memory_gb=machine.get("memory_gb", 0),
            floors=() if given["drain"] else floors,
            queue=QueueRule(given["queue"]),
            **{name: given[name] for name in _AS_GIVEN},
        )

    def _fault(self, got: str, expected: str, *at: str) -> None:
        self._document.fault((*self._path, *at), got, expected)

    def _check(self) -> None:
        """What does not go together."""
        given, known = self._given, self._catalogue.gpus
        if self._gpus and self._gpu_type not in known:
            self._fault(f"the GPU type {self._gpu_type!r}", nearest(self._gpu_type, known))
        if self._name.endswith(SPOT_SUFFIX) and given.get("spot") is False:
            self._fault("false", f"true, as the name ends with {SPOT_SUFFIX}", "spot")
        if not self._gpus:
            self._refuse(_WITHOUT_GPUS)
        if given.get("worker") == "v1":
            self._refuse(_V1)
            if not given.get("trusted_tenants_only"):
                self._fault("false with worker v1", _TRUSTED, "trusted_tenants_only")
        if given.get("flex_start_wait_s") is not None:
            self._refuse(_FLEX_START, " with flex_start_wait_s")
        vm_min, vm_max = given.get("vm_min"), given.get("vm_max")
        if vm_min is not None and vm_max is not None and vm_min > vm_max:
            self._fault(str(vm_min), f"at most vm_max ({vm_max})", "vm_min")
        if not given.get("regions"):
            self._fault("none", "at least one region", "regions")

    def _refuse(self, wrong: Mapping[str, str], because: str = "") -> None:
        """Keys that must be as they are by default, or v2; with what is expected of each."""
        for key, expected in wrong.items():
            value = self._given.get(key)
            if value not in (None, False, 0, [], "mig", "v2"):
                got = "floors" if key == "floors" else shown(value)
                self._fault(f"{got}{because}", expected, key)

    def _found_machine(self) -> Mapping[str, Any] | None:
        machine_type, known = self._given.get("machine_type"), self._catalogue.machines
        if machine_type is None:
            return None  # missing or misspelt: noted already
        machine: Mapping[str, Any] | None = known.get(machine_type)
        if machine is None:
            expected = f"a machine of `machines` ({nearest(machine_type, known)})"
            self._fault(shown(machine_type), expected, "machine_type")
            return None
        built_in = (machine.get("gpus"), machine.get("gpu_type"))
        if built_in not in ((None, None), (self._gpus, self._gpu_type)):
            got = f"{machine_type}, which has {built_in[0]}x{built_in[1]}"
            self._fault(got, f"a machine with {self._name}", "machine_type")
        return machine

    def _region(self, region: str) -> RegionSpec | None:
        given = self._given["regions"][region]
        if not self._terms.owned:
            self._check_base_name(region)
        zones = self._zones(region, given)
        prices = [self._price(region, given, key) for key in ("usd_per_hour", "spot_usd_per_hour")]
        on_demand, spot = prices
        if zones is None or on_demand is None or spot is None:
            return None
        node, vm_max = given.get("node"), given.get("vm_max")
        if self._terms.owned and not node:
            expected = "the socket of the machine's node service"
            self._fault("nothing", expected, "regions", region, "node")
        if node and not self._terms.owned:
            self._fault(shown(node), "pool: static, or no `node`", "regions", region, "node")
        if self._terms.owned:  # one machine carries one worker
            vm_max = 1 if vm_max is None else min(vm_max, 1)
        return RegionSpec(region, zones, on_demand, spot, vm_max, node or "")

    def _check_base_name(self, region: str) -> None:
        names, most = self._catalogue.names, self._terms.base_name_max
        base = names.vm_base(self._name, region)
        excess = len(base) - most
        if excess > 0:
            self._fault(
                f"the base instance name {base} of {len(base)} characters",
                f"at most {most}: make `prefix` ({names.prefix}) {excess} shorter",
                *("regions", region),
            )

    def _zones(self, region: str, given: Mapping[str, Any]) -> tuple[str, ...] | None:
        gpu_type, at = self._gpu_type, ("regions", region)
        if "zones" not in given:
            return None  # noted already
        if given["zones"] is not None:
            path = (*self._path, *at, "zones")
            return _full_zones(self._document, path, region, given["zones"])
        known: Mapping[str, Any] = self._catalogue.gpus.get(gpu_type, {}).get("zones", {})
        if region in known:
            return tuple(_full_zone(region, zone) for zone in known[region])
        if self._terms.owned:
            return (f"{region}-a",)
        if gpu_type.startswith(CPU_TYPE):
            self._fault("nothing", "the zones of the region, e.g. [a, b, c]", *at, "zones")
        elif gpu_type in self._catalogue.gpus:
            expected = f"a region that has {gpu_type} ({nearest(region, known)}), or `zones` here"
            self._fault(f"a region without known {gpu_type}", expected, *at)
        return None

    def _price(self, region: str, given: Mapping[str, Any], key: str) -> float | None:
        """The whole VM per hour: what the region says, or host + GPUs; without GPUs the host
        alone."""
        if given.get(key) is not None:
            return float(given[key])
        host: float | None = (self._machine or {}).get(key)
        if not self._gpus:
            return None if host is None else float(host)
        table: Mapping[str, Any] = self._catalogue.prices.get(self._gpu_type, {})
        if region in table:
            gpu: float | None = table[region].get(key)
            if gpu is None or host is None:
                return None  # noted already
            return round(float(host) + self._gpus * float(gpu), 4)
        if self._terms.owned:
            return 0.0  # a machine that is there anyway
        if self._gpu_type in self._catalogue.gpus:
            expected = f"prices.gpus.{self._gpu_type}.{region}.{key}, or `{key}` here"
            self._fault("no price", expected, "regions", region, key)
        return None


_V1 = {
    "share": "false: a v1 worker runs one job",
    "vm_min": "0: a v1 worker without a job deletes its VM",
    "floors": "none: a v1 worker without a job deletes its VM",
    "pool": "mig: v1 workers delete their VMs",
}
"""What workers cannot do that run one job and delete their VM."""
_TRUSTED = (
    "true, if every tenant of the cluster trusts the others: v1 workers cannot prove who they are"
)
_WITHOUT_GPUS = {
    "share": "false: a VM without GPUs runs one job at a time",
    "worker": "v2: v1 workers run on VMs with GPUs",
}
_FLEX_START = {
    "spot": "false: Google has flex start instead of spot, not with it",
    "worker": "v2: v1 workers have no gangs",
    "pool": "mig: machines that are there anyway are not queued for",
    "share": "false: a VM that comes for a gang is its member's alone",
}
"""What VMs that come all at once, for one gang, cannot be."""


def _full_zone(region: str, zone: str) -> str:
    return f"{region}-{zone}" if len(zone) == 1 else zone


def _full_zones(
    document: Document, path: KeyPath, region: str, given: list[str]
) -> tuple[str, ...] | None:
    zones = tuple(_full_zone(region, zone) for zone in given)
    strangers = [zone for zone in zones if zone.rpartition("-")[0] != region]
    if strangers:
        document.fault(path, ", ".join(strangers), f"zones of {region}, e.g. {region}-a")
    elif len(set(zones)) < len(zones):
        document.fault(path, shown(given), "each zone once")
    else:
        return zones
    return None
