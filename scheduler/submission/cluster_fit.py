"""What a cluster lacks for a job, in faults of its fields. Pure."""

from __future__ import annotations

from core.cluster import ClusterSpec
from core.errors import Fault
from core.job_fields import JobSpec
from core.submission import shown
from scheduler.submission.quotes import prices_of


def _no_gang(spec: JobSpec, cluster: ClusterSpec) -> list[Fault]:
    """Why a gang cannot run there."""
    if cluster.worker == "v1":
        expected = f"1: the v1 workers of {cluster.name} know no gangs"
        return [Fault("replicas", str(spec.replicas), expected)]
    most = members_max(spec, cluster)
    if spec.least <= most:
        return []
    expected = f"at most {most}, what cluster {cluster.name} can run at once"
    return [Fault("replicas", str(spec.least), expected)]


def members_max(spec: JobSpec, cluster: ClusterSpec) -> int:
    """How many members of a gang the cluster can run at once."""
    return cluster.vm_max * max(1, cluster.jobs_per_vm(spec.gpu_count))


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
    if spec.secrets:
        expected = f"none: start messages of {who} are not sealed"
        faults.append(Fault("secrets", shown(sorted(spec.secrets)), expected))
    if spec.code:
        faults.append(Fault("code", shown(spec.code), f"none: {who} know no code of jobs"))
    if spec.google_token:
        expected = f"false: start messages of {who} are not sealed"
        faults.append(Fault("google_token", "true", expected))
    requests = (
        ("regions", list(spec.regions)),
        ("regions_denied", list(spec.regions_denied)),
        ("max_usd_per_hour", spec.max_usd_per_hour),
    )
    served = [r.region for r in cluster.regions if _is_allowed(spec, cluster, r.region)]
    if served and len(served) < len(cluster.regions):
        faults += [
            Fault(
                field,
                shown(request),
                f"what all regions of {cluster.name} fulfil: {who} take jobs in any of them",
            )
            for field, request in requests
            if request
        ]
    return faults


def _is_allowed(spec: JobSpec, cluster: ClusterSpec, region: str) -> bool:
    dear = spec.max_usd_per_hour is not None and (
        cluster.usd_per_hour(region) > spec.max_usd_per_hour
    )
    return spec.allows_region(region) and not dear


def lacks(spec: JobSpec, cluster: ClusterSpec) -> list[Fault]:
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
    if spec.working_dir and spec.image is None and not cluster.terms.owned:
        expected = (
            "none, or an image: VMs of a cloud do not have your directories, a process has one of "
            "its own there"
        )
        faults.append(Fault("working_dir", shown(spec.working_dir), expected))
    regions_fit = set(spec.regions) <= region_names(cluster)
    cheapest = cheapest_usd(spec, cluster) if regions_fit else 0.0
    if spec.max_usd_per_hour is not None and spec.max_usd_per_hour < cheapest:
        expected = f"at least {cheapest:g}, what a VM of {cluster.name} costs where it is cheapest"
        faults.append(Fault("max_usd_per_hour", f"{spec.max_usd_per_hour:g}", expected))
    agreed_usd, dearest = spec.agreed_usd_per_hour, prices_of(spec, cluster)[1]
    if agreed_usd is not None and dearest > agreed_usd:
        expected = f"at least {dearest:g}, what a VM of {cluster.name} costs where it is dearest"
        faults.append(Fault("max_usd_per_hour", f"{agreed_usd:g} agreed to", expected))
    has = sorted(region_names(cluster))
    if not set(spec.regions) <= set(has):
        expected = f"regions of {cluster.name}: {', '.join(has)}"
        faults.append(Fault("regions", shown(list(spec.regions)), expected))
    if has and regions_fit and not any(map(spec.allows_region, has)):
        expected = f"at least one region of {cluster.name} left: {', '.join(has)}"
        faults.append(Fault("regions_denied", shown(list(spec.regions_denied)), expected))
    if spec.gpu_type is not None and spec.gpu_type != cluster.gpu_type:
        expected = f"{cluster.gpu_type}, the GPU type of cluster {cluster.name}"
        faults.append(Fault("gpu_type", shown(spec.gpu_type), expected))
    if spec.gpu_types and cluster.gpu_type not in spec.gpu_types:
        expected = f"{cluster.gpu_type} among them, the GPU type of cluster {cluster.name}"
        faults.append(Fault("gpu_types", shown(list(spec.gpu_types)), expected))
    return faults


def region_names(cluster: ClusterSpec) -> set[str]:
    return {region.region for region in cluster.regions}


def cheapest_usd(spec: JobSpec, cluster: ClusterSpec) -> float:
    """What a VM costs in the cheapest region that the job allows."""
    allowed = (r.region for r in cluster.regions if spec.allows_region(r.region))
    return min((cluster.usd_per_hour(region) for region in allowed), default=0.0)
