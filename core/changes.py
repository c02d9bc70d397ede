"""What the store is asked to write, as values.

An *atomic batch* is a tuple of changes that take effect together or not at all. `commit()` takes
several atomic batches: each stands or falls alone, by its own guards, inside one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from core.active import ActiveIndex
from core.audit_log import AuditEntry
from core.forecast import Forecast
from core.groups import Wait
from core.job import Job, JobStatus, TimelineEntry
from core.job_fields import JobSpec
from core.members import SharedMember
from core.messages import NOTHING_READ, OutMessage, Progress, VmReadings
from core.reasons import CommitRefusal, RefusalKind
from core.region_blocks import BlockKey, RegionBlock
from core.supply import Arrivals, SupplyHistory
from core.tenants import MachineShape, ResourceTotals, Tenant, Usage
from core.vm import Vm
from core.waits import WaitNote


@dataclass(frozen=True, slots=True)
class NewSpec:
    """What the jobs of an array or a gang have in common, stored once: the submission as it was
    agreed to. Guard: it can be stored. Its NewJobs come with it, or in later parts of the same
    atomic batch."""

    spec_id: str
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class NewJob:
    """Guard: nobody has submitted (tenant_id, user_id, job_id) before."""

    job: Job
    entry: TimelineEntry
    content_hash: str
    waits: tuple[Wait, ...] = ()
    """What the hold that it brings waits for; others of the same atomic batch may stand behind it
    too."""
    shared: SharedMember | None = None
    """The spec is this member of a NewSpec, and is stored there."""


@dataclass(frozen=True, slots=True)
class JobMove:
    """Guard: the stored version is `before.version`. The store keeps the attempts table in step:
    a grown attempt number opens one, a lease that ends closes it."""

    before: Job
    after: Job
    entries: tuple[TimelineEntry, ...]


@dataclass(frozen=True, slots=True)
class JobNote:
    """A row on the timeline that changes no state; a repeat of its dedup_key is dropped."""

    uid: str
    entry: TimelineEntry


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What the job says of itself; only the live attempt is listened to, later wins."""

    uid: str
    attempt: int
    progress: Progress | None
    checkpoint_step: float | None
    at: datetime

    def joined(self, known: JobProgress | None) -> JobProgress:
        """With what is known of the same attempt: what the newer one does not mention stays."""
        if known is None:
            return self
        older, newer = (known, self) if known.at <= self.at else (self, known)
        step = newer.checkpoint_step
        return replace(
            newer,
            progress=newer.progress or older.progress,
            checkpoint_step=older.checkpoint_step if step is None else step,
        )


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why it waits, for people. No guard: the newest word wins."""

    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class NewVm:
    """Guards: no active VM has the name, and after this the cluster counts at most `vm_max`
    VMs that are not gone (the second check of the limit, inside the transaction)."""

    vm: Vm
    vm_max: int


@dataclass(frozen=True, slots=True)
class VmMove:
    """Guard: the stored version is `before.version`."""

    before: Vm
    after: Vm


@dataclass(frozen=True, slots=True)
class VmHeartbeat:
    """Newest sign of life; never goes backwards, bumps no version (it is the hot path)."""

    vm_uid: str
    at: datetime
    readings: VmReadings = NOTHING_READ
    seq: int = 0
    """The highest sequence number of its boot so far."""


@dataclass(frozen=True, slots=True)
class Send:
    """A message for the outbox."""

    message: OutMessage


@dataclass(frozen=True, slots=True)
class CloudRequest:
    """A call that changes a group, written down with its request id before it is made."""

    request_id: str
    kind: str
    """create | delete | queue | unqueue"""
    cluster: str
    region: str
    names: tuple[str, ...]
    reason: str
    created_at: datetime
    settled_at: datetime | None = None
    outcome: str = ""
    together: str = ""
    """Of queue and unqueue: the name of the request for several VMs at once."""
    run_s: float = 0.0
    """Of queue: how long its VMs may run."""


@dataclass(frozen=True, slots=True)
class NewRequest:
    """The intent of a cloud call."""

    request: CloudRequest


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """The call was answered (or found by observation): not to be repeated."""

    request_id: str
    outcome: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PutRegionBlock:
    """Insert or replace by RegionBlock.key."""

    block: RegionBlock


@dataclass(frozen=True, slots=True)
class DropRegionBlock:
    """The region delivered: the block is over."""

    key: BlockKey


@dataclass(frozen=True, slots=True)
class PutSupplyHistory:
    """Insert or replace by SupplyHistory.place."""

    supply: SupplyHistory


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """What people see of one cluster in one region: numbers are derived, the why is not."""

    cluster: str
    region: str
    target_size: int
    why: str
    observed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PutRegionStatus:
    """Insert or replace by (cluster, region). The next leader knows by it where we may have
    VMs, so it is written before the first one is asked for there."""

    status: RegionStatus


@dataclass(frozen=True, slots=True)
class ForgetRegion:
    """The region was withdrawn from the cluster, and nothing of ours is left there."""

    cluster: str
    region: str


@dataclass(frozen=True, slots=True)
class PutForecast:
    """Insert or replace by its cluster."""

    forecast: Forecast


@dataclass(frozen=True, slots=True)
class RaiseAlert:
    """One open alert per (kind, subject); a repeat refreshes it."""

    kind: str
    subject: str
    severity: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ClearAlert:
    """What the alert spoke of is over."""

    kind: str
    subject: str
    at: datetime


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message we could not use, kept whole with the reason; a repeat of its id is dropped."""

    message_id: str
    source: str
    body: bytes
    attributes: Mapping[str, str]
    reason: str
    at: datetime
    ordering_key: str = ""
    """Of a message that was ours to send: sent again it must keep its place."""


@dataclass(frozen=True, slots=True)
class ReplayDeadLetter:
    """The dead letter is sent again, by the Send in the same atomic batch. Guard: it was not
    before."""

    message_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PutTenant:
    """A tenant's settings as somebody wants them. Guard: the stored version is one below (0: there
    is no such tenant yet). What it has used stays."""

    tenant: Tenant


@dataclass(frozen=True, slots=True)
class Reserve:
    """Belongs to the step that admits a job. Guard: with it, what the tenant's jobs hold is within
    its quota as stored, counted under the lock of its row."""

    tenant_id: str
    cluster: str
    asks: ResourceTotals
    machines: Mapping[str, MachineShape]
    """Of all clusters: what a GPU of each stands for."""


@dataclass(frozen=True, slots=True)
class Charge:
    """GPU-seconds that a tenant's attempt has used, for its share."""

    tenant_id: str
    gpu_s: float
    at: datetime
    half_life_s: float


SmallChange = (
    NewRequest
    | SettleRequest
    | PutRegionBlock
    | DropRegionBlock
    | PutSupplyHistory
    | PutRegionStatus
    | ForgetRegion
    | PutForecast
    | RaiseAlert
    | ClearAlert
    | DeadLetter
    | ReplayDeadLetter
)
"""Changes of which there are few: written one by one, in their order."""
Change = (
    AuditEntry
    | NewSpec
    | NewJob
    | JobMove
    | JobNote
    | JobProgress
    | PendingReason
    | WaitNote
    | NewVm
    | VmMove
    | VmHeartbeat
    | Send
    | PutTenant
    | Reserve
    | Charge
    | SmallChange
)
AtomicBatch = tuple[Change, ...]
BatchParts = Callable[[], Iterable[AtomicBatch]]
"""A long atomic batch in parts, each of which is made when the one before is written. They may be
asked for again, if the writing has to begin again."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Which atomic batches took effect. A refused one names its guard: the world moved, look
    again."""

    applied: tuple[bool, ...]
    refusals: Mapping[int, CommitRefusal] = field(default_factory=dict)

    @staticmethod
    def of(count: int, refusals: Mapping[int, CommitRefusal]) -> Committed:
        """What came of so many, judged together."""
        return Committed(tuple(index not in refusals for index in range(count)), refusals)

    @staticmethod
    def unstorable(fault: Exception) -> Committed:
        """Of one that the database cannot hold."""
        words = f"unstorable: {fault}".strip()
        return Committed((False,), {0: CommitRefusal(RefusalKind.UNSTORABLE, words)})

    @staticmethod
    def joined(parts: Sequence[Committed]) -> Committed:
        """What came of several that were written one by one."""
        refusals = {i: part.refusals[0] for i, part in enumerate(parts) if part.refusals}
        return Committed.of(len(parts), refusals)

    @property
    def all_applied(self) -> bool:
        return all(self.applied)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent snapshot for one cycle of the loop, with the database's own time."""

    now: datetime
    jobs: Sequence[Job]
    """All leased and PROVISIONING jobs; of the QUEUED ones the heads that were asked for (without
    a question: the first `queue_limit` of each cluster by priority and arrival, so that no
    cluster's queue hides another's), and those past their deadline."""
    vms: Sequence[Vm]
    """All VMs that are not GONE, and GONE ones that still hold leases: their jobs must hear."""
    blocks: tuple[RegionBlock, ...]
    requests: tuple[CloudRequest, ...]
    """Cloud calls written down but not settled."""
    reasons: Mapping[str, str]
    """The stored why of each waiting job in `jobs`, so that only news is written."""
    open_alerts: Mapping[tuple[str, str], datetime]
    """(kind, subject) → when it was raised."""
    supply: tuple[SupplyHistory, ...] = ()
    arrivals: Mapping[str, Arrivals] = field(default_factory=dict)
    """The newest submissions, by cluster."""
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    """All that have a row: everybody who ever submitted."""
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """Tenant → what its attempts have used."""
    verdicts: Mapping[str, str | None] = field(default_factory=dict)
    """Holds whose waiting is over, some of whose jobs are in `jobs` → what ended badly, in words;
    None: nothing did."""

    active: ActiveIndex | None = None
    """What lives of `jobs` and `vms`, with its indexes. It is the store's, which goes on with it:
    a caller that must wait for something takes what it needs beforehand."""
    heads: Sequence[Job] = ()
    """With `active`: the others of `jobs`."""

    def jobs_in(self, *statuses: JobStatus) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.status in statuses)

    def only(self, cluster: str) -> Snapshot:
        """What lives of one cluster, to keep."""
        active = self.active
        if active is None:
            jobs = tuple(job for job in self.jobs if job.cluster == cluster)
            return replace(self, jobs=jobs, vms=tuple(v for v in self.vms if v.cluster == cluster))
        admitted = (active.jobs[uid] for uid in active.admitted)
        jobs = (
            *(active.jobs[uid] for uid in active.leased_in(cluster)),
            *(job for job in admitted if job.cluster == cluster),
        )
        vms = tuple(active.vms[uid] for uid in active.vms_of(cluster))
        return replace(self, jobs=jobs, vms=vms, active=None, heads=())
