"""What tenants may still take in this cycle. Pure; the store checks every admission again.

A job that is due has its part of the quota set aside until it has been considered: otherwise those
of its tenant that need less would take every part that becomes free, and it would never start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from core.changes import Reserve
from core.job import Job, S
from core.job_fields import JobSpec
from core.queueing import class_of
from core.tenants import (
    Amounts,
    Holding,
    KeptFor,
    MachineShape,
    QuotaShortage,
    ResourceTotals,
    Tenant,
    held_by,
    shortage,
)

Gang = Sequence[Job]
"""A job, or all of a gang that must start together."""


class Quotas:
    """Counts as jobs are given places. Jobs that have one count from the start: what a cluster
    gives away must not be what another one's jobs hold."""

    def __init__(
        self,
        tenants: Mapping[str, Tenant],
        machines: Mapping[str, MachineShape],
        holding: Mapping[str, Holding],
        admitted: Iterable[Job] = (),
    ) -> None:
        """`holding`: of leased jobs; `admitted`: jobs that await a VM."""
        self._machines = machines
        self._tenants, self._holding = tenants, holding
        # Only of tenants whose jobs are looked at: there may be thousands of others.
        self._limited: dict[str, Tenant | None] = {}
        self._used: dict[str, Amounts] = {}
        self._due: dict[str, Gang] = {}
        """Tenant → for whom its part is set aside."""
        for job in admitted:
            self.take(job)

    def set_aside(self, gang: Gang) -> bool:
        """Others of its tenant may only have what it leaves, until it has been considered. Not for
        one that a quota refuses whatever ends: it would stand in the way for ever."""
        tenant = self._limited_by(gang[0].spec.tenant_id)
        if tenant is None or shortage(tenant, self._asked_by(gang), {}) is not None:
            return False
        self._due[tenant.tenant_id] = gang
        return True

    def lacks(self, job: Job) -> QuotaShortage | None:
        """Why the job may not be admitted."""
        tenant = self._limited_by(job.spec.tenant_id)
        if tenant is None:
            return None
        asked, used = self._asked(job), self._used[tenant.tenant_id]
        return shortage(tenant, asked, used) or self._kept(tenant, job, asked, used)

    def _kept(
        self, tenant: Tenant, job: Job, asked: Amounts, used: Amounts
    ) -> QuotaShortage | None:
        """Whether too little would be left for the one that is due. Higher classes go first in any
        case; and what has its place keeps it."""
        due = self._due.get(tenant.tenant_id)
        if due is None or job.status is not S.QUEUED or job.uid in {m.uid for m in due}:
            return None
        if class_of(job.spec.priority) > class_of(due[0].spec.priority):
            return None
        after = {name: used.get(name, 0.0) + asked.get(name, 0.0) for name in {*used, *asked}}
        short = shortage(tenant, self._asked_by(due), after)
        if short is None or asked.get(short.resource, 0.0) <= 0:
            return None  # what this one takes makes no difference
        return KeptFor(
            short.tenant_id,
            short.resource,
            asked[short.resource],
            short.quota,
            short.used,
            due[0].spec.job_id,
        )

    def take(self, job: Job, sign: int = 1) -> None:
        """The job holds its part from now on (or gives it back)."""
        tenant = self._limited_by(job.spec.tenant_id)
        if tenant is None:
            return
        used = self._used[tenant.tenant_id]
        for name, amount in self._asked(job).items():
            used[name] = used.get(name, 0.0) + sign * amount

    def take_all(self, jobs: Gang) -> QuotaShortage | None:
        """All of them hold their parts from now on, or none does, and why."""
        for number, job in enumerate(jobs):
            short = self.lacks(job)
            if short is not None:
                for taken in jobs[:number]:
                    self.take(taken, -1)
                return short
            self.take(job)
        self._consider(jobs)
        return None

    def _consider(self, gang: Gang) -> None:
        """Its quota lets it start: if it does not, others need not wait for it."""
        due = self._due.get(gang[0].spec.tenant_id)
        if due is not None and due[0].uid in {member.uid for member in gang}:
            del self._due[gang[0].spec.tenant_id]

    def reserve(self, job: Job) -> Reserve:
        """What makes the store check it, in the transaction that admits."""
        asks = ResourceTotals.of(job.spec)
        return Reserve(job.spec.tenant_id, job.cluster, asks, self._machines)

    def _limited_by(self, name: str) -> Tenant | None:
        """The tenant, if it has a quota."""
        if name not in self._limited:
            tenant = self._tenants.get(name)
            limited = tenant is not None and bool(tenant.quota.limits)
            self._limited[name] = tenant if limited else None
            if limited:
                self._used[name] = held_by(self._holding.get(name, {}), self._machines)
        return self._limited[name]

    def _asked(self, job: Job) -> dict[str, float]:
        return ResourceTotals.of(job.spec).amounts(self._machines.get(job.cluster))

    def _asked_by(self, gang: Gang) -> Amounts:
        total: dict[str, float] = {}
        for job in gang:
            for name, amount in self._asked(job).items():
                total[name] = total.get(name, 0.0) + amount
        return total


def never_fits(tenant: Tenant, spec: JobSpec, machine: MachineShape | None) -> QuotaShortage | None:
    """A quota that refuses the job (or its whole gang) even if its tenant holds nothing."""
    asked = ResourceTotals.of(spec).amounts(machine)
    return shortage(tenant, {name: n * spec.least for name, n in asked.items()}, {})
