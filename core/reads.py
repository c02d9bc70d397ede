"""What people ask the store: rows and pages for the API, the command line and the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from core.access import EVERY_TENANT, Tenants
from core.changes import DeadLetter, RegionStatus
from core.cost import CostKind
from core.cost_report import CostQuestion, CostReport
from core.groups import GroupKey
from core.job import Job, JobStatus, TimelineEntry
from core.job_fields import FILTERS
from core.messages import Progress, VmReadings
from core.pages import Page
from core.region_blocks import RegionBlock
from core.supply import SupplyHistory
from core.vm import Vm, VmState
from core.waits import WaitRow


@dataclass(frozen=True, slots=True)
class JobFilter:
    """None or empty: no restriction."""

    fields: Mapping[str, object] = field(default_factory=dict)
    """Fields of the submission that are in FILTERS → what they must be."""
    statuses: tuple[JobStatus, ...] = ()
    cluster: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    job_ids: tuple[str, ...] = ()
    tenants: Tenants = EVERY_TENANT
    """Jobs of other tenants are not there."""

    def fits(self, job: Job) -> bool:
        """Whether the job is listed. Of a gang people see the job with rank 0; its members are
        shown with it."""
        spec = job.spec
        return (
            all(
                (wanted := self.fields.get(known.name)) is None
                or getattr(spec, known.attribute) == wanted
                for known in FILTERS
            )
            and (not self.statuses or job.status in self.statuses)
            and self.cluster in (None, job.cluster)
            and (job.gang is None or job.gang.rank == 0 or bool(self.job_ids))
            and (not self.job_ids or spec.job_id in self.job_ids)
            and self.labels.items() <= spec.labels.items()
            and spec.tenant_id in self.tenants
        )


@dataclass(frozen=True, slots=True)
class Worked:
    """Where an attempt ran."""

    vm_name: str
    region: str
    zone: str
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job with what is known around it."""

    job: Job
    why: str
    """Why it waits; empty if it does not."""
    position: int | None
    """Its place behind the jobs that certainly go first: higher classes, and jobs of its own tenant
    that are due before it; 1 is next. The order between tenants is not in it. Counted when asked,
    so that a queue is not rewritten each time its head leaves."""
    progress: Progress | None
    checkpoint_step: float | None
    costs: Mapping[CostKind, float]
    """What it has caused so far, in dollars: its work, and boot, idle and hedge time."""
    members_running: int | None = None
    """Of a gang, with its first member: how many run."""
    last: Worked | None = None
    """Its newest attempt, over or not: a job that has ended holds no lease any more."""

    @property
    def cost_usd(self) -> float:
        """All that it has caused."""
        return sum(self.costs.values())

    @property
    def wasted_usd(self) -> float:
        """What of it was not work that counts."""
        return sum(usd for kind, usd in self.costs.items() if kind is not CostKind.USEFUL)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """The jobs of a group, counted."""

    key: GroupKey
    counts: Mapping[JobStatus, int]

    @property
    def words(self) -> str:
        """'1000 jobs: 3 RUNNING, 997 SUCCEEDED'."""
        total = sum(self.counts.values())
        parts = [f"{n} {status}" for status in JobStatus if (n := self.counts.get(status))]
        return f"{total} job{'s' if total != 1 else ''}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One try on one VM."""

    attempt: int
    lease_id: str
    vm_name: str
    region: str
    zone: str
    slots: tuple[int, ...]
    assigned_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str
    exit_code: int | None
    usd_per_hour: float
    checkpoint_at: datetime | None = None
    """When its newest checkpoint was reported."""


@dataclass(frozen=True, slots=True)
class Milestones:
    """When a job last came to each status, and where it last was."""

    at: Mapping[JobStatus, datetime] = field(default_factory=dict)
    vm_name: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class EventRow:
    """A timeline entry with its number."""

    seq: int
    entry: TimelineEntry


@dataclass(frozen=True, slots=True)
class VmRow:
    """A VM with the jobs on it and its last readings."""

    vm: Vm
    job_ids: tuple[str, ...]
    readings: VmReadings


@dataclass(frozen=True, slots=True)
class VmCount:
    """VMs of one kind in one place."""

    cluster: str
    region: str
    state: VmState
    busy: bool
    count: int


@dataclass(frozen=True, slots=True)
class AlertRow:
    """Something a human should know."""

    alert_id: int
    kind: str
    subject: str
    severity: str
    message: str
    raised_at: datetime
    last_seen_at: datetime
    cleared_at: datetime | None
    count: int


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """A message that we could not use."""

    dead_letter: DeadLetter
    replayed_at: datetime | None


@dataclass(frozen=True, slots=True)
class ServiceSummary:
    """The whole house at a glance."""

    now: datetime
    leader: str
    term: int
    leader_until: datetime | None
    jobs: Mapping[tuple[str, JobStatus], int]
    """(cluster, status) → how many."""
    vms: tuple[VmCount, ...]
    """Without the ones that are GONE."""
    oldest_waiting_since: datetime | None
    outbox: int
    """Messages committed but not yet confirmed by the bus."""
    open_alerts: Mapping[str, int]
    """Kind → how many."""
    burn_usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    """Cluster → what its VMs cost now."""


@dataclass(frozen=True, slots=True)
class TenantCounts:
    """The jobs of some tenants, counted. Spare members of elastic jobs are left out: nobody waits
    for them."""

    jobs: Mapping[tuple[str, JobStatus], int]
    """(cluster, status) → how many."""
    running: Mapping[tuple[str, str], int]
    """(cluster, region) → jobs that compute there."""
    oldest_waiting_since: datetime | None


class FleetReads(Protocol):
    """Questions about the service, of no tenant in particular. A token that is not ours raises
    BadInput."""

    async def running_by_region(self) -> Mapping[tuple[str, str], int]:
        """(cluster, region) → jobs that compute there."""
        ...

    async def vms(
        self, cluster: str | None, region: str | None, gone: bool, size: int, token: str | None
    ) -> Page[VmRow]: ...
    async def region_statuses(self) -> Sequence[RegionStatus]: ...
    async def blocks(self) -> Sequence[RegionBlock]: ...
    async def supply(self) -> Sequence[SupplyHistory]: ...
    async def alerts(self, open_only: bool, size: int) -> Sequence[AlertRow]: ...
    async def dead_letters(
        self, source: str | None, size: int, token: str | None
    ) -> Page[DeadLetterRow]: ...
    async def dead_letter(self, message_id: str) -> DeadLetterRow: ...
    async def summary(self) -> ServiceSummary: ...


class Reads(FleetReads, Protocol):
    """Questions that change nothing. Those about jobs may be bound to tenants."""

    async def job(
        self, job_id: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> JobRow: ...
    async def jobs(
        self, where: JobFilter, size: int, token: str | None, offset: int = 0
    ) -> Page[JobRow]:
        """A page behind the token's place, or behind the first `offset` rows."""
        ...

    async def group(
        self, group: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> GroupRow: ...
    async def events(self, uid: str, size: int, after: int) -> Sequence[EventRow]: ...
    async def waits(self, uid: str) -> Sequence[WaitRow]: ...
    async def attempts(self, uid: str) -> Sequence[AttemptRow]: ...
    async def milestones(self, uids: Sequence[str]) -> Mapping[str, Milestones]:
        """Those of jobs that have a history, by uid: one question for a whole page of jobs."""
        ...

    async def cost(self, question: CostQuestion) -> CostReport: ...
    async def tenant_counts(self, tenants: Tenants) -> TenantCounts: ...
    async def counts_on(self, vms: Sequence[str], tenants: Tenants) -> Mapping[str, int]:
        """uid of a VM → jobs of these tenants that it has."""
        ...
