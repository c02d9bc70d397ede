"""Reads what the guards ask, under locks that last until the commit.

Always in the same order (leader, clusters, jobs by uid, VMs by uid, letters, then inserts), so
that two commits wait for each other but never in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow

from core.capacity import Vm
from core.changes import (
    Change,
    JobMove,
    JobNote,
    JobProgress,
    JobWhy,
    NewJob,
    NewVm,
    ReplayLetter,
    Unit,
    VmBeat,
    VmMove,
)
from core.errors import TermPassed
from core.job import TimelineEntry
from db.ledger import Known

CLUSTER_LOCK = 0x5A454E02
OUTBOX_LOCK = 0x5A454E03

_LEADER = "SELECT term FROM leader WHERE holder <> '' FOR SHARE"
_CLUSTERS = """
SELECT pg_advisory_xact_lock(%s, key)
FROM (SELECT DISTINCT hashtext(name) AS key FROM unnest(%s::text[]) AS name ORDER BY 1) AS keys
"""
_JOBS = """
SELECT uid::text, version, last_seq FROM jobs WHERE uid = ANY(%s::uuid[])
ORDER BY uid FOR NO KEY UPDATE
"""
_VMS = """
SELECT uid::text, version FROM vms WHERE uid = ANY(%s::uuid[]) ORDER BY uid FOR NO KEY UPDATE
"""
_KEYS = """
SELECT j.user_id, j.job_id FROM jobs AS j
JOIN unnest(%s::text[], %s::text[]) AS x(user_id, job_id) USING (user_id, job_id)
"""
_NAMES = "SELECT name FROM vms WHERE state <> 'GONE' AND name = ANY(%s::text[])"
_COUNTS = """
SELECT cluster, count(*) FROM vms WHERE state <> 'GONE' AND cluster = ANY(%s::text[])
GROUP BY cluster
"""
_LETTERS = """
SELECT message_id, replayed_at IS NOT NULL FROM dead_letters WHERE message_id = ANY(%s::text[])
ORDER BY message_id FOR NO KEY UPDATE
"""
_REPEATS = """
SELECT e.uid::text, e.dedup_key FROM job_events AS e
JOIN unnest(%s::uuid[], %s::text[]) AS x(uid, dedup_key) USING (uid, dedup_key)
"""


@dataclass(slots=True)
class Wanted:
    """Which rows a call is about."""

    jobs: set[str] = field(default_factory=set)
    job_keys: set[tuple[str, str]] = field(default_factory=set)
    vms: set[str] = field(default_factory=set)
    new_vms: list[Vm] = field(default_factory=list)
    dedup: set[tuple[str, str]] = field(default_factory=set)
    letters: set[str] = field(default_factory=set)


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
            _want_entries(job.uid, (entry,), found)
        case JobMove(before, _, entries):
            found.jobs.add(before.uid)
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
        case _:
            pass  # the other changes have no guard and lock nothing beforehand


def _want_entries(uid: str, entries: Iterable[TimelineEntry], found: Wanted) -> None:
    found.dedup.update((uid, entry.dedup_key) for entry in entries if entry.dedup_key is not None)


async def lock(connection: AsyncConnection[TupleRow], rows: Wanted, term: int | None) -> Locked:
    """Everything in one round trip. TermPassed if `term` is given and another one leads."""
    async with connection.pipeline():
        leader = await connection.execute(_LEADER) if term is not None else None
        names = [vm.name for vm in rows.new_vms]
        clusters = sorted({vm.cluster for vm in rows.new_vms})
        if clusters:
            await connection.execute(_CLUSTERS, (CLUSTER_LOCK, clusters))
        users, ids = zip(*rows.job_keys, strict=True) if rows.job_keys else ((), ())
        keys = await _ask(connection, _KEYS, list(users), list(ids))
        jobs = await _ask(connection, _JOBS, list(rows.jobs))
        vms = await _ask(connection, _VMS, list(rows.vms))
        letters = await _ask(connection, _LETTERS, sorted(rows.letters))
        living = await _ask(connection, _NAMES, names)
        counts = await _ask(connection, _COUNTS, clusters)
        uids, dedup_keys = zip(*rows.dedup, strict=True) if rows.dedup else ((), ())
        repeats = await _ask(connection, _REPEATS, list(uids), list(dedup_keys))
        if leader is not None:
            _check_term(await leader.fetchone(), term)
        job_rows = await _rows(jobs)
        known = Known(
            job_versions={row[0]: row[1] for row in job_rows},
            job_keys=dict.fromkeys(await _rows(keys), True),
            vm_versions={row[0]: row[1] for row in await _rows(vms)},
            vm_names={row[0]: True for row in await _rows(living)},
            vm_counts={row[0]: row[1] for row in await _rows(counts)},
            letters={row[0]: row[1] for row in await _rows(letters)},
        )
        last_seqs = {row[0]: row[2] for row in job_rows}
        return Locked(known, last_seqs, {(row[0], row[1]) for row in await _rows(repeats)})


def _check_term(row: TupleRow | None, term: int | None) -> None:
    leading = None if row is None else row[0]
    if leading != term:
        raise TermPassed(f"term {term} has passed: the store is at {leading or 'no term'}")


async def _ask(
    connection: AsyncConnection[TupleRow], query: str, *arrays: list[str]
) -> AsyncCursor[TupleRow] | None:
    """Nothing to ask about: no query."""
    return await connection.execute(query, arrays) if arrays[0] else None


async def _rows(cursor: AsyncCursor[TupleRow] | None) -> list[TupleRow]:
    return [] if cursor is None else await cursor.fetchall()
