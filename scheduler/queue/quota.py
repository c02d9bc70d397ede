"""What tenants may still take in this turn. Pure; the store checks every admission again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from core.changes import Reserve
from core.job import Job, JobSpec
from core.tenants import Amounts, Holding, Machine, Shortage, Tally, Tenant, held_by, shortage


class Quotas:
    """Counts as jobs are given places. Those that have one count from the start: what a cluster
    gives away must not be what another one's jobs hold."""

    def __init__(
        self,
        tenants: Mapping[str, Tenant],
        machines: Mapping[str, Machine],
        holding: Mapping[str, Holding],
        admitted: Iterable[Job] = (),
    ) -> None:
        """`holding`: of leased jobs; `admitted`: those that await a VM."""
        self._machines = machines
        self._tenants, self._holding = tenants, holding
        # Only of tenants whose jobs are looked at: there may be thousands of others.
        self._limited: dict[str, Tenant | None] = {}
        self._used: dict[str, Amounts] = {}
        for job in admitted:
            self.take(job)

    def lacks(self, job: Job) -> Shortage | None:
        """Why the job may not be admitted."""
        tenant = self._limited_by(job.spec.tenant_id)
        if tenant is None:
            return None
        return shortage(tenant, self._asked(job), self._used[tenant.tenant_id])

    def take(self, job: Job, sign: int = 1) -> None:
        """The job holds its part from now on (or gives it back)."""
        tenant = self._limited_by(job.spec.tenant_id)
        if tenant is None:
            return
        used = self._used[tenant.tenant_id]
        for name, amount in self._asked(job).items():
            used[name] = used.get(name, 0.0) + sign * amount

    def take_all(self, jobs: Sequence[Job]) -> Shortage | None:
        """All of them hold their parts from now on, or none does, and why."""
        for number, job in enumerate(jobs):
            short = self.lacks(job)
            if short is not None:
                for taken in jobs[:number]:
                    self.take(taken, -1)
                return short
            self.take(job)
        return None

    def reserve(self, job: Job) -> Reserve:
        """What makes the store check it, in the transaction that admits."""
        asks = Tally.of(job.spec)
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
        return Tally.of(job.spec).amounts(self._machines.get(job.cluster))


def never_fits(tenant: Tenant, spec: JobSpec, machine: Machine | None) -> Shortage | None:
    """A quota that refuses the job (or its whole gang) even if its tenant holds nothing."""
    asked = Tally.of(spec).amounts(machine)
    return shortage(tenant, {name: n * spec.least for name, n in asked.items()}, {})
