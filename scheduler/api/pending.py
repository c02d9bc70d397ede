"""Why jobs wait that stand too far behind for the loop to have looked at them: the same rules and
the same words, found when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from core.cluster import ClusterSpec
from core.job import Job, S
from core.reads import JobRow
from core.tenants import Amounts, Tally, Tenant, budgets_of, held_by, machines_of, shortage
from scheduler.api.services import Services
from scheduler.api.shapes import JobOut, eta_out, job_out
from scheduler.queue.budgets import Standing, judge


async def with_whys(services: Services, rows: Iterable[JobRow]) -> tuple[JobRow, ...]:
    """The rows, each that waits with its reason in words. One that is next and has none yet was
    only just submitted: the next turn says it."""
    found = tuple(rows)
    if not any(_unsaid(row) for row in found):
        return found
    rules = await _rules(services)
    return tuple(replace(row, why=rules.why(row)) if _unsaid(row) else row for row in found)


async def jobs_out(services: Services, rows: Iterable[JobRow]) -> tuple[JobOut, ...]:
    """The rows as people read them, with why each one waits and until when."""
    told = await with_whys(services, rows)
    known = services.forecasts
    etas = await known.of(told) if known is not None else {}
    said = {uid: eta_out(*words) for uid, words in etas.items()}
    clusters = {cluster.name: cluster for cluster in services.clusters()}
    return tuple(job_out(row, said.get(row.job.uid), clusters.get(row.job.cluster)) for row in told)


def _unsaid(row: JobRow) -> bool:
    return row.job.status is S.QUEUED and not row.why and row.job.blocked is None


@dataclass(frozen=True, slots=True)
class _Rules:
    """What may keep a job from its place, as of now."""

    clusters: dict[str, ClusterSpec]
    tenants: dict[str, Tenant]
    used: dict[str, Amounts]
    standing: Standing

    def why(self, row: JobRow) -> str:
        job, name = row.job, row.job.spec.tenant_id
        if job.cluster not in self.clusters:
            return f"cluster {job.cluster} is not in the configuration any more"
        held = self._quota(job) or self.standing.why(job)
        if held or row.position == 1:
            return held or ""
        return (
            f"other jobs for cluster {job.cluster} are ahead: of higher classes, of tenant {name}, "
            "or of tenants that have used less of their share; it moves up as they end"
        )

    def _quota(self, job: Job) -> str | None:
        tenant = self.tenants.get(job.spec.tenant_id)
        if tenant is None or not tenant.quota.limits:
            return None
        machine = machines_of([self.clusters[job.cluster]])[job.cluster]
        used = self.used.get(tenant.tenant_id, {})
        short = shortage(tenant, Tally.of(job.spec).amounts(machine), used)
        return None if short is None else short.why()


async def _rules(services: Services) -> _Rules:
    store = services.store
    tenants = {row.tenant.tenant_id: row.tenant for row in await store.tenants()}
    machines = machines_of(services.clusters())
    limited = any(tenant.quota.limits for tenant in tenants.values())
    held = await store.holdings() if limited else {}
    budgets = budgets_of(services.tenants(), tenants.values())
    spent = await store.spent() if budgets else {}
    return _Rules(
        {cluster.name: cluster for cluster in services.clusters()},
        tenants,
        {name: held_by(holding, machines) for name, holding in held.items()},
        judge(budgets, spent, services.clock.now(), Standing()),
    )
