"""Takes away what has been over for longer than the rules keep it: bounded bites off the oldest
end, found by index, so that a table of any size costs the same. Ages are on the database's clock.
"""
# ruff: noqa: S608  # only our own pieces of text are put together here

from __future__ import annotations

from collections.abc import Mapping

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.retention import RetentionRules
from db.job_counts import fold
from db.vm_states import GONE

_CUTOFF = "now() - make_interval(secs => %(days)s * 86400)"


# By physical place: the rows have just been found and locked, and no plan for finding them again
# can be a wrong one. Rows that somebody holds are left for the next time: nobody waits for us.
def _oldest(table: str, since: str, where: str = "true") -> str:
    return f"""
DELETE FROM {table} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM {table} WHERE {since} < {_CUTOFF} AND {where}
    ORDER BY {since} LIMIT %(batch)s FOR UPDATE SKIP LOCKED
))
"""


# By number instead of by time: the outbox is written and confirmed all day, an index on the time
# of confirmation would cost more than it saves. The oldest numbers were confirmed first, nearly.
# No lock: it would write on the oldest rows each minute, also when none of them is old enough.
OUTBOX = f"""
DELETE FROM outbox WHERE published_at < {_CUTOFF} AND ctid = ANY(ARRAY(
    SELECT ctid FROM outbox WHERE published_at IS NOT NULL ORDER BY outbox_id LIMIT %(batch)s
))
"""
DEAD_LETTERS = _oldest("dead_letters", "at")
REQUESTS = _oldest("cloud_requests", "settled_at")
VMS = _oldest("vms", "gone_at", f"{GONE} AND leases = '[]'::jsonb AND settled")
SUPPLY_HISTORY = _oldest("experience", "updated_at")
REGION_BLOCKS = _oldest("troubles", "last_seen")
ALERTS = _oldest("alerts", "cleared_at")

# Jobs stay; their history goes, and with its last row the mark that there is some.
_OLD_JOBS = f"""
SELECT uid, ctid FROM jobs WHERE ended_at < {_CUTOFF} AND NOT history_pruned
ORDER BY ended_at LIMIT %(batch)s
"""
_LOCKED_JOBS = f"{_OLD_JOBS} FOR NO KEY UPDATE SKIP LOCKED"


def _history(table: str, number: str, where: str = "true") -> str:
    """LATERAL, so that each job's rows are looked up by key, however many others have some."""
    return f"""
WITH old AS MATERIALIZED ({_OLD_JOBS})
SELECT h.place FROM old CROSS JOIN LATERAL (
    SELECT ctid AS place FROM {table} AS t WHERE uid = old.uid AND {where}
    ORDER BY {number} LIMIT %(batch)s
) AS h LIMIT %(batch)s
"""


EVENTS = f"""
DELETE FROM job_events WHERE ctid = ANY(ARRAY({_history("job_events", "seq")}))
"""
TIMELINES = f"""
DELETE FROM timelines WHERE ctid = ANY(ARRAY({_history("timelines", "seq")}))
"""
# Only what is settled: what an attempt cost is in job_costs by then, a job never looks cheaper.
_SETTLED = """NOT EXISTS (SELECT FROM vms AS v WHERE v.uid = t.vm_uid AND NOT v.settled
        AND (v.settled_until IS NULL OR t.ended_at > v.settled_until))"""
ATTEMPTS = f"""
DELETE FROM attempts WHERE ctid = ANY(ARRAY({_history("attempts", "attempt", _SETTLED)}))
"""
WAITS = f"""
DELETE FROM job_waits WHERE ctid = ANY(ARRAY({_history("job_waits", "first_at")}))
"""
EMPTIED = f"""
UPDATE jobs AS j SET history_pruned = true
WHERE j.ctid = ANY(ARRAY(SELECT ctid FROM ({_LOCKED_JOBS}) AS old))
    AND NOT EXISTS (SELECT FROM job_events AS e WHERE e.uid = j.uid LIMIT 1)
    AND NOT EXISTS (SELECT FROM timelines AS t WHERE t.uid = j.uid LIMIT 1)
    AND NOT EXISTS (SELECT FROM attempts AS a WHERE a.uid = j.uid LIMIT 1)
    AND NOT EXISTS (SELECT FROM job_waits AS w WHERE w.uid = j.uid LIMIT 1)
"""


async def prune(
    connection: AsyncConnection[TupleRow], rules: RetentionRules, batch: int
) -> Mapping[str, int]:
    """At most `batch` rows of each table; how many of which. Each statement is a transaction of
    its own: what is done is done, and no lock outlives its bite."""
    await fold(connection)  # first: a bite that fails each time must not let the counts grow
    # Not prepared: planned each time with the numbers that are meant.
    counts = {}
    for table, query, days in (
        ("outbox", OUTBOX, rules.outbox_days),
        ("dead_letters", DEAD_LETTERS, rules.dead_letters_days),
        ("cloud_requests", REQUESTS, rules.requests_days),
        ("vms", VMS, rules.vms_days),
        ("alerts", ALERTS, rules.alerts_days),
        ("experience", SUPPLY_HISTORY, rules.knowledge_days),
        ("troubles", REGION_BLOCKS, rules.knowledge_days),
        ("job_events", EVENTS, rules.events_days),
        ("attempts", ATTEMPTS, rules.events_days),
        ("job_waits", WAITS, rules.events_days),
    ):
        done = await connection.execute(query, {"days": days, "batch": batch}, prepare=False)
        counts[table] = done.rowcount
    history = {"days": rules.events_days, "batch": batch}
    rest = {**history, "batch": batch - counts["job_events"]}
    done = await connection.execute(TIMELINES, rest, prepare=False)
    counts["job_events"] += done.rowcount
    await connection.execute(EMPTIED, history, prepare=False)
    return counts
