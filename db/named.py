"""Which rows a call names, what must be known of them, and the numbers of their history. Pure:
shared by every store, so that their guards cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from core.changes import (
    Change,
    JobMove,
    JobNote,
    JobProgress,
    JobWhy,
    NewJob,
    NewVm,
    PutTenant,
    ReplayLetter,
    Reserve,
    Unit,
    VmBeat,
    VmMove,
)
from core.errors import TermPassed
from core.job import TimelineEntry
from core.vm import Vm
from db.ledger import Known, Writes


@dataclass(slots=True)
class Wanted:
    """Which rows a call is about."""

    jobs: set[str] = field(default_factory=set)
    job_keys: set[tuple[str, str]] = field(default_factory=set)
    vms: set[str] = field(default_factory=set)
    new_vms: list[Vm] = field(default_factory=list)
    dedup: set[tuple[str, str]] = field(default_factory=set)
    letters: set[str] = field(default_factory=set)
    groups: set[tuple[str, str]] = field(default_factory=set)
    """(user, group) whose end is waited for, or may be near: one commit at a time decides it."""
    tenants: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Locked:
    """What the guards need, and what the writes need besides."""

    known: Known
    last_seqs: dict[str, int]
    repeats: set[tuple[str, str]]
    """(uid, dedup key) that are on a timeline already."""


def wanted(units: Sequence[Unit]) -> Wanted:
    """The rows that these units name."""
    found = Wanted()
    for unit in units:
        for change in unit:
            _want(change, found)
    return found


def _want(change: Change, found: Wanted) -> None:
    match change:
        case NewJob(job, entry):
            found.jobs.add(job.uid)
            found.job_keys.add(job.key)
            found.jobs.update(wait.uid for wait in change.waits if wait.uid is not None)
            found.groups.update(wait.group for wait in change.waits if wait.group is not None)
            _want_entries(job.uid, (entry,), found)
        case JobMove(before, after, entries):
            found.jobs.add(before.uid)
            if after.status.final and before.spec.group is not None:
                found.groups.add((before.spec.user_id, before.spec.group))
            _want_entries(before.uid, entries, found)
        case JobNote(uid, entry):
            found.jobs.add(uid)
            _want_entries(uid, (entry,), found)
        case JobProgress(uid) | JobWhy(uid):
            found.jobs.add(uid)
        case NewVm(vm):
            found.vms.add(vm.uid)
            found.new_vms.append(vm)
        case VmMove(before):
            found.vms.add(before.uid)
        case VmBeat(vm_uid):
            found.vms.add(vm_uid)
        case ReplayLetter(message_id):
            found.letters.add(message_id)
        case PutTenant(tenant):
            found.tenants.add(tenant.tenant_id)
        case Reserve(tenant_id):
            found.tenants.add(tenant_id)
        case _:
            pass  # the other changes have no guard and lock nothing beforehand


def _want_entries(uid: str, entries: Iterable[TimelineEntry], found: Wanted) -> None:
    found.dedup.update((uid, entry.dedup_key) for entry in entries if entry.dedup_key is not None)


@dataclass(frozen=True, slots=True)
class EventWrite:
    """A row of history with its number."""

    uid: str
    seq: int
    entry: TimelineEntry


def number_events(writes: Writes, locked: Locked) -> tuple[list[EventWrite], dict[str, int]]:
    """Rows of history with their numbers, without the repeats, and each job's last number."""
    seqs = dict(locked.last_seqs)
    seen = set(locked.repeats)
    events = []
    for uid, entry in writes.events:
        if entry.dedup_key is not None:
            if (uid, entry.dedup_key) in seen:
                continue
            seen.add((uid, entry.dedup_key))
        seqs[uid] = seqs.get(uid, 0) + 1
        events.append(EventWrite(uid, seqs[uid], entry))
    return events, seqs


def check_term(leading: int | None, term: int | None) -> None:
    """TermPassed unless the term that writes is the one that leads; None leads nobody."""
    if leading != term:
        raise TermPassed(f"term {term} has passed: the store is at {leading or 'no term'}")
