"""The seams: what the service needs from the outside, small, with the contract written on each.

Production adapters and the in-memory ones in sim/ pass the same behavioural suite.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from core.access import EVERY_TENANT, Tenants
from core.actions import Create, Delete, Queue
from core.changes import AtomicBatch, BatchParts, Committed, Snapshot
from core.cluster import ClusterSpec, RegionSpec
from core.cost import SettledBills, Spent
from core.forecast import Forecast, PastRun
from core.groups import GroupKey
from core.job import Job, JobKey
from core.messages import InMessage, OutboxRow, OutMessage
from core.mig import CapacityHint, MigSnapshot, Queued
from core.queueing import Ask, HeadsOf
from core.reasons import CommitRefusal
from core.retention import RetentionRules
from core.secret_references import ManagedSecret
from core.tenants import Holding, TenantRow
from core.worker_identity import IdentityTokens


class Clock(Protocol):
    """Time as an argument's source; read at the edges only."""

    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...


class Ids(Protocol):
    """Names from dice."""

    def uid(self, now: datetime) -> str: ...
    def token(self) -> str: ...
    def seed(self) -> bytes: ...
    def request_id(self) -> str: ...
    def suffix(self) -> str: ...
    def api_key(self) -> tuple[str, bytes]: ...
    def secret(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class LeaderStatus:
    """The answer to "do I lead?", on the database's clock."""

    leading: bool
    term: int
    holder: str
    expires_at: datetime
    now: datetime
    """The database's time when it answered."""
    gone: bool = False
    """The leader's session has ended: its process died, or lost its connection."""


class Store(Protocol):
    """PostgreSQL, as the loop sees it."""

    async def lead(self, holder: str, lease_s: float, gone_term: int | None = None) -> LeaderStatus:
        """Take or renew the lease; a takeover grows the term. Never raises for losing. The lease of
        `gone_term` is not waited for, if its leader's session is still gone."""
        ...

    async def session_lost(self) -> None:
        """Returns when the session has ended that shows the others that we lead. Until we have
        renewed, they may take the lease."""
        ...

    async def resign(self, holder: str, term: int) -> None:
        """Give the lease back at once, so that a successor need not wait."""
        ...

    async def snapshot(self, queue_limit: int, ask: Ask | None = None) -> Snapshot:
        """One consistent snapshot. `ask` says which heads of which queues are wanted, at most
        `queue_limit` of each cluster (of a fair one: of each class)."""
        ...

    async def heads(self, wanted: Sequence[HeadsOf], limit: int) -> Sequence[Job]:
        """The first waiting jobs of these queues alone, as `snapshot` would have them. A caller
        that looks further down the queue than the loop does not disturb what the loop remembers."""
        ...

    async def runs(self, since: datetime, limit: int) -> Sequence[PastRun]:
        """Of the newest `limit` jobs that have ended since then: the ones that ran and came to
        their end by themselves, the newest first. A gang is one."""
        ...

    async def forecasts(self) -> Sequence[Forecast]:
        """The last one of each cluster."""
        ...

    async def driven(self) -> Sequence[tuple[str, str]]:
        """(cluster, region) of every group that was ever driven and is not forgotten, in order."""
        ...

    async def tenants(self) -> Sequence[TenantRow]:
        """Everybody who ever submitted or was set up, by name."""
        ...

    async def holdings(self, tenant_id: str | None = None) -> Mapping[str, Holding]:
        """What tenants' jobs hold now, by cluster; those who hold nothing are left out."""
        ...

    async def commit(self, batches: Sequence[AtomicBatch], term: int | None) -> Committed:
        """Write what the guards allow. With a term: TermPassed if another one leads now, and
        nothing is written. Commits wake the listeners once."""
        ...

    async def commit_long(self, parts: BatchParts) -> CommitRefusal | None:
        """Write one atomic batch in parts, all of them or none; None, or the guard that refused
        it. Other commits and reads go on meanwhile."""
        ...

    async def find_job(
        self, job_id: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> Job:
        """NotFound, or Ambiguous when several users or tenants have that job id and it was not
        said which. Jobs of other tenants are not there."""
        ...

    async def find_group(
        self, group: str, user_id: str | None, tenants: Tenants = EVERY_TENANT
    ) -> GroupKey:
        """The group with its owner. NotFound, or Ambiguous when several have one of that name.
        Jobs of other tenants are not there."""
        ...

    async def open_jobs(self, group: GroupKey, limit: int) -> Sequence[Job]:
        """Jobs of a group that have not ended and are not about to."""
        ...

    async def members(self, gang: str) -> Sequence[Job]:
        """All jobs of a gang, by rank."""
        ...

    async def queued(self, cluster: str, tier: int, tenant_id: str, most: int) -> int:
        """How many jobs of the tenant and class wait in a cluster's queue, counted up to `most`."""
        ...

    async def content_hash(self, key: JobKey) -> tuple[str, str] | None:
        """(uid, content hash) of a submission that exists, for idempotent answers."""
        ...

    async def outbox(
        self,
        limit: int,
        topics: Collection[str] = (),
        *,
        besides: bool = True,
        without: Collection[int] = (),
    ) -> Sequence[OutboxRow]:
        """Unpublished messages in the order of their commit: of all topics besides these, or of
        these alone; without the messages of these ids."""
        ...

    async def published(self, outbox_ids: Sequence[int]) -> None:
        """The bus has confirmed them."""
        ...

    async def settle_costs(self, batch: int) -> SettledBills:
        """Add what is final of the bills of at most `batch` VMs to the daily sums, each second
        once. May be called by anybody at any time, also twice at once."""
        ...

    async def spent(self) -> Mapping[str, Spent]:
        """Tenant → what its jobs have cost today and this month."""
        ...

    async def prune(self, rules: RetentionRules, batch: int) -> Mapping[str, int]:
        """Take away at most `batch` rows of each table that have been over for longer than the
        rules keep them, on the store's clock. Table → how many."""
        ...


class Inbound(Protocol):
    """An open subscription."""

    def batches(self) -> AsyncIterator[Sequence[InMessage]]:
        """Messages as they come, in bounded batches; reconnects by itself until closed.
        Leases are extended while the reader works."""
        ...

    async def ack(self, ack_ids: Sequence[str]) -> None: ...
    async def nack(self, ack_ids: Sequence[str]) -> None: ...
    async def close(self) -> None: ...


class Bus(Protocol):
    """Pub/Sub. At least once, in any order, sometimes late: receivers must be idempotent."""

    async def publish(self, messages: Sequence[OutMessage], timeout_s: float) -> Sequence[str]:
        """Returns the message ids, all confirmed, or raises BusDown (some may have been sent)."""
        ...

    def subscribe(self, subscription: str, *, max_messages: int = 1000) -> Inbound: ...


class ControlSubscriptions(Protocol):
    """The subscriptions by which VMs are told what to do, one for each boot."""

    async def make(self, vm_name: str, boot_nonce: str) -> None:
        """There when it returns; made twice is made once. BusDown, BusRefused, Forbidden."""
        ...

    async def remove(self, subscription: str) -> None:
        """Gone when it returns; removed twice is removed once."""
        ...

    async def all(self) -> Sequence[str]:
        """The ids of all there are."""
        ...


class Compute(Protocol):
    """One managed instance group, as MigManager needs it."""

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        """MigMissing, Forbidden, CloudBusy, CloudUnsure are the ways to fail. Failures of members
        that are gone are told once, in `errors`."""
        ...

    async def create(self, mig: str, action: Create) -> None:
        """Returns when accepted. CloudUnsure: it may exist, observe. OperationFailed: it was
        accepted and then failed; what the group does not list never comes. Repeating the same
        request id is safe."""
        ...

    async def delete(self, mig: str, action: Delete) -> None:
        """Idempotent: members already deleting or gone are skipped. OperationFailed as above."""
        ...


class FlexStart(Compute, Protocol):
    """Several VMs at once or none (resize requests), for groups that are made for it."""

    async def queue(self, mig: str, action: Queue) -> None:
        """Returns when accepted: the members are listed from then on, and their VMs come together
        or never. CloudUnsure: look. Repeating the same request id is safe."""
        ...

    async def queued(self, mig: str, region: str) -> tuple[Queued, ...]:
        """Every request that the group remembers, also the ones that are over."""
        ...

    async def unqueue(self, mig: str, region: str, name: str, request_id: str) -> None:
        """Its members leave the group. Idempotent: one that is over or unknown stays as it is;
        VMs that exist already are not touched."""
        ...


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Cloud:
    """What the service uses of one cloud; its terms are in core/clouds.py. Its own room makes it
    (migs/), scheduler/app.py names it."""

    compute: Callable[[RegionSpec], Compute]
    """Who is asked for VMs of a cluster's region."""
    flex: FlexStart | None = None
    """Who is asked for several VMs at once; None: nobody."""
    advice: CapacityAdvice | None = None
    """What the cloud says about its own chances; None: nothing."""
    warm_up: Callable[[], None] = lambda: None
    """Called when this replica begins to lead: load what only a leader needs."""
    close: Callable[[], Awaitable[None]] = _nothing
    identities: IdentityTokens | None = None
    """Who checks the identity tokens of its VMs; None: nobody vouches for them."""


class CapacityAdvice(Protocol):
    """What the cloud says about its own chances to deliver."""

    async def advise(self, spec: ClusterSpec, region: str) -> tuple[CapacityHint, ...]:
        """Hints for spot VMs of this cluster; empty where the cloud has no answer. It paces
        itself, so it may be asked in every reconcile, and a refusal is no error."""
        ...


class ManagedSecrets(Protocol):
    """Secret Manager, as the start of a job needs it."""

    async def access(self, secret: ManagedSecret) -> bytes:
        """The value. SecretRefused: there is none for us; SecretsAway: ask again."""
        ...
