"""The rows of the in-memory store, with indexes that keep a commit's cost to what it changes and
a picture's cost to what lives."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, Generic, TypeVar

from core.capacity import Trouble, Vm, VmState
from core.changes import CloudRequest, RegionStatus, Unit
from core.job import WAITING, Job, JobStatus
from core.messages import GpuReading, OutMessage, Progress
from core.reads import AlertRow, AttemptRow, DeadLetterRow, EventRow

Key = TypeVar("Key", bound=tuple[Any, ...])


class Ordered(Generic[Key]):
    """Keys in order. Moving pointers in one array is quicker than the steps of a tree, up to far
    more keys than a simulation has."""

    def __init__(self) -> None:
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        insort(self._keys, key)

    def discard(self, key: Key) -> None:
        place = bisect_left(self._keys, key)
        if place < len(self._keys) and self._keys[place] == key:
            del self._keys[place]

    def first(self, limit: int) -> Sequence[Key]:
        return self._keys[:limit]

    def before(self, moment: datetime, limit: int) -> list[Key]:
        """The first keys, at most `limit`, whose first part is earlier than the moment."""
        return list(takewhile(lambda key: key[0] < moment, islice(self._keys, limit)))

    def until(self, moment: datetime, limit: int) -> list[Key]:
        """The same, with the moment itself."""
        return list(takewhile(lambda key: key[0] <= moment, islice(self._keys, limit)))


QueueKey = tuple[int, datetime, str]
TimeKey = tuple[datetime, str]
NumberKey = tuple[datetime, int]


@dataclass(slots=True)
class JobRecord:
    """A job with what its row, its timeline and its attempts hold."""

    job: Job
    content_hash: str
    last_seq: int = 0
    why: str = ""
    progress: Progress | None = None
    checkpoint_step: float | None = None
    progress_at: datetime | None = None
    events: list[EventRow] = field(default_factory=list)
    dedup_keys: set[str] = field(default_factory=set)
    attempts: dict[int, AttemptRow] = field(default_factory=dict)
    past_cost_usd: float = 0.0
    """Of attempts that retention took away."""


@dataclass(slots=True)
class VmRecord:
    """A VM with its last readings."""

    vm: Vm
    gpus: tuple[GpuReading, ...] = ()


@dataclass(slots=True)
class Leader:
    """The lease row. An empty holder: nobody leads, but the term has been used."""

    holder: str
    term: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Written:
    """A unit that took effect."""

    at: datetime
    term: int | None
    """The term that the writer gave."""
    leading: int | None
    """The term that led at that moment."""
    unit: Unit


@dataclass(slots=True)
class Tables:
    """Everything that is stored. Only whole commits are ever visible: nothing in here waits."""

    jobs: dict[str, JobRecord] = field(default_factory=dict)
    users: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """job id → user → uid."""
    live: dict[str, Job] = field(default_factory=dict)
    """Leased and PROVISIONING ones."""
    queues: dict[str, Ordered[QueueKey]] = field(default_factory=lambda: defaultdict(Ordered))
    """cluster → QUEUED ones in order."""
    queue_ends: Ordered[TimeKey] = field(default_factory=Ordered)
    ended: Ordered[TimeKey] = field(default_factory=Ordered)
    """Final ones whose history has not been pruned."""
    lease_ids: set[str] = field(default_factory=set)
    vms: dict[str, VmRecord] = field(default_factory=dict)
    seen_vms: dict[str, Vm] = field(default_factory=dict)
    """Living ones, and those that are gone but still hold leases."""
    vm_names: dict[str, str] = field(default_factory=dict)
    """Name → the living VM that has it."""
    vm_counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    gone: Ordered[TimeKey] = field(default_factory=Ordered)
    """Gone ones without leases."""
    requests: dict[str, CloudRequest] = field(default_factory=dict)
    open_requests: dict[str, CloudRequest] = field(default_factory=dict)
    settled: Ordered[TimeKey] = field(default_factory=Ordered)
    troubles: dict[tuple[str, str, str, bool, str], Trouble] = field(default_factory=dict)
    regions: dict[tuple[str, str], RegionStatus] = field(default_factory=dict)
    alerts: dict[int, AlertRow] = field(default_factory=dict)
    open_alerts: dict[tuple[str, str], int] = field(default_factory=dict)
    cleared: Ordered[NumberKey] = field(default_factory=Ordered)
    letters: dict[str, DeadLetterRow] = field(default_factory=dict)
    letters_by_age: Ordered[TimeKey] = field(default_factory=Ordered)
    outbox: dict[int, OutMessage] = field(default_factory=dict)
    """Not yet confirmed, in the order of their commits."""
    sent: dict[int, tuple[datetime, OutMessage]] = field(default_factory=dict)
    sent_by_age: Ordered[NumberKey] = field(default_factory=Ordered)
    leader: Leader | None = None
    outbox_ids: int = 0
    alert_ids: int = 0
    history: list[Written] = field(default_factory=list)
    """Every unit that took effect, in order. A reader of long runs may clear what it has read."""
    listeners: dict[asyncio.Event, object] = field(default_factory=dict)
    """Who waits for news → the door that they came through."""

    @property
    def leading(self) -> int | None:
        """The term that leads; one that has run out leads until somebody replaces it."""
        return self.leader.term if self.leader is not None and self.leader.holder else None

    # --- jobs ----------------------------------------------------------------------------

    def add_job(self, job: Job, content_hash: str) -> None:
        self.jobs[job.uid] = JobRecord(job, content_hash)
        self.users[job.spec.job_id][job.spec.user_id] = job.uid
        self._index_job(job)

    def set_job(self, job: Job) -> None:
        record = self.jobs[job.uid]
        self._unindex_job(record.job)
        record.job = job
        if job.status not in WAITING:
            record.why = ""
        self._index_job(job)

    def _index_job(self, job: Job) -> None:
        if job.status is JobStatus.QUEUED:
            assert job.deadline_at is not None, "checked before: every waiting job has a deadline"
            self.queues[job.cluster].add(queue_key(job))
            self.queue_ends.add((job.deadline_at, job.uid))
        elif job.ended_at is not None:
            self.ended.add((job.ended_at, job.uid))
        else:
            self.live[job.uid] = job

    def _unindex_job(self, job: Job) -> None:
        if job.status is JobStatus.QUEUED:
            self.queues[job.cluster].discard(queue_key(job))
            if job.deadline_at is not None:
                self.queue_ends.discard((job.deadline_at, job.uid))
        elif job.ended_at is not None:
            self.ended.discard((job.ended_at, job.uid))
        else:
            self.live.pop(job.uid)

    def heads(self, limit: int, now: datetime) -> Iterator[Job]:
        """The first jobs of each cluster's queue, then those past their deadline."""
        seen = set()
        for cluster in sorted(self.queues):
            for _, _, uid in self.queues[cluster].first(limit):
                seen.add(uid)
                yield self.jobs[uid].job
        for _, uid in self.queue_ends.until(now, limit):
            if uid not in seen:
                yield self.jobs[uid].job

    # --- VMs -----------------------------------------------------------------------------

    def set_vm(self, vm: Vm) -> None:
        """Insert or replace. The readings stay."""
        record = self.vms.get(vm.uid)
        if record is None:
            self.vms[vm.uid] = VmRecord(vm)
        else:
            self._unindex_vm(record.vm)
            record.vm = vm
        self._index_vm(vm)

    def see_beat(self, vm: Vm) -> None:
        """The same VM with a newer beat: no index asks for it."""
        self.vms[vm.uid].vm = vm
        if vm.uid in self.seen_vms:
            self.seen_vms[vm.uid] = vm

    def _index_vm(self, vm: Vm) -> None:
        if vm.state is not VmState.GONE:
            self.vm_names[vm.name] = vm.uid
            self.vm_counts[vm.cluster] += 1
        elif not vm.leases:
            assert vm.gone_at is not None, "checked before: what is gone went at some time"
            self.gone.add((vm.gone_at, vm.uid))
            return
        self.seen_vms[vm.uid] = vm

    def _unindex_vm(self, vm: Vm) -> None:
        if vm.state is not VmState.GONE:
            self.vm_names.pop(vm.name, None)
            self.vm_counts[vm.cluster] -= 1
        elif vm.gone_at is not None:
            self.gone.discard((vm.gone_at, vm.uid))
        self.seen_vms.pop(vm.uid, None)

    # --- the outbox ----------------------------------------------------------------------

    def send(self, message: OutMessage) -> None:
        self.outbox_ids += 1
        self.outbox[self.outbox_ids] = message

    def confirm(self, outbox_id: int, now: datetime) -> None:
        """A repeat moves the time, as it does in PostgreSQL."""
        message = self.outbox.pop(outbox_id, None)
        if message is None:
            if outbox_id not in self.sent:
                return
            before, message = self.sent[outbox_id]
            self.sent_by_age.discard((before, outbox_id))
        self.sent[outbox_id] = (now, message)
        self.sent_by_age.add((now, outbox_id))


def queue_key(job: Job) -> QueueKey:
    """The order of a queue: priority, then age."""
    return (-job.spec.priority, job.queued_since, job.uid)
