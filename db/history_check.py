"""The whole history of a database, for core/history_check.py to judge: what a run under faults must
have left.

Nothing here is asked by the service itself. `watch()` puts triggers into a database that write
down who wrote what the leader alone may write, so that a write of a leader whose time has passed
is seen even if the guards were broken. (Costs of a VM that are settled are no such thing: they are
added up once, under the lock of its row, by the first to come.)
"""
# ruff: noqa: S608  # only our own condition on VM states is put into these texts

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.history_check import HistoryCheck, HistoryStep, JobHistory, Reign, Try
from core.job import JobStatus, TimelineEntry
from db.store import PostgresStore
from db.timelines import PACKED_SELECT, unpacked
from db.vm_states import COUNTED

_JOBS = "SELECT uid::text, job_id, user_id, status, attempt FROM jobs"
_EVENTS = """
SELECT uid::text, seq, event, from_status, to_status, attempt, at FROM job_events ORDER BY uid, seq
"""
_PACKED = f"SELECT uid::text, {PACKED_SELECT} FROM timelines ORDER BY uid, seq"
_ATTEMPTS = """
SELECT uid::text, attempt, lease_id, vm_name, assigned_at, ended_at FROM attempts
ORDER BY uid, attempt
"""
# Leases on VMs whose job does not know of them, the other way round, and GPUs given out twice.
_LOOSE = f"""
SELECT 'VM ' || v.name || ' holds lease ' || l || ', no job does' FROM vms AS v
CROSS JOIN jsonb_array_elements_text(v.leases) AS l
WHERE v.{COUNTED} AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.lease_id = l)
UNION ALL
SELECT 'job ' || j.job_id || ' holds lease ' || j.lease_id || ', its VM does not' FROM jobs AS j
WHERE j.lease_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM vms AS v WHERE v.uid = j.vm_uid AND v.leases ? j.lease_id)
UNION ALL
SELECT 'leases ' || a.lease_id || ' and ' || b.lease_id || ' had the same GPU of ' || a.vm_name
FROM attempts AS a JOIN attempts AS b ON a.vm_uid = b.vm_uid AND a.lease_id < b.lease_id
    AND a.assigned_at < coalesce(b.ended_at, 'infinity')
    AND b.assigned_at < coalesce(a.ended_at, 'infinity')
WHERE EXISTS (SELECT 1 FROM jsonb_array_elements(a.slots) AS gpu WHERE b.slots @> gpu)
"""
_WATCH = """
CREATE TABLE IF NOT EXISTS leader_writes (
    at timestamptz NOT NULL, writer text NOT NULL, holder text NOT NULL, term bigint NOT NULL,
    what text NOT NULL);
CREATE OR REPLACE FUNCTION note_leader_write() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER AS $$
BEGIN
    INSERT INTO leader_writes SELECT clock_timestamp(), current_setting('application_name'),
        holder, term, TG_TABLE_NAME FROM leader;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION note_leader_event() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM fresh WHERE seq > 1 AND NOT (
        get_byte(packed, 0) = 0 AND packed LIKE '%stop_asked%'::bytea)) THEN
        INSERT INTO leader_writes SELECT clock_timestamp(), current_setting('application_name'),
            holder, term, TG_TABLE_NAME FROM leader;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER watched_events AFTER INSERT ON timelines
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION note_leader_event();
CREATE OR REPLACE TRIGGER watched_vms AFTER INSERT OR UPDATE OF version, last_beat_at ON vms
    FOR EACH STATEMENT EXECUTE FUNCTION note_leader_write();
CREATE OR REPLACE TRIGGER watched_requests AFTER INSERT OR UPDATE ON cloud_requests
    FOR EACH STATEMENT EXECUTE FUNCTION note_leader_write();
"""
_TERMS = """
SELECT term, writer, min(at), max(at), count(*), bool_and(left(holder, 63) = writer)
FROM leader_writes
GROUP BY 1, 2 ORDER BY 1, 3
"""


async def check_history(store: PostgresStore) -> HistoryCheck:
    """Reads everything: for the ends of runs, not for a service at work."""
    async with store.connection() as connection:
        jobs = await (await connection.execute(_JOBS)).fetchall()
        events = await (await connection.execute(_EVENTS)).fetchall()
        packed = await (await connection.execute(_PACKED)).fetchall()
        attempts = await (await connection.execute(_ATTEMPTS)).fetchall()
        loose = await (await connection.execute(_LOOSE)).fetchall()
    steps: dict[str, list[HistoryStep]] = {}
    for uid, _, event, before, after, attempt, at in events:
        steps.setdefault(uid, []).append(HistoryStep(event, before, after, attempt, at))
    for uid, *row in packed:
        steps.setdefault(uid, []).extend(_step(event.entry) for event in unpacked(*row))
    tries: dict[str, list[Try]] = {}
    for uid, *rest in attempts:
        tries.setdefault(uid, []).append(Try(*rest))
    return HistoryCheck(
        tuple(
            JobHistory(
                job_id=job_id,
                user_id=user_id,
                status=JobStatus(status),
                attempt=attempt,
                steps=tuple(steps.get(uid, ())),
                tries=tuple(tries.get(uid, ())),
            )
            for uid, job_id, user_id, status, attempt in jobs
        ),
        tuple(row[0] for row in loose),
    )


def _step(entry: TimelineEntry) -> HistoryStep:
    before = None if entry.from_status is None else str(entry.from_status)
    return HistoryStep(entry.event, before, str(entry.to_status), entry.attempt, entry.at)


async def watch(store: PostgresStore) -> None:
    """From now on the writes of leaders are written down. For runs under faults: it costs."""
    async with store.connection() as connection:
        for statement in _statements(_WATCH):
            await connection.execute(statement.encode())


async def leading(store: PostgresStore) -> tuple[int, str]:
    """(term, holder); the holder is empty while nobody leads."""
    async with store.connection() as connection:
        row = await (await connection.execute("SELECT term, holder FROM leader")).fetchone()
    return (0, "") if row is None else (row[0], row[1])


async def reigns(store: PostgresStore) -> Sequence[Reign]:
    """Who wrote under which term, in order."""
    async with store.connection() as connection:
        rows = await (await connection.execute(_TERMS)).fetchall()
    return [Reign(*row) for row in rows]


def _statements(script: str) -> Iterator[str]:
    """One by one, because a prepared statement holds one; `$$` keeps a function's body whole."""
    for part in script.split(";\nCREATE"):
        yield part if part.lstrip().startswith("CREATE") else f"CREATE{part}"
