"""Cluster selection: which cluster a job is for, and why. Pure; the order of the clusters never
matters. More GPUs than asked for and spot VMs are used by consent alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from core.cluster import ClusterSpec
from core.errors import BadInput, Fault
from core.job_fields import JobSpec
from core.submission import nearest, shown, unknown_cluster
from scheduler.queue.price_caps import size_words
from scheduler.submission.cluster_fit import cheapest_usd, lacks, members_max
from scheduler.submission.quotes import Quote, is_larger, prices_of, quote_of

_SIZES = frozenset({"gpu_count", "cpu_cores", "memory_mb"})
DEARER_MAX = 2.0
"""What another cluster may cost at most, in prices of the best one."""
OFFERS_MAX = 3
"""How many clusters a refusal offers."""
_ANY_NUMBER = 10_000
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Choice:
    """A cluster's name and the reason, in words for the submitter."""

    cluster: str
    reason: str
    quote: Quote | None = None
    """None: the cluster is not in the configuration any more."""


def choose_cluster(
    spec: JobSpec,
    clusters: Sequence[ClusterSpec],
    blocked: Mapping[str, str] = _NOTHING,
    *,
    spot_by_default: bool = False,
) -> Choice:
    """The cluster for this job, or BadInput that names what no cluster can give. `blocked`: cluster
    → why it has nothing to give now; the next one that serves the job is better then.
    `spot_by_default`: its tenant said `spot`, not the job, which does without where there is
    none."""
    must_be_spot = bool(spec.spot) and not spot_by_default
    if not clusters:
        raise BadInput([Fault("cluster", "no cluster", "at least one in the configuration")])
    _refuse_unknown_regions(spec, clusters)
    if spec.cluster is not None:
        return _named(spec, spec.cluster, clusters, must_be_spot)
    serving = _serving(spec, clusters, must_be_spot)
    drained = _drained_before(spec, clusters, serving[0])
    best = next((cluster for cluster in serving if cluster.name not in blocked), None)
    if best is None:
        best = serving[0]
        drained += (
            f"; it has nothing to give now ({blocked[best.name]}), and no other cluster that "
        )
        drained += "serves the job has"
    reason = _why(spec, best)
    before = [f"{c.name} ({blocked[c.name]})" for c in serving[: serving.index(best)]]
    if before:
        reason += f"; passed over: {', '.join(before)}"
    return Choice(best.name, reason + drained, quote_of(spec, best))


def _serving(
    spec: JobSpec, clusters: Sequence[ClusterSpec], must_be_spot: bool
) -> list[ClusterSpec]:
    """Clusters that take new jobs and serve this one. A refusal names the drained cluster that
    would have served it."""
    try:
        serving = in_preference(spec, [cluster for cluster in clusters if not cluster.drain])
        if must_be_spot and not any(cluster.spot for cluster in serving):
            raise BadInput([_no_spot(spec, [c for c in clusters if not c.drain])])
        return serving
    except BadInput as refusal:
        drained = _in_use(spec, [cluster for cluster in clusters if cluster.drain])
        drained = [cluster for cluster in drained if cluster.spot or not must_be_spot]
        if not drained:
            raise
        name, words = drained[0].name, quote_of(spec, drained[0]).words()
        expected = f"another cluster: {name} ({words}) would be the match and is being drained"
        raise BadInput([Fault("cluster", shown(name), expected), *refusal.faults]) from refusal


def choose_for_later(spec: JobSpec, clusters: Sequence[ClusterSpec]) -> Choice | None:
    """For clients that expect a job which fits nowhere to wait: the cluster with the largest VMs
    of the kind that it asks for. It waits there, and nothing is bought. None: something else than
    the size of VMs is in the way."""
    types = _types(spec)
    same = [
        c
        for c in clusters
        if not c.drain
        and bool(c.gpus) == bool(spec.gpu_count)
        and (not types or c.gpu_type in types)
        and not needed_consent(replace(spec, allow_larger=True), c)
    ]
    sized = [c for c in same if {f.field for f in lacks(spec, c)} <= _SIZES]
    if not sized or any(not lacks(spec, c) for c in sized):
        return None
    best = max(sized, key=lambda c: (c.gpus, c.cpus, c.memory_gb, c.name))
    return Choice(best.name, size_words(spec, best))


def _drained_before(spec: JobSpec, clusters: Sequence[ClusterSpec], best: ClusterSpec) -> str:
    """Which drained cluster would have been the better match; empty: none."""
    if not any(cluster.drain for cluster in clusters):
        return ""
    used = _in_use(spec, clusters)
    if not used or used[0].name == best.name:
        return ""
    return f"; {used[0].name} would be the better match and is being drained"


def _in_use(spec: JobSpec, clusters: Sequence[ClusterSpec]) -> list[ClusterSpec]:
    """The clusters that would serve the job if none of them were drained."""
    used = [replace(c, drain=False, vm_max=_ANY_NUMBER) if c.drain else c for c in clusters]
    try:
        return in_preference(spec, used)
    except BadInput:
        return []


def in_preference(spec: JobSpec, clusters: Sequence[ClusterSpec]) -> list[ClusterSpec]:
    """All that give the job what it asks for, the best one first; BadInput if there is none. Exact
    fits before larger VMs, spot VMs first for a job that wants them, then types in the order of the
    job; of one type the VMs that have least to spare, without a type the cheapest. One that costs
    more than twice the best of its type (for its size or its price) is none, unless the job says
    itself what it may cost."""
    if not clusters:
        raise BadInput([Fault("cluster", "no cluster", "one that is not being drained")])
    types = _types(spec)
    for gpu_type in types:
        _refuse_unknown_type(spec, gpu_type, clusters)
    every = [c for c in clusters if not types or c.gpu_type in types]
    _refuse_too_many(spec, every, f"with {' or '.join(types)}" if types else "of all")
    first_usd: dict[str, float] = {}
    found: list[ClusterSpec] = []
    for cluster in sorted(_fitting(spec, every), key=lambda c: _rank(spec, c)):
        share = _share(spec, cluster)
        most = DEARER_MAX * first_usd.setdefault(cluster.gpu_type if types else "", share)
        if spec.max_usd_per_hour or share <= most:
            found.append(cluster)
    return found


def standard_cluster(
    spec: JobSpec, here: ClusterSpec, clusters: Iterable[ClusterSpec]
) -> ClusterSpec | None:
    """Where a job goes that has no time left for the spot VMs of its cluster: the cheapest cluster
    of standard VMs with the same GPUs that gives it all it asks for. A job that named its cluster
    stays there."""
    kind = (here.gpu_type, here.gpus, here.worker)
    same = [
        cluster
        for cluster in clusters
        if not cluster.spot
        and not cluster.drain
        and cluster.vm_max > 0
        and (cluster.gpu_type, cluster.gpus, cluster.worker) == kind
        and not misfits(spec, cluster)
    ]
    found = min(same, key=lambda c: (c.cheapest_usd_per_hour, c.name), default=None)
    return found if spec.cluster is None else None


def _types(spec: JobSpec) -> tuple[str, ...]:
    return spec.gpu_types or ((spec.gpu_type,) if spec.gpu_type is not None else ())


def _rank(spec: JobSpec, cluster: ClusterSpec) -> tuple[object, ...]:
    first = (is_larger(spec, cluster), bool(spec.spot) and not cluster.spot)
    types = _types(spec)
    price = (_share(spec, cluster), cluster.gpus, cluster.name)
    if not types:
        return (*first, *price)
    odd = cluster.name != f"{spec.gpu_count}x{cluster.gpu_type}" and not spec.spot
    return (*first, types.index(cluster.gpu_type), _spare(spec, cluster), odd, *price)


def _spare(spec: JobSpec, cluster: ClusterSpec) -> int:
    """GPUs that nobody could use beside the job."""
    return 0 if cluster.share else cluster.gpus - spec.gpu_count


def _share(spec: JobSpec, cluster: ClusterSpec) -> float:
    """What the job costs per hour there: its part of a VM that it shares, else all of it."""
    return prices_of(spec, cluster)[0]


def _why(spec: JobSpec, cluster: ClusterSpec) -> str:
    """Why the first in preference is the first, and what it costs."""
    quote = quote_of(spec, cluster)
    types = _types(spec)
    if is_larger(spec, cluster):
        kind = f"larger than the {spec.gpu_count} asked for, as the job allows"
    elif not types:
        kind = "cheapest match"
    else:
        kind = "exact match"
    if len(types) > 1:
        kind = f"choice {types.index(cluster.gpu_type) + 1} of {len(types)}, {kind}"
    return f"{kind}: {quote.words()}"


# --- consent ------------------------------------------------------------------------------


def needed_consent(spec: JobSpec, cluster: ClusterSpec) -> tuple[str, ...]:
    """Fields that the job must set to true before it may have this cluster. A job that names its
    cluster has agreed to the size of its VMs, not to spot VMs."""
    larger = spec.allow_larger is False and spec.cluster is None and is_larger(spec, cluster)
    spot = spec.spot is False and cluster.spot
    return (*(("allow_larger",) if larger else ()), *(("spot",) if spot else ()))


def _consent_faults(spec: JobSpec, cluster: ClusterSpec) -> list[Fault]:
    words = quote_of(spec, cluster).words()
    return [
        Fault(field, "false", f"true to take {cluster.name} ({words})")
        for field in needed_consent(spec, cluster)
    ]


def _offers(spec: JobSpec, able: Sequence[ClusterSpec]) -> list[ClusterSpec]:
    """The nearest fits for a job that may have none of them as it stands."""

    def distance(cluster: ClusterSpec) -> tuple[object, ...]:
        return (len(needed_consent(spec, cluster)), *_rank(spec, cluster))

    return sorted(able, key=distance)[:OFFERS_MAX]


def _offer_words(spec: JobSpec, cluster: ClusterSpec) -> str:
    flags = " ".join(f"--{field.replace('_', '-')}" for field in needed_consent(spec, cluster))
    words = f"{cluster.name} ({quote_of(spec, cluster).words()})"
    return f"{words} with {flags}" if flags else words


def _not_agreed(spec: JobSpec, able: Sequence[ClusterSpec]) -> Fault:
    """Some clusters serve the job, and it has agreed to none of them."""
    offers = _offers(spec, able)
    field = needed_consent(spec, offers[0])[0]
    types = " or ".join(kind.upper() for kind in _types(spec))
    if field == "spot":
        lack = "every cluster that fits has spot VMs"
    elif spec.gpu_count:
        lack = f"no cluster has exactly {spec.gpu_count} {f'× {types}' if types else 'GPUs'} per VM"
        lack += " that fits" if any(c.gpus == spec.gpu_count for c in able) else ""
    else:
        lack = "no cluster without GPUs fits"
    nearest_fits = "; ".join(_offer_words(spec, cluster) for cluster in offers)
    words = f"{lack}; nearest fit: {nearest_fits}"
    return Fault(field, "no consent", f"true: {words}", words)


def _no_spot(spec: JobSpec, clusters: Sequence[ClusterSpec]) -> Fault:
    """The job wants spot VMs, and no cluster that it may have is spot."""
    types = _types(spec)
    able = [c for c in clusters if not lacks(spec, c) and (not types or c.gpu_type in types)]
    spot, standard = ([c for c in able if c.spot is kind] for kind in (True, False))
    offers = [*_offers(spec, spot)[:1], *_offers(spec, standard)[: OFFERS_MAX - 1]]
    words = [
        _offer_words(spec, cluster) + ("" if cluster.spot else " without --spot")
        for cluster in offers
    ]
    told = f"no cluster with spot VMs fits as asked; instead: {'; '.join(words)}"
    return Fault("spot", "true", f"false: {told}", told)


@dataclass(frozen=True, slots=True)
class ClusterCandidate:
    """A cluster that has what the job asks for."""

    cluster: ClusterSpec
    quote: Quote
    needs: tuple[str, ...]
    """What the job must agree to first."""


NO_SPOT = "no_spot"
"""Needed for standard VMs by a job that asks for spot VMs and would be refused."""


def candidates(
    spec: JobSpec, clusters: Sequence[ClusterSpec], *, spot_by_default: bool = False
) -> list[ClusterCandidate]:
    """All clusters that have what the job asks for, in the order in which they are taken; then
    the ones that it has not agreed to; drained ones last."""
    types = _types(spec)
    used = [replace(c, vm_max=_ANY_NUMBER) if c.drain else c for c in clusters]
    able = [
        cluster
        for cluster in used
        if spec.cluster in (None, cluster.name)
        and (not types or cluster.gpu_type in types)
        and not lacks(spec, cluster)
    ]
    found = [ClusterCandidate(c, quote_of(spec, c), needed_consent(spec, c)) for c in able]
    served = any(f.cluster.spot and not f.needs and not f.cluster.drain for f in found)
    if spec.spot and not spot_by_default and not served:
        found = [f if f.cluster.spot else replace(f, needs=(*f.needs, NO_SPOT)) for f in found]

    def order(of: ClusterCandidate) -> tuple[object, ...]:
        # Who wants spot VMs sees those first that there are, though larger than asked for.
        return (of.cluster.drain, NO_SPOT in of.needs, len(of.needs), *_rank(spec, of.cluster))

    return sorted(found, key=order)


# --- fit ----------------------------------------------------------------------------------


def misfits(spec: JobSpec, cluster: ClusterSpec) -> list[Fault]:
    """Everything the job asks for that this cluster does not have, and every consent that the job
    has not given."""
    return lacks(spec, cluster) + _consent_faults(spec, cluster)


def _named(spec: JobSpec, name: str, clusters: Sequence[ClusterSpec], must_be_spot: bool) -> Choice:
    found = next((cluster for cluster in clusters if cluster.name == name), None)
    if found is None:
        raise BadInput([unknown_cluster(name, (c.name for c in clusters))])
    if found.drain:
        others = ", ".join(sorted(c.name for c in clusters if not c.drain)) or "there is none"
        expected = f"a cluster that is not being drained ({others})"
        raise BadInput([Fault("cluster", shown(name), expected)])
    if faults := misfits(spec, found):
        raise BadInput(faults)
    if must_be_spot and not found.spot:
        raise BadInput([_no_spot(spec, [found])])
    quote = quote_of(spec, found)
    unused = quote.gpus - quote.used if not quote.shared else 0
    rest = f", of which {unused} stay unused" if unused > 0 else ""
    return Choice(name, f"cluster asked for: {quote.words()}{rest}", quote)


def _refuse_unknown_type(spec: JobSpec, gpu_type: str, clusters: Sequence[ClusterSpec]) -> None:
    known = {c.gpu_type for c in clusters if c.gpus or not spec.gpu_count}
    if gpu_type not in known:
        field = "gpu_types" if spec.gpu_types else "gpu_type"
        expected = f"a GPU type that exists ({nearest(gpu_type, known)})"
        raise BadInput([Fault(field, shown(gpu_type), expected)])


def _fitting(spec: JobSpec, clusters: Iterable[ClusterSpec]) -> list[ClusterSpec]:
    """The clusters that fit and that the job has agreed to; if none does, BadInput with the faults
    of the one that comes closest, or with the offers that the job may agree to."""
    judged = [(lacks(spec, cluster), cluster) for cluster in clusters]
    able = [cluster for faults, cluster in judged if not faults]
    if not able:
        faults, closest = min(judged, key=lambda j: _distance(spec, *j))
        raise BadInput([_of_the_largest(fault, spec, closest) for fault in faults])
    agreed = [cluster for cluster in able if not needed_consent(spec, cluster)]
    if not agreed:
        raise BadInput([_not_agreed(spec, able)])
    return agreed


def _of_the_largest(fault: Fault, spec: JobSpec, cluster: ClusterSpec) -> Fault:
    """The number of VMs is judged by the largest cluster that the job could use otherwise."""
    if fault.field != "replicas" or cluster.worker == "v1":
        return fault
    words = f"at most {members_max(spec, cluster)}: {cluster.name} is the largest cluster that "
    return Fault(fault.field, fault.got, words + "the job can use")


def _distance(
    spec: JobSpec, faults: Sequence[Fault], cluster: ClusterSpec
) -> tuple[int, float, int, int, int, float, str]:
    """How far a cluster is from what the job asks for: of clusters that are too dear the cheapest
    comes closest, of clusters that are too small for a gang the largest, otherwise the one with the
    most GPUs."""
    fields = {fault.field for fault in faults}
    over = cheapest_usd(spec, cluster) if "max_usd_per_hour" in fields else 0.0
    members, consents = 0, 0
    if "replicas" in fields:  # one that the job may have as it stands, then the largest
        members, consents = members_max(spec, cluster), len(needed_consent(spec, cluster))
    size = (consents, -members, -cluster.gpus)
    return (len(faults), over, *size, _whole_price(cluster), cluster.name)


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


def _whole_price(cluster: ClusterSpec) -> float:
    return cluster.cheapest_usd_per_hour
