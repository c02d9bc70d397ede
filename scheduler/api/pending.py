"""Why jobs wait that stand too far back for a scheduling cycle to have looked at them: the same
rules, asked when somebody looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from core.cluster import ClusterSpec
from core.job import Job, S
from core.reads import JobRow
from core.tenants import Amounts, ResourceTotals, Tenant, budgets_of, held_by, machines_of, shortage
from scheduler.admission.pending_reasons import Situation, pending_reason
from scheduler.api.services import Services
from scheduler.api.shapes import JobOut, eta_out, job_out
from scheduler.queue.budgets import BudgetStatus, judge


async def with_reasons(services: Services, rows: Iterable[JobRow]) -> tuple[JobRow, ...]:
    """The rows, each that waits with its reason in words. One that is next and has none yet was
    only just submitted: the next cycle says it."""
    found = tuple(rows)
    if not any(_unsaid(row) for row in found):
        return found
    known = await _known(services)
    return tuple(replace(row, why=known.why(row)) if _unsaid(row) else row for row in found)


async def jobs_out(services: Services, rows: Iterable[JobRow]) -> tuple[JobOut, ...]:
    """The rows as people read them, with why each one waits and until when."""
    told = await with_reasons(services, rows)
    known = services.forecasts
    etas = await known.of(told) if known is not None else {}
    said = {uid: eta_out(*words) for uid, words in etas.items()}
    clusters = {cluster.name: cluster for cluster in services.clusters()}
    return tuple(job_out(row, said.get(row.job.uid), clusters.get(row.job.cluster)) for row in told)


def _unsaid(row: JobRow) -> bool:
    return row.job.status is S.QUEUED and not row.why and not row.job.out_of_queue


@dataclass(frozen=True, slots=True)
class _Known:
    """What may keep a job from its place, as of now."""

    now: datetime
    clusters: dict[str, ClusterSpec]
    tenants: dict[str, Tenant]
    used: dict[str, Amounts]
    budgets: BudgetStatus

    def why(self, row: JobRow) -> str:
        spec = self.clusters.get(row.job.cluster)
        at = Situation(self.now, spec, self.budgets, self._quota, far_back=row.position != 1)
        return pending_reason(row.job, at)

    def _quota(self, job: Job) -> str | None:
        tenant, cluster = self.tenants.get(job.spec.tenant_id), self.clusters.get(job.cluster)
        if tenant is None or cluster is None or not tenant.quota.limits:
            return None
        machine = machines_of([cluster])[job.cluster]
        used = self.used.get(tenant.tenant_id, {})
        short = shortage(tenant, ResourceTotals.of(job.spec).amounts(machine), used)
        return None if short is None else short.why()


async def _known(services: Services) -> _Known:
    store, now = services.store, services.clock.now()
    tenants = {row.tenant.tenant_id: row.tenant for row in await store.tenants()}
    machines = machines_of(services.clusters())
    limited = any(tenant.quota.limits for tenant in tenants.values())
    held = await store.holdings() if limited else {}
    budgets = budgets_of(services.settings.current.tenants, tenants.values())
    spent = await store.spent() if budgets else {}
    return _Known(
        now,
        {cluster.name: cluster for cluster in services.clusters()},
        tenants,
        {name: held_by(holding, machines) for name, holding in held.items()},
        judge(budgets, spent, now, BudgetStatus()),
    )
