"""Reads what the guards ask, under locks that last until the commit.

Always in the same order (leader, clusters, tenants, groups, jobs by uid, VMs by uid, dead letters,
then inserts), so that two commits wait for each other but never in a circle.
"""
# ruff: noqa: S608  # only our own condition on VM states is put into these texts

from __future__ import annotations

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow

from core.commit import KnownRows, Locked, RowKeys, check_term
from core.job import JobKey
from db.tenants import HELD_UNDER_QUOTA, LOCK, held_of, tenant_of
from db.timelines import REPEATS
from db.vm_states import COUNTED

CLUSTER_LOCK = 0x5A454E02
GROUP_LOCK = 0x5A454E04
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
SELECT j.tenant_id, j.user_id, j.job_id FROM jobs AS j
JOIN unnest(%s::text[], %s::text[], %s::text[]) AS x(tenant_id, user_id, job_id)
    USING (tenant_id, user_id, job_id)
"""
_NAMES = f"SELECT name FROM vms WHERE {COUNTED} AND name = ANY(%s::text[])"
_COUNTS = f"""
SELECT cluster, count(*) FROM vms WHERE {COUNTED} AND cluster = ANY(%s::text[])
GROUP BY cluster
"""
_DEAD_LETTERS = """
SELECT message_id, replayed_at IS NOT NULL FROM dead_letters WHERE message_id = ANY(%s::text[])
ORDER BY message_id FOR NO KEY UPDATE
"""


async def lock(connection: AsyncConnection[TupleRow], rows: RowKeys, term: int | None) -> Locked:
    """Everything in one round trip. TermPassed if `term` is given and another one leads.

    The answers are read after the pipeline: at its end the server knows that it waits for us, and
    ends the session of a replica that froze there. Within it, it would wait with our locks."""
    async with connection.pipeline():
        leader = await connection.execute(_LEADER) if term is not None else None
        names = [vm.name for vm in rows.new_vms]
        clusters = sorted({vm.cluster for vm in rows.new_vms})
        if clusters:
            await connection.execute(_CLUSTERS, (CLUSTER_LOCK, clusters))
        tenants = await _ask(connection, LOCK, sorted(rows.tenants))
        held = await _ask(connection, HELD_UNDER_QUOTA, sorted(rows.tenants))
        if rows.groups:
            groups = ["/".join(group) for group in rows.groups]
            await connection.execute(_CLUSTERS, (GROUP_LOCK, groups))
        names_of = zip(*rows.job_keys, strict=True) if rows.job_keys else ((), (), ())
        keys = await _ask(connection, _KEYS, *map(list, names_of))
        jobs = await _ask(connection, _JOBS, list(rows.jobs))
        vms = await _ask(connection, _VMS, list(rows.vms))
        dead_letters = await _ask(connection, _DEAD_LETTERS, sorted(rows.dead_letters))
        active = await _ask(connection, _NAMES, names)
        counts = await _ask(connection, _COUNTS, clusters)
        uids, dedup_keys = zip(*rows.dedup, strict=True) if rows.dedup else ((), ())
        repeats = await _ask(connection, REPEATS, list(uids), list(dedup_keys))
    if leader is not None:
        row = await leader.fetchone()
        check_term(None if row is None else row[0], term)
    job_rows = await _rows(jobs)
    known = KnownRows(
        job_versions={row[0]: row[1] for row in job_rows},
        job_keys={JobKey(*row): True for row in await _rows(keys)},
        vm_versions={row[0]: row[1] for row in await _rows(vms)},
        vm_names={row[0]: True for row in await _rows(active)},
        vm_counts={row[0]: row[1] for row in await _rows(counts)},
        dead_letters={row[0]: row[1] for row in await _rows(dead_letters)},
        tenants={row[0]: tenant_of(row) for row in await _rows(tenants)},
        held=dict(held_of(await _rows(held))),
    )
    last_seqs = {row[0]: row[2] for row in job_rows}
    return Locked(known, last_seqs, {(row[0], row[1]) for row in await _rows(repeats)})


async def _ask(
    connection: AsyncConnection[TupleRow], query: str, *arrays: list[str]
) -> AsyncCursor[TupleRow] | None:
    """Nothing to ask about: no query."""
    return await connection.execute(query, arrays) if arrays[0] else None


async def _rows(cursor: AsyncCursor[TupleRow] | None) -> list[TupleRow]:
    return [] if cursor is None else await cursor.fetchall()
