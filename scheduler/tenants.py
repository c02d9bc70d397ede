"""What the door knows about tenants: who may submit what. Read at its own pace, since a setting
that is a second old refuses nothing that the store's own guard would allow for long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core.capacity import ClusterSpec
from core.errors import BadInput, Fault, QuotaExceeded
from core.job import Job, JobSpec
from core.ports import Clock
from core.queueing import QueuePolicy, QueueRule, class_of
from core.submission import nearest, shown
from core.tenants import (
    DEFAULT_TENANT,
    Holding,
    Shortage,
    Tenant,
    TenantRow,
    held_by,
    machines_of,
)
from scheduler.queue.quota import never_fits

FRESH_S = 1.0
_FIELDS = {
    "jobs": "tenant_id",
    "gpus": "gpu_count",
    "gpu_memory_gb": "gpu_count",
    "cpus": "cpu_cores",
    "memory_gb": "memory_mb",
}
"""Resource → the field of a submission that asks for it."""


class Rows(Protocol):
    """What is asked of the store."""

    async def tenants(self) -> Sequence[TenantRow]: ...
    async def holdings(self, tenant_id: str | None = None) -> Mapping[str, Holding]: ...


@dataclass(frozen=True, slots=True)
class DoorRules:
    """As configured right now."""

    strict: bool = False
    """Only tenants that were set up may submit."""
    queue: QueuePolicy = field(default_factory=QueuePolicy)


class Door:
    """Refuses at submission what could never run."""

    def __init__(self, store: Rows, rules: Callable[[], DoorRules], clock: Clock) -> None:
        self._store = store
        self._rules = rules
        self._clock = clock
        self._tenants: Mapping[str, Tenant] = {}
        self._read_at: float | None = None

    async def check(self, spec: JobSpec, cluster: ClusterSpec) -> None:
        """BadInput with the first fault that concerns the tenant."""
        tenant = (await self._known()).get(spec.tenant_id)
        if tenant is None:
            if self._rules().strict and spec.tenant_id != DEFAULT_TENANT:
                near = nearest(spec.tenant_id, self._tenants)
                expected = f"a tenant that was set up ({near})"
                raise BadInput([Fault("tenant_id", shown(spec.tenant_id), expected)])
            return
        if spec.priority > tenant.priority_max:
            expected = f"at most {tenant.priority_max}, the cap of tenant {tenant.tenant_id}"
            raise BadInput([Fault("priority", str(spec.priority), expected)])
        short = never_fits(tenant, spec, machines_of([cluster]).get(cluster.name))
        if short is not None:
            raise await self._refusal(short, cluster)

    async def _known(self) -> Mapping[str, Tenant]:
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at > FRESH_S:
            self._read_at = now
            rows = await self._store.tenants()
            self._tenants = {row.tenant.tenant_id: row.tenant for row in rows}
        return self._tenants

    async def _refusal(self, short: Shortage, cluster: ClusterSpec) -> QuotaExceeded:
        holding = (await self._store.holdings(short.tenant_id)).get(short.tenant_id, {})
        used = held_by(holding, machines_of([cluster])).get(short.resource, 0.0)
        field = _FIELDS[short.resource.partition(":")[0]]
        expected = (
            f"at most {short.quota:g} {short.noun}, the quota of tenant {short.tenant_id} "
            f"({used:g} in use)"
        )
        fault = Fault(field, f"{short.asked:g} {short.noun}", expected)
        words = (
            f"quota exceeded for tenant {short.tenant_id}: {short.noun} "
            f"requested={short.asked:g}, quota={short.quota:g}, current={used:g}"
        )
        return QuotaExceeded(fault, words)


def starvation_bound_s(job: Job, rule: QueueRule) -> float | None:
    """After waiting this long no job that comes later goes first; None: by this rule one may for
    ever."""
    match rule:
        case QueueRule.FAIR:
            return (job.due - job.submitted_at).total_seconds()
        case QueueRule.FIFO:
            return 0.0
        case QueueRule.PRIORITY:
            return None


def bound_words(spec: JobSpec, rule: QueueRule, bound_s: float | None) -> str:
    """The same in words, for the answer to a submission."""
    if bound_s is None:
        return "jobs with a higher priority go first, however late they come"
    if rule is QueueRule.FIFO:
        return "no job that comes later goes first"
    kind = class_of(spec.priority).name.lower()
    return (
        f"once it has waited {span(bound_s)}, no {kind} job of tenant {spec.tenant_id} that comes "
        "later goes first"
    )


def span(seconds: float) -> str:
    """Short: 90 s, 2 h 46 min, 3 d 4 h."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
