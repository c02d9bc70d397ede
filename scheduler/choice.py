"""Which cluster a job is for, and why. Pure; the order of the clusters never matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from core.capacity import ClusterSpec
from core.errors import BadInput, Fault
from core.job import JobSpec
from core.submission import nearest, shown

DEARER_MAX = 2.0
"""What another cluster may cost at most, in prices of the best one."""
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Choice:
    """A cluster's name and the reason, in words for the submitter."""

    cluster: str
    reason: str


def choose_cluster(
    spec: JobSpec, clusters: Sequence[ClusterSpec], blocked: Mapping[str, str] = _NOTHING
) -> Choice:
    """The cluster for this job, or BadInput that names what no cluster can give. `blocked`: cluster
    → why it has nothing to give now; the next one that serves the job is better then."""
    if not clusters:
        raise BadInput([Fault("cluster", "no cluster", "at least one in the configuration")])
    _refuse_unknown_regions(spec, clusters)
    if spec.cluster is not None:
        return _named(spec, spec.cluster, clusters)
    clusters = [cluster for cluster in clusters if not cluster.drain]
    if not clusters:
        raise BadInput([Fault("cluster", "no cluster", "one that is not being drained")])
    serving = in_preference(spec, clusters)
    best = next((cluster for cluster in serving if cluster.name not in blocked), None)
    if best is None:
        first = serving[0]
        words = f"{_why(spec, first)}; it has nothing to give now ({blocked[first.name]}), and no "
        return Choice(first.name, words + "other that serves the job has")
    if best is serving[0]:
        return Choice(best.name, _why(spec, best))
    before = [f"{c.name}: {blocked[c.name]}" for c in serving[: serving.index(best)]]
    return Choice(best.name, f"the next that serves the job; before it {'; '.join(before)}")


def in_preference(spec: JobSpec, clusters: Sequence[ClusterSpec]) -> list[ClusterSpec]:
    """All that give the job what it asks for, the best one first; BadInput if there is none. Types
    in the order of the job, and of one type the VMs that have least to spare; without a type the
    cheapest. One that costs more than twice the best of its type (for its size or its price) is
    none, unless the job says itself what it may cost."""
    types = spec.gpu_types or ((spec.gpu_type,) if spec.gpu_type is not None else ())
    for gpu_type in types:
        _refuse_unknown_type(spec, gpu_type, clusters)
    groups = [[c for c in clusters if c.gpu_type == gpu_type] for gpu_type in types]
    groups = groups or [list(clusters)]
    every = [cluster for group in groups for cluster in group]
    _refuse_too_many(spec, every, f"with {' or '.join(types)}" if types else "of all")
    fitting = {cluster.name for cluster in _fitting(spec, every)}
    found: list[ClusterSpec] = []
    for group in groups:
        able = [cluster for cluster in group if cluster.name in fitting]
        able.sort(key=lambda c: _rank(spec, c) if types else _price_rank(spec, c))
        most = DEARER_MAX * _share(spec, able[0]) if able else 0.0
        cheap = [c for c in able if spec.max_usd_per_hour or _share(spec, c) <= most]
        found += cheap
    return found


def _rank(spec: JobSpec, cluster: ClusterSpec) -> tuple[object, ...]:
    exact = f"{spec.gpu_count}x{cluster.gpu_type}"
    odd = cluster.name != exact and not spec.spot
    return (_spare(spec, cluster), odd, _share(spec, cluster), cluster.gpus, cluster.name)


def _price_rank(spec: JobSpec, cluster: ClusterSpec) -> tuple[object, ...]:
    return (_share(spec, cluster), cluster.gpus, cluster.name)


def _spare(spec: JobSpec, cluster: ClusterSpec) -> int:
    """GPUs that nobody could use beside the job."""
    return 0 if cluster.share else cluster.gpus - spec.gpu_count


def _share(spec: JobSpec, cluster: ClusterSpec) -> float:
    """What the job costs per hour there: its part of a VM that it shares, else all of it."""
    whole = _price(spec, cluster)
    return whole * spec.gpu_count / cluster.gpus if cluster.share else whole


def _why(spec: JobSpec, cluster: ClusterSpec) -> str:
    """Why the first in preference is the first."""
    count, gpu_type = spec.gpu_count, cluster.gpu_type
    if spec.gpu_type is None and not spec.gpu_types:
        return (
            f"no gpu_type was asked for, this is the cheapest that fits "
            f"(from ${_price(spec, cluster):.2f} per VM and hour)"
        )
    first = (
        f"{gpu_type} is your choice {spec.gpu_types.index(gpu_type) + 1}: "
        if spec.gpu_types
        else ""
    )
    if cluster.gpus == count:
        return f"{first}its VMs have exactly the {count} {gpu_type} asked for"
    if cluster.share:
        return f"{first}its VMs are shared, the job has {count} of their {cluster.gpus} GPUs"
    return (
        f"{first}no cluster with exactly {count} {gpu_type} fits, "
        f"this is the smallest that does ({cluster.gpus} GPUs)"
    )


def _no_gang(spec: JobSpec, cluster: ClusterSpec) -> list[Fault]:
    """Why a gang cannot run there."""
    if cluster.worker == "v1":
        expected = f"1: the v1 workers of {cluster.name} know no gangs"
        return [Fault("replicas", str(spec.replicas), expected)]
    each = cluster.gpus // spec.gpu_count if cluster.share and spec.gpu_count else 1
    most = cluster.vm_max * max(1, each)
    if spec.least <= most:
        return []
    expected = f"at most {most}, what cluster {cluster.name} can run at once"
    return [Fault("replicas", str(spec.least), expected)]


def _not_for_v1(spec: JobSpec, cluster: ClusterSpec) -> list[Fault]:
    """What its v1 workers cannot do, which know workflows and take whatever job comes next."""
    who = f"the v1 workers of {cluster.name}"
    faults: list[Fault] = []
    if not spec.workflow:
        faults.append(Fault("workflow", "nothing", f"the name of a workflow: {who} run no command"))
    if spec.image is not None:
        faults.append(Fault("image", shown(spec.image), f"none: {who} run no containers"))
    if spec.environment:
        names = shown(sorted(spec.environment))
        expected = f"none: {who} take it as workflow_args.override_env"
        faults.append(Fault("environment", names, expected))
    wishes = (
        ("regions", list(spec.regions)),
        ("regions_denied", list(spec.regions_denied)),
        ("max_usd_per_hour", spec.max_usd_per_hour),
    )
    served = [r.region for r in cluster.regions if _is_allowed(spec, cluster, r.region)]
    if served and len(served) < len(cluster.regions):
        faults += [
            Fault(
                field,
                shown(wish),
                f"what all regions of {cluster.name} fulfil: {who} take jobs in any of them",
            )
            for field, wish in wishes
            if wish
        ]
    return faults


def _is_allowed(spec: JobSpec, cluster: ClusterSpec, region: str) -> bool:
    dear = spec.max_usd_per_hour is not None and (
        cluster.usd_per_hour(region) > spec.max_usd_per_hour
    )
    return spec.allows_region(region) and not dear


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
    if spec.replicas > 1:
        faults += _no_gang(spec, cluster)
    if cluster.worker == "v1":
        faults += _not_for_v1(spec, cluster)
    regions_fit = set(spec.regions) <= _names(cluster)
    cheapest = _price(spec, cluster) if regions_fit else 0.0
    if spec.max_usd_per_hour is not None and spec.max_usd_per_hour < cheapest:
        expected = f"at least {cheapest:g}, what a VM of {cluster.name} costs where it is cheapest"
        faults.append(Fault("max_usd_per_hour", f"{spec.max_usd_per_hour:g}", expected))
    has = sorted(_names(cluster))
    if not set(spec.regions) <= set(has):
        expected = f"regions of {cluster.name}: {', '.join(has)}"
        faults.append(Fault("regions", shown(list(spec.regions)), expected))
    if has and regions_fit and not any(map(spec.allows_region, has)):
        expected = f"at least one region of {cluster.name} left: {', '.join(has)}"
        faults.append(Fault("regions_denied", shown(list(spec.regions_denied)), expected))
    if spec.spot is False and cluster.spot:
        faults.append(Fault("spot", "false", f"true: the VMs of {cluster.name} are spot VMs"))
    if spec.gpu_type is not None and spec.gpu_type != cluster.gpu_type:
        expected = f"{cluster.gpu_type}, the GPU type of cluster {cluster.name}"
        faults.append(Fault("gpu_type", shown(spec.gpu_type), expected))
    if spec.gpu_types and cluster.gpu_type not in spec.gpu_types:
        expected = f"{cluster.gpu_type} among them, the GPU type of cluster {cluster.name}"
        faults.append(Fault("gpu_types", shown(list(spec.gpu_types)), expected))
    return faults


def _named(spec: JobSpec, name: str, clusters: Sequence[ClusterSpec]) -> Choice:
    found = next((cluster for cluster in clusters if cluster.name == name), None)
    if found is None:
        expected = f"a cluster that exists ({nearest(name, (c.name for c in clusters))})"
        raise BadInput([Fault("cluster", shown(name), expected)])
    if found.drain:
        others = ", ".join(sorted(c.name for c in clusters if not c.drain)) or "there is none"
        expected = f"a cluster that is not being drained ({others})"
        raise BadInput([Fault("cluster", shown(name), expected)])
    if faults := misfits(spec, found):
        raise BadInput(faults)
    return Choice(name, "you asked for this cluster")


def _refuse_unknown_type(spec: JobSpec, gpu_type: str, clusters: Sequence[ClusterSpec]) -> None:
    known = {cluster.gpu_type for cluster in clusters}
    if gpu_type not in known:
        field = "gpu_types" if spec.gpu_types else "gpu_type"
        expected = f"a GPU type that exists ({nearest(gpu_type, known)})"
        raise BadInput([Fault(field, shown(gpu_type), expected)])


def _fitting(spec: JobSpec, clusters: Iterable[ClusterSpec]) -> list[ClusterSpec]:
    """Those that fit; if none does, BadInput with the faults of the one that comes closest."""
    judged = [(misfits(spec, cluster), cluster) for cluster in clusters]
    fitting = [cluster for faults, cluster in judged if not faults]
    if not fitting:
        closest = min(judged, key=lambda j: _distance(spec, *j))
        raise BadInput(closest[0])
    return fitting


def _distance(
    spec: JobSpec, faults: Sequence[Fault], cluster: ClusterSpec
) -> tuple[int, float, int, float, str]:
    """How far a cluster is from what the job asks for: of those that are too dear the cheapest
    comes closest, otherwise the one with the most GPUs."""
    dear = any(fault.field == "max_usd_per_hour" for fault in faults)
    over = _price(spec, cluster) if dear else 0.0
    return (len(faults), over, -cluster.gpus, _whole_price(cluster), cluster.name)


def _refuse_too_many(spec: JobSpec, clusters: Sequence[ClusterSpec], which: str) -> None:
    largest = max(clusters, key=lambda c: (c.gpus, c.name))
    if spec.gpu_count > largest.gpus:
        expected = f"at most {largest.gpus}: the largest cluster {which} is {largest.name}"
        raise BadInput([Fault("gpu_count", str(spec.gpu_count), expected)])


def _refuse_unknown_regions(spec: JobSpec, clusters: Sequence[ClusterSpec]) -> None:
    known = {region.region for cluster in clusters for region in cluster.regions}
    faults = [
        Fault(field, shown(name), f"a region of some cluster ({nearest(name, known)})")
        for field, names in (("regions", spec.regions), ("regions_denied", spec.regions_denied))
        for name in names
        if name not in known
    ]
    if faults:
        raise BadInput(faults)


def _names(cluster: ClusterSpec) -> set[str]:
    return {region.region for region in cluster.regions}


def _price(spec: JobSpec, cluster: ClusterSpec) -> float:
    """What a VM costs in the cheapest region that the job allows."""
    allowed = (r.region for r in cluster.regions if spec.allows_region(r.region))
    return min((cluster.usd_per_hour(region) for region in allowed), default=0.0)


def _whole_price(cluster: ClusterSpec) -> float:
    return cluster.cheapest_usd_per_hour
