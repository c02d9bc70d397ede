"""Which cluster a job is for, and why. Pure; the order of the clusters never matters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.capacity import ClusterSpec
from core.errors import BadInput, Fault
from core.job import JobSpec
from core.submission import nearest, shown


@dataclass(frozen=True, slots=True)
class Choice:
    """A cluster's name and the reason, in words for the submitter."""

    cluster: str
    reason: str


def choose_cluster(spec: JobSpec, clusters: Sequence[ClusterSpec]) -> Choice:
    """The cluster for this job, or BadInput that names what no cluster can give."""
    if not clusters:
        raise BadInput([Fault("cluster", "no cluster", "at least one in the configuration")])
    _refuse_unknown_regions(spec, clusters)
    if spec.cluster is not None:
        return _named(spec, spec.cluster, clusters)
    if spec.gpu_type is not None:
        return _of_type(spec, spec.gpu_type, clusters)
    return _cheapest(spec, clusters)


def misfits(spec: JobSpec, cluster: ClusterSpec) -> list[Fault]:
    """Everything the job asks for that this cluster does not have."""
    limits = (
        ("gpu_count", spec.gpu_count, cluster.gpus, "GPUs"),
        ("gpu_memory_mb", spec.gpu_memory_mb, cluster.gpu_memory_gb * 1024, "MB on each GPU"),
        ("cpu_cores", spec.cpu_cores, cluster.cpus, "cores"),
        ("memory_mb", spec.memory_mb, cluster.memory_gb * 1024, "MB"),
    )
    faults = [
        Fault(field, f"{asked:g}", f"at most {there} {unit}, what a VM of {cluster.name} has")
        for field, asked, there, unit in limits
        if asked > there
    ]
    has = sorted(region.region for region in cluster.regions)
    if not set(spec.regions) <= set(has):
        expected = f"regions of {cluster.name}: {', '.join(has)}"
        faults.append(Fault("regions", shown(list(spec.regions)), expected))
    if spec.gpu_type is not None and spec.gpu_type != cluster.gpu_type:
        expected = f"{cluster.gpu_type}, the GPU type of cluster {cluster.name}"
        faults.append(Fault("gpu_type", shown(spec.gpu_type), expected))
    return faults


def _named(spec: JobSpec, name: str, clusters: Sequence[ClusterSpec]) -> Choice:
    found = next((cluster for cluster in clusters if cluster.name == name), None)
    if found is None:
        expected = f"a cluster that exists ({nearest(name, (c.name for c in clusters))})"
        raise BadInput([Fault("cluster", shown(name), expected)])
    if faults := misfits(spec, found):
        raise BadInput(faults)
    return Choice(name, "you asked for this cluster")


def _of_type(spec: JobSpec, gpu_type: str, clusters: Sequence[ClusterSpec]) -> Choice:
    same_type = [cluster for cluster in clusters if cluster.gpu_type == gpu_type]
    if not same_type:
        expected = f"a GPU type that exists ({nearest(gpu_type, {c.gpu_type for c in clusters})})"
        raise BadInput([Fault("gpu_type", shown(gpu_type), expected)])
    _refuse_too_many(spec, same_type, f"with {gpu_type}")
    exact = f"{spec.gpu_count}x{gpu_type}"
    best = min(
        _fitting(spec, same_type),
        key=lambda c: (c.gpus, c.name != exact, _price(spec, c), c.name),
    )
    if best.gpus == spec.gpu_count:
        return Choice(best.name, f"its VMs have exactly the {spec.gpu_count} {gpu_type} asked for")
    return Choice(
        best.name,
        f"no cluster with exactly {spec.gpu_count} {gpu_type} fits, "
        f"this is the smallest that does ({best.gpus} GPUs)",
    )


def _cheapest(spec: JobSpec, clusters: Sequence[ClusterSpec]) -> Choice:
    _refuse_too_many(spec, clusters, "of all")
    best = min(_fitting(spec, clusters), key=lambda c: (_price(spec, c), c.gpus, c.name))
    return Choice(
        best.name,
        f"no gpu_type was asked for, this is the cheapest that fits "
        f"(from ${_price(spec, best):.2f} per VM and hour)",
    )


def _fitting(spec: JobSpec, clusters: Iterable[ClusterSpec]) -> list[ClusterSpec]:
    """Those that fit; if none does, BadInput with the faults of the one that comes closest."""
    judged = [(misfits(spec, cluster), cluster) for cluster in clusters]
    fitting = [cluster for faults, cluster in judged if not faults]
    if not fitting:
        closest = min(judged, key=lambda j: (len(j[0]), -j[1].gpus, _whole_price(j[1]), j[1].name))
        raise BadInput(closest[0])
    return fitting


def _refuse_too_many(spec: JobSpec, clusters: Sequence[ClusterSpec], which: str) -> None:
    largest = max(clusters, key=lambda c: (c.gpus, c.name))
    if spec.gpu_count > largest.gpus:
        expected = f"at most {largest.gpus}: the largest cluster {which} is {largest.name}"
        raise BadInput([Fault("gpu_count", str(spec.gpu_count), expected)])


def _refuse_unknown_regions(spec: JobSpec, clusters: Sequence[ClusterSpec]) -> None:
    known = {region.region for cluster in clusters for region in cluster.regions}
    faults = [
        Fault("regions", shown(name), f"a region of some cluster ({nearest(name, known)})")
        for name in spec.regions
        if name not in known
    ]
    if faults:
        raise BadInput(faults)


def _price(spec: JobSpec, cluster: ClusterSpec) -> float:
    """What a VM costs in the cheapest region that the job allows."""
    if not spec.regions:
        return cluster.cheapest_usd_per_hour
    return min(cluster.usd_per_hour(region) for region in spec.regions)


def _whole_price(cluster: ClusterSpec) -> float:
    return cluster.cheapest_usd_per_hour
