"""Who calls, for one request: the principal with the right that the endpoint needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from starlette.requests import Request

from core.access import Principal, Right, Tenants, only_tenant
from core.audit_log import Actor, AuditAction, AuditEntry
from core.cost_report import CostQuestion, CostReport
from core.errors import Ambiguous, BadInput, Fault, NotFound
from core.groups import Owner
from core.job import Job
from core.job_fields import JobSpec
from core.pages import Page
from core.reads import (
    AttemptRow,
    EventRow,
    GroupRow,
    JobFilter,
    JobRow,
    Milestones,
    Reads,
    TenantCounts,
)
from core.tenants import DEFAULT_TENANT
from core.vm import Vm
from core.waits import WaitRow
from scheduler.access.authenticator import NotAllowed
from scheduler.access.claims import claimed

HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """The right was checked before a handler sees this."""

    principal: Principal
    right: Right
    address: str
    request_id: str

    @property
    def tenants(self) -> Tenants:
        """For whom the caller has the right of the endpoint."""
        return self.principal.tenants(self.right)

    @property
    def counted_tenants(self) -> Tenants:
        """Whose jobs are in the numbers of jobs that the caller is told."""
        return self.tenants.both(self.principal.tenants(Right.JOBS_READ))

    @property
    def home_tenant(self) -> str:
        """The tenant of a caller who names none."""
        tenants = self.tenants
        if DEFAULT_TENANT in tenants or len(tenants.names) != 1:
            return DEFAULT_TENANT
        return next(iter(tenants.names))

    @property
    def actor(self) -> Actor:
        """For the audit log."""
        who = self.principal
        return Actor(who.name, who.user_id, self.address, self.request_id)

    def did(
        self, action: AuditAction, target: str, now: datetime, tenant_id: str = ""
    ) -> AuditEntry:
        """The row of the audit log for what the caller does."""
        return AuditEntry(now, self.actor, action, target, tenant_id)

    def may(self, right: Right, tenant_id: str | None = None) -> bool:
        return self.principal.may(right, tenant_id)

    def sees_environment(self, spec: JobSpec) -> bool:
        """Values of the environment are for the job's owner and for those with the right."""
        return self.may(Right.JOBS_ENVIRONMENT, spec.tenant_id) or (
            spec.user_id == self.principal.user_id and self.may(Right.JOBS_OWN, spec.tenant_id)
        )

    def check_owns(self, job: Job) -> None:
        """NotAllowed: the job is another user's, and the caller manages own jobs only."""
        spec = job.spec
        if spec.user_id == self.principal.user_id or self.may(Right.JOBS_MANAGE, spec.tenant_id):
            return
        raise NotAllowed(
            f"job {spec.job_id} is user {spec.user_id}'s: you may change your own jobs only; an "
            f"admin can give you the role member of tenant {spec.tenant_id}"
        )

    def claim(self, named: Owner) -> Owner:
        """The owner of a submission of the caller's that names this one. NotAllowed if the caller
        may not submit for it."""
        return claimed(self.principal, named)


@dataclass(frozen=True, slots=True)
class Stop:
    """Who stops jobs and why, for the timeline: a sentence, and the same as fields."""

    reason: str
    by: Mapping[str, str]
    caller: ApiCaller


def caller_of(request: Request) -> ApiCaller:
    """Of a request to an endpoint that needs a right."""
    caller = request.state.caller
    assert isinstance(caller, ApiCaller), "public endpoints have no caller"
    return caller


@dataclass(frozen=True, slots=True)
class TenantReads:
    """What one caller may know of jobs: those of other tenants are not there. A handler has no
    other way to jobs."""

    _reads: Reads
    _caller: ApiCaller

    @property
    def _tenants(self) -> Tenants:
        return self._caller.tenants

    @property
    def _home(self) -> Tenants:
        """Without a tenant that the caller has the right for, none."""
        home = self._caller.home_tenant
        return only_tenant(home) if home in self._tenants else Tenants()

    def _shown(self, row: JobRow) -> JobRow:
        """With the names of the environment alone, if its values are not for the caller."""
        spec = row.job.spec
        if not spec.environment or self._caller.sees_environment(spec):
            return row
        spec = replace(spec, environment=dict.fromkeys(spec.environment, HIDDEN))
        return replace(row, job=replace(row.job, spec=spec))

    async def job(self, job_id: str, user_id: str | None) -> JobRow:
        """If several tenants have one, that of the caller's own tenant."""
        try:
            row = await self._reads.job(job_id, user_id, self._tenants)
        except Ambiguous as several:
            try:
                row = await self._reads.job(job_id, user_id, self._home)
            except NotFound:
                raise several from None
        return self._shown(row)

    async def jobs(
        self, where: JobFilter, size: int, token: str | None, offset: int = 0
    ) -> Page[JobRow]:
        bound = replace(where, tenants=self._tenants)
        return (await self._reads.jobs(bound, size, token, offset)).shown_as(self._shown)

    async def group(
        self, group: str, user_id: str | None, tenant_id: str | None = None
    ) -> GroupRow:
        """Of the tenant; without one, if several tenants have one, of the caller's own tenant."""
        if tenant_id is not None:
            named = only_tenant(tenant_id) if tenant_id in self._tenants else Tenants()
            return await self._reads.group(group, user_id, named)
        try:
            return await self._reads.group(group, user_id, self._tenants)
        except Ambiguous as several:
            try:
                return await self._reads.group(group, user_id, self._home)
            except NotFound:
                raise several from None

    async def members(self, row: JobRow, jobs: Sequence[Job]) -> list[JobRow]:
        """The rows of the members of the job's gang."""
        tenant_id = row.job.spec.tenant_id
        assert tenant_id in self._tenants
        only = only_tenant(tenant_id)
        rows = [await self._reads.job(job.spec.job_id, job.spec.user_id, only) for job in jobs]
        return [self._shown(member) for member in rows]

    async def events(self, row: JobRow, size: int, after: int) -> Sequence[EventRow]:
        return await self._reads.events(row.job.uid, size, after)

    async def waits(self, row: JobRow) -> Sequence[WaitRow]:
        return await self._reads.waits(row.job.uid)

    async def attempts(self, row: JobRow) -> Sequence[AttemptRow]:
        return await self._reads.attempts(row.job.uid)

    async def milestones(self, jobs: Collection[Job]) -> Mapping[str, Milestones]:
        assert all(job.spec.tenant_id in self._tenants for job in jobs)
        return await self._reads.milestones([job.uid for job in jobs])

    async def counts(self) -> TenantCounts:
        return await self._reads.tenant_counts(self._caller.counted_tenants)

    async def counts_on(self, vms: Iterable[Vm]) -> Mapping[str, int]:
        """uid of a VM → jobs on it that the caller may see."""
        return await self._reads.counts_on([vm.uid for vm in vms], self._caller.counted_tenants)

    async def cost(self, question: CostQuestion) -> CostReport:
        return await self._reads.cost(self.own_cost(question))

    def own_cost(self, question: CostQuestion) -> CostQuestion:
        """The question about one tenant, unless the caller may know of all."""
        tenant_id = question.tenant_id
        if tenant_id is None and not self._tenants.every:
            if len(self._tenants.names) > 1:
                names = ", ".join(sorted(self._tenants.names))
                raise BadInput([Fault("tenant_id", "none", f"one of {names}")])
            (tenant_id,) = self._tenants.names
        if tenant_id is not None and tenant_id not in self._tenants:
            raise NotAllowed(f"tenant_id: you may not see the costs of {tenant_id}")
        return replace(question, tenant_id=tenant_id)
