"""Clusters from the checked document: what belongs together must agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from config.document import Document, KeyPath
from config.floors import build_floors
from core.clouds import CLOUDS, CloudTerms
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
    found = [_cluster(document, catalogue, name, given) for name, given in clusters.items()]
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


def _cluster(
    document: Document, catalogue: _Catalogue, name: str, given: Mapping[str, Any]
) -> ClusterSpec | None:
    path = ("clusters", name)
    gpus, gpu_type = parse_cluster(name)
    if gpus and gpu_type not in catalogue.gpus:
        document.fault(path, f"the GPU type {gpu_type!r}", nearest(gpu_type, catalogue.gpus))
    if not gpus:
        _check_without_gpus(document, path, given)
    if name.endswith(SPOT_SUFFIX) and given.get("spot") is False:
        document.fault((*path, "spot"), "false", f"true, as the name ends with {SPOT_SUFFIX}")
    static = _terms(given).owned
    if given.get("worker") == "v1":
        _check_v1(document, path, given)
    if given.get("flex_start_wait_s") is not None:
        _check_flex_start(document, path, given)
    machine = _machine(document, catalogue, path, given)
    _check_limits(document, path, given)
    floors = build_floors(document, path, given)
    regions = [
        _region(document, catalogue, (*path, "regions", region), given, machine)
        for region in given.get("regions", {})
    ]
    if not given.get("regions"):
        document.fault((*path, "regions"), "none", "at least one region")
    if document.faults or machine is None:
        return None  # nothing will be built of it, and what is at fault was left out of `given`
    return ClusterSpec(
        name=name,
        gpu_type=gpu_type,
        gpus=gpus,
        machine_type=given["machine_type"],
        # A cluster that is drained grows no more, whatever its limit: zero says so everywhere.
        vm_max=0 if given["drain"] else given["vm_max"],
        regions=tuple(region for region in regions if region is not None),
        # Machines that are there anyway are kept, whether there is work or not.
        vm_min=0 if given["drain"] else given["vm_max"] if static else given["vm_min"],
        spot=given["spot"],
        drain=given["drain"],
        worker=given["worker"],
        pool=given["pool"],
        gpu_memory_gb=catalogue.gpus[gpu_type].get("memory_gb", 0) if gpus else 0,
        cpus=machine.get("cpus", 0),
        memory_gb=machine.get("memory_gb", 0),
        idle_timeout_s=given["idle_timeout_s"],
        floors=() if given["drain"] else floors,
        share=given["share"],
        queue=QueueRule(given["queue"]),
        flex_start_wait_s=given["flex_start_wait_s"],
    )


def _terms(cluster: Mapping[str, Any]) -> CloudTerms:
    """Of the cloud that it names; what it names wrongly is noted already."""
    return CLOUDS[cluster.get("pool") or "mig"]


def _machine(
    document: Document, catalogue: _Catalogue, path: KeyPath, given: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    machine_type = given.get("machine_type")
    if machine_type is None:
        return None  # missing or misspelt: noted already
    machine: Mapping[str, Any] | None = catalogue.machines.get(machine_type)
    if machine is None:
        expected = f"a machine of `machines` ({nearest(machine_type, catalogue.machines)})"
        document.fault((*path, "machine_type"), shown(machine_type), expected)
        return None
    built_in = (machine.get("gpus"), machine.get("gpu_type"))
    if built_in != (None, None) and built_in != parse_cluster(path[1]):
        got = f"{machine_type}, which has {built_in[0]}x{built_in[1]}"
        document.fault((*path, "machine_type"), got, f"a machine with {path[1]}")
    return machine


def _check_v1(document: Document, path: KeyPath, given: Mapping[str, Any]) -> None:
    """What workers cannot do that run one job and delete their VM."""
    wrong = (
        ("share", "true", "false: a v1 worker runs one job"),
        ("vm_min", str(given.get("vm_min")), "0: a v1 worker without a job deletes its VM"),
        ("floors", "floors", "none: a v1 worker without a job deletes its VM"),
        ("pool", "static", "mig: v1 workers delete their VMs"),
    )
    for key, got, expected in wrong:
        if given.get(key) not in (None, False, 0, [], {}, "mig"):
            document.fault((*path, key), got, expected)


def _check_without_gpus(document: Document, path: KeyPath, given: Mapping[str, Any]) -> None:
    """What VMs without GPUs cannot be."""
    wrong = (
        ("share", True, "false: a VM without GPUs runs one job at a time"),
        ("worker", "v1", "v2: v1 workers run on VMs with GPUs"),
    )
    for key, value, expected in wrong:
        if given.get(key) == value:
            document.fault((*path, key), shown(value), expected)


def _check_flex_start(document: Document, path: KeyPath, given: Mapping[str, Any]) -> None:
    """What VMs that come all at once, for one gang, cannot be."""
    wrong = (
        ("spot", True, "false: Google has flex start instead of spot, not with it"),
        ("worker", "v1", "v2: v1 workers have no gangs"),
        ("pool", "static", "mig: machines that are there anyway are not queued for"),
        ("share", True, "false: a VM that comes for a gang is its member's alone"),
    )
    for key, value, expected in wrong:
        if given.get(key) == value:
            document.fault((*path, key), f"{shown(value)} with flex_start_wait_s", expected)


def _check_limits(document: Document, path: KeyPath, given: Mapping[str, Any]) -> None:
    vm_min, vm_max = given.get("vm_min"), given.get("vm_max")
    if vm_min is not None and vm_max is not None and vm_min > vm_max:
        document.fault((*path, "vm_min"), str(vm_min), f"at most vm_max ({vm_max})")


def _region(
    document: Document,
    catalogue: _Catalogue,
    path: KeyPath,
    cluster: Mapping[str, Any],
    machine: Mapping[str, Any] | None,
) -> RegionSpec | None:
    name, region = path[1], path[3]
    given = cluster["regions"][region]
    static = _terms(cluster).owned
    if not static:
        _check_base_name(document, catalogue.names, path, _terms(cluster).base_name_max)
    zones = _zones(document, catalogue, path, given, static)
    prices = [
        _price(document, catalogue, path, given, machine, key, static)
        for key in ("usd_per_hour", "spot_usd_per_hour")
    ]
    if zones is None or None in prices:
        return None
    on_demand, spot = prices
    assert on_demand is not None, f"{name}/{region} has a price or a fault"
    assert spot is not None, f"{name}/{region} has a spot price or a fault"
    node = _node(document, path, given, static)
    # One machine carries one worker.
    vm_max = given.get("vm_max")
    if static:
        vm_max = 1 if vm_max is None else min(vm_max, 1)
    return RegionSpec(region, zones, on_demand, spot, vm_max, node)


def _node(document: Document, path: KeyPath, given: Mapping[str, Any], static: bool) -> str:
    """Where the machine of a static pool is asked; groups have none."""
    node: str | None = given.get("node")
    if static and not node:
        document.fault((*path, "node"), "nothing", "the socket of the machine's node service")
    if node and not static:
        document.fault((*path, "node"), shown(node), "pool: static, or no `node`")
    return node or ""


def _check_base_name(document: Document, names: Names, path: KeyPath, most: int) -> None:
    base = names.vm_base(path[1], path[3])
    excess = len(base) - most
    if excess > 0:
        document.fault(
            path,
            f"the base instance name {base} of {len(base)} characters",
            f"at most {most}: make `prefix` ({names.prefix}) {excess} shorter",
        )


def _zones(
    document: Document, catalogue: _Catalogue, path: KeyPath, given: Mapping[str, Any], static: bool
) -> tuple[str, ...] | None:
    region = path[3]
    if "zones" not in given:
        return None  # noted already
    if given["zones"] is not None:
        return _full_zones(document, (*path, "zones"), region, given["zones"])
    gpu_type = parse_cluster(path[1])[1]
    known: Mapping[str, Any] = catalogue.gpus.get(gpu_type, {}).get("zones", {})
    if region in known:
        return tuple(_full_zone(region, zone) for zone in known[region])
    if static:
        return (f"{region}-a",)
    if gpu_type.startswith(CPU_TYPE):
        document.fault((*path, "zones"), "nothing", "the zones of the region, e.g. [a, b, c]")
    elif gpu_type in catalogue.gpus:
        expected = f"a region that has {gpu_type} ({nearest(region, known)}), or `zones` here"
        document.fault(path, f"a region without known {gpu_type}", expected)
    return None


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


def _price(
    document: Document,
    catalogue: _Catalogue,
    path: KeyPath,
    given: Mapping[str, Any],
    machine: Mapping[str, Any] | None,
    key: str,
    static: bool,
) -> float | None:
    """The whole VM per hour: what the region says, or host + GPUs; without GPUs the host alone."""
    if given.get(key) is not None:
        return float(given[key])
    region = path[3]
    gpus, gpu_type = parse_cluster(path[1])
    if not gpus:
        host_price = (machine or {}).get(key)
        return None if host_price is None else float(host_price)
    table: Mapping[str, Any] = catalogue.prices.get(gpu_type, {})
    if region in table:
        gpu_price, host_price = table[region].get(key), (machine or {}).get(key)
        if gpu_price is None or host_price is None:
            return None  # noted already
        return round(float(host_price) + gpus * float(gpu_price), 4)
    if static:
        return 0.0  # a machine that is there anyway
    if gpu_type in catalogue.gpus:
        expected = f"prices.gpus.{gpu_type}.{region}.{key}, or `{key}` here"
        document.fault((*path, key), "no price", expected)
    return None
