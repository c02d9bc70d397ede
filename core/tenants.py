"""Tenants: what each may have, what it has, and what it has used.

A quota is a guarantee about what is admitted at once: the sum over a tenant's jobs that hold or
await a VM never exceeds it. It is checked when the cycle is planned, and again inside the
transaction that admits, under the lock of the tenant's row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any

from core.cluster import ClusterSpec
from core.cost import TenantBudget
from core.field_kinds import FLAG, Kind, named, quantity, short_text, whole
from core.field_options import Option, Said
from core.job import LEASED, Job, JobStatus
from core.job_fields import JobSpec
from core.queueing import PRIORITY_CAPS, PRIORITY_HIGHEST

DEFAULT_TENANT = "default"
OTHERS_JOB = "of another tenant"
HOLDS = frozenset({*LEASED, JobStatus.PROVISIONING})
"""A job in one of these counts against its tenant's quota."""
Amounts = dict[str, float]
"""Resource → how much: jobs, gpus, gpus:<type>, gpu_memory_gb, cpus, memory_gb."""
_NOUNS: Mapping[str, str] = {
    "jobs": "jobs at once",
    "gpus": "GPUs",
    "gpu_memory_gb": "GB of GPU memory",
    "cpus": "CPUs",
    "memory_gb": "GB of memory",
}


@dataclass(frozen=True, slots=True)
class TenantSetting:
    """What is said about a setting beside its type and default. The check of a change, REST, the
    options of `zen tenants set` and the reference follow from it; consent and quota are stored as
    documents, so that a new one there needs no column."""

    kind: Kind
    option: Option
    nullable: bool
    """null is the default: no limit, or as the configuration says."""

    def check(self, value: object) -> str | None:
        """What was expected; None if the value is right."""
        expected = None if value is None and self.nullable else self.kind.check(value)
        return f"{expected}, or null" if expected and self.nullable else expected

    def read(self, value: object) -> Any:
        return None if value is None else self.kind.read(value)

    @property
    def schema(self) -> dict[str, object]:
        kind = self.kind.schema
        return {**kind, "type": [kind["type"], "null"]} if self.nullable else dict(kind)


def _setting(default: Any, kind: Kind, *words: Any) -> Any:
    """`words`: those of its option."""
    setting = TenantSetting(kind, Option(*words), nullable=default is None)
    return field(default=default, metadata={"setting": setting})


def _flag(default: bool, flags: str, words: str) -> Any:
    return _setting(default, FLAG, flags, None, words)


def _limit(kind: Kind, flag: str, words: str = "A number, or none for no limit.") -> Any:
    return _setting(None, kind, flag, "N", words)


def settings_of(part: type) -> dict[str, TenantSetting]:
    """The settings among the fields of Tenant, Consent or Quota."""
    return {f.name: f.metadata["setting"] for f in fields(part) if "setting" in f.metadata}


_COUNT = replace(whole(0, 10_000_000), schema={"type": "integer", "minimum": 0})
_PRIORITY = replace(
    named(whole(0, PRIORITY_HIGHEST), PRIORITY_CAPS),
    schema={"type": "integer", "minimum": 0, "maximum": PRIORITY_HIGHEST},
)


@dataclass(frozen=True, slots=True)
class Quota:
    """None: no limit."""

    gpus: int | None = _limit(_COUNT, "--gpus")
    gpus_by_type: Mapping[str, int] = field(default_factory=dict)
    gpu_memory_gb: float | None = _limit(quantity(), "--gpu-memory-gb")
    cpus: float | None = _limit(quantity(), "--cpus")
    memory_gb: float | None = _limit(quantity(), "--memory-gb")
    jobs: int | None = _limit(_COUNT, "--jobs", "Jobs at once, or none for no limit.")
    usd_per_day: float | None = _limit(quantity(above_zero=True), "--usd-per-day")
    usd_per_month: float | None = _limit(quantity(above_zero=True), "--usd-per-month")

    @property
    def limits(self) -> Amounts:
        """What may be held at once; dollars are watched elsewhere."""
        plain = {name: getattr(self, name) for name in _NOUNS}
        found = {name: float(limit) for name, limit in plain.items() if limit is not None}
        return found | {f"gpus:{name}": float(n) for name, n in self.gpus_by_type.items()}


@dataclass(frozen=True, slots=True)
class Consent:
    """What a tenant agrees to for jobs that say nothing of their own."""

    spot: bool = _flag(False, "--spot/--no-spot", "Spot VMs for jobs that do not say.")
    allow_larger: bool = _flag(
        False,
        "--allow-larger/--no-allow-larger",
        "More GPUs than asked for, for jobs that do not say.",
    )
    confirm_above_usd_per_hour: float | None = _setting(
        None,
        quantity(),
        "--confirm-above",
        "USD",
        "Dearer submissions must be confirmed, per hour; none: as the configuration says.",
    )


@dataclass(frozen=True, slots=True)
class Tenant:
    """A group of users. A tenant that nobody has set up has these defaults."""

    tenant_id: str
    weight: float = _setting(
        1.0, quantity(above_zero=True), "--weight", "N", "Its part beside the others' weights."
    )
    priority_max: int = _setting(
        PRIORITY_HIGHEST,
        _PRIORITY,
        "--priority-max",
        "N",
        "Its jobs may not ask for more; or a class.",
        Said.NAMED,
    )
    may_preempt: bool = _flag(
        True, "--may-preempt/--may-not-preempt", "May its jobs take others' place?"
    )
    preemptible: bool = _flag(True, "--preemptible/--not-preemptible", "May its jobs be preempted?")
    quota: Quota = field(default_factory=Quota)
    version: int = 1
    name: str = _setting("", short_text(128), "--name", "NAME", "For people.")
    """Empty: as its id."""
    deleted: bool = False
    """Nobody's any more: shown in no list, and unknown to a submission. Its row stays, with the
    defaults, so that a job that came at the same moment still finds it."""
    consent: Consent = field(default_factory=Consent)


@dataclass(frozen=True, slots=True)
class Usage:
    """GPU-seconds of attempts that are over, decayed up to `at`."""

    gpu_s: float = 0.0
    at: datetime | None = None

    def decayed(self, now: datetime, half_life_s: float) -> float:
        if self.at is None or now <= self.at:
            return self.gpu_s
        return self.gpu_s * _left(now - self.at, half_life_s)

    def plus(self, gpu_s: float, at: datetime, half_life_s: float) -> Usage:
        """Later news decays what was known; news that come late are not made younger."""
        newest = at if self.at is None else max(at, self.at)
        late = _left(newest - at, half_life_s)
        return Usage(self.decayed(newest, half_life_s) + gpu_s * late, newest)


def _left(age: timedelta, half_life_s: float) -> float:
    """The part that is not forgotten after so long."""
    return float(0.5 ** (age.total_seconds() / half_life_s))


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant as stored."""

    tenant: Tenant
    usage: Usage


@dataclass(frozen=True, slots=True)
class MachineShape:
    """What a GPU of a cluster (or a VM without GPUs) brings along: a job that names no GPU memory,
    no CPUs or no memory takes its part."""

    gpu_type: str
    gpu_memory_gb: float
    cpus: float
    memory_gb: float
    has_gpus: bool = True


def machines_of(clusters: Iterable[ClusterSpec]) -> dict[str, MachineShape]:
    """Cluster → what one of its GPUs stands for."""
    return {
        c.name: MachineShape(
            c.gpu_type, c.gpu_memory_gb, c.cpus / c.slots, c.memory_gb / c.slots, c.gpus > 0
        )
        for c in clusters
    }


@dataclass(frozen=True, slots=True)
class ResourceTotals:
    """What jobs ask for, summed. Jobs that name no GPU memory (or CPUs, or memory) are counted by
    their GPUs; one without GPUs has its VM to itself. A job's `gpu_memory_mb` counts once, however
    many GPUs it has: that is how quotas of multi-tenant clients are meant."""

    jobs: int = 0
    gpus: int = 0
    cpus: float = 0.0
    gpus_without_cpus: int = 0
    memory_mb: float = 0.0
    gpus_without_memory: int = 0
    gpu_memory_mb: float = 0.0
    gpus_without_gpu_memory: int = 0

    @staticmethod
    def of(spec: JobSpec) -> ResourceTotals:
        return ResourceTotals(
            jobs=1,
            gpus=spec.gpu_count,
            cpus=spec.cpu_cores,
            gpus_without_cpus=0 if spec.cpu_cores else spec.slots,
            memory_mb=spec.memory_mb,
            gpus_without_memory=0 if spec.memory_mb else spec.slots,
            gpu_memory_mb=spec.gpu_memory_mb,
            gpus_without_gpu_memory=0 if spec.gpu_memory_mb else spec.gpu_count,
        )

    def plus(self, other: ResourceTotals, sign: int = 1) -> ResourceTotals:
        return ResourceTotals(
            self.jobs + sign * other.jobs,
            self.gpus + sign * other.gpus,
            self.cpus + sign * other.cpus,
            self.gpus_without_cpus + sign * other.gpus_without_cpus,
            self.memory_mb + sign * other.memory_mb,
            self.gpus_without_memory + sign * other.gpus_without_memory,
            self.gpu_memory_mb + sign * other.gpu_memory_mb,
            self.gpus_without_gpu_memory + sign * other.gpus_without_gpu_memory,
        )

    def amounts(self, machine: MachineShape | None) -> Amounts:
        """A cluster that is not configured any more has no types, and no parts to take."""
        found: Amounts = {"jobs": self.jobs, "gpus": self.gpus}
        cpus, memory_gb = self.cpus, self.memory_mb / 1024
        found["gpu_memory_gb"] = self.gpu_memory_mb / 1024
        if machine is not None:
            found[f"gpus:{machine.gpu_type}"] = self.gpus
            found["gpu_memory_gb"] += self.gpus_without_gpu_memory * machine.gpu_memory_gb
            cpus += self.gpus_without_cpus * machine.cpus
            memory_gb += self.gpus_without_memory * machine.memory_gb
        return found | {"cpus": cpus, "memory_gb": memory_gb}


Holding = Mapping[str, ResourceTotals]
"""Cluster → what a tenant holds there."""


def held_by(holding: Holding, machines: Mapping[str, MachineShape]) -> Amounts:
    """What a tenant holds over all clusters."""
    found: Amounts = {}
    for cluster, tally in holding.items():
        for name, amount in tally.amounts(machines.get(cluster)).items():
            found[name] = found.get(name, 0.0) + amount
    return found


def holdings(jobs: Iterable[Job]) -> dict[str, dict[str, ResourceTotals]]:
    """Tenant → cluster → what its jobs hold."""
    found: dict[str, dict[str, ResourceTotals]] = {}
    for job in jobs:
        if job.status in HOLDS:
            mine = found.setdefault(job.spec.tenant_id, {})
            mine[job.cluster] = mine.get(job.cluster, ResourceTotals()).plus(
                ResourceTotals.of(job.spec)
            )
    return found


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """A quota that does not allow one more job."""

    tenant_id: str
    resource: str
    asked: float
    quota: float
    used: float

    @property
    def for_ever(self) -> bool:
        """Not even an idle tenant could have it."""
        return self.asked > self.quota

    @property
    def noun(self) -> str:
        base, _, kind = self.resource.partition(":")
        return f"{kind} {_NOUNS[base]}" if kind else _NOUNS[base]

    def words(self) -> str:
        return (
            f"quota of tenant {self.tenant_id}: asks for {self.asked:g} {self.noun}, the quota is "
            f"{self.quota:g}, {self.used:g} in use"
        )

    def why(self) -> str:
        """For a job that waits: with what would change it."""
        if self.for_ever:
            return f"{self.words()}; it starts only with a higher quota"
        return f"{self.words()}; it starts as its tenant's jobs end, or with a higher quota"


@dataclass(frozen=True, slots=True)
class KeptFor(QuotaShortage):
    """There would be enough, but not for this one and for one that is due."""

    job_id: str

    def words(self) -> str:
        return (
            f"what is left of the {self.noun} of tenant {self.tenant_id} is kept for {self.job_id}"
        )

    def why(self) -> str:
        return f"{self.words()}, which has waited longer; it starts after that one"


def shortage(tenant: Tenant, asked: Amounts, used: Amounts) -> QuotaShortage | None:
    """The first limit that the asked amounts would break on top of what is used."""
    for name, limit in tenant.quota.limits.items():
        wants = asked.get(name, 0.0)
        if wants > 0 and used.get(name, 0.0) + wants > limit + 1e-9:
            return QuotaShortage(tenant.tenant_id, name, wants, limit, used.get(name, 0.0))
    return None


def budgets_of(
    configured: Mapping[str, TenantBudget], tenants: Iterable[Tenant]
) -> dict[str, TenantBudget]:
    """What tenants may spend: what their row says, else what the configuration says."""
    found = dict(configured)
    for tenant in tenants:
        day, month = tenant.quota.usd_per_day, tenant.quota.usd_per_month
        base = found.get(tenant.tenant_id)
        if day is None and month is None:
            continue
        if base is None:
            found[tenant.tenant_id] = TenantBudget(day, month)
        else:
            found[tenant.tenant_id] = TenantBudget(
                base.usd_per_day if day is None else day,
                base.usd_per_month if month is None else month,
                base.warn_at,
            )
    return found


def told_name(name: str, tenant_id: str, reader: str) -> str:
    """A job's name in a text that tenant `reader` sees: jobs of other tenants have none there."""
    return name if tenant_id == reader else OTHERS_JOB
