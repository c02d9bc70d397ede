"""Changes of which there are few per cycle, so one statement each."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.changes import (
    ClearAlert,
    DeadLetter,
    DropRegionBlock,
    ForgetRegion,
    NewRequest,
    PutForecast,
    PutRegionBlock,
    PutRegionStatus,
    PutSupplyHistory,
    RaiseAlert,
    ReplayDeadLetter,
    SettleRequest,
    SmallChange,
)
from core.dead_letter_bounds import BYTES_MAX, ROWS_MAX, beyond_bounds
from core.text import clean
from db.rows import (
    SUPPLY_HISTORY_SELECT,
    SUPPLY_HISTORY_UPDATE,
    SUPPLY_HISTORY_WIDTH,
    supply_row,
    to_json,
)

_NEW_REQUEST = """
INSERT INTO cloud_requests
    (request_id, kind, cluster, region, names, reason, created_at, settled_at, outcome, together,
     run_s)
VALUES (%s, %s, %s, %s, %s::jsonb, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""
_SETTLE_REQUEST = """
UPDATE cloud_requests SET settled_at = %s, outcome = %s
WHERE request_id = %s AND settled_at IS NULL
"""
_PUT_REGION_BLOCK = """
INSERT INTO troubles
    (region, zone, machine_type, spot, kind, since, last_seen, until, count, message)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (region, zone, machine_type, spot, kind) DO UPDATE SET
    since = excluded.since, last_seen = excluded.last_seen, until = excluded.until,
    count = excluded.count, message = excluded.message
"""
_DROP_REGION_BLOCK = """
DELETE FROM troubles
WHERE region = %s AND zone = %s AND machine_type = %s AND spot = %s AND kind = %s
"""
_PUT_SUPPLY_HISTORY = f"""
INSERT INTO experience ({SUPPLY_HISTORY_SELECT})
VALUES ({", ".join(["%s"] * SUPPLY_HISTORY_WIDTH)})
ON CONFLICT (region, zone, machine_type, spot) DO UPDATE SET {SUPPLY_HISTORY_UPDATE}
"""
_PUT_REGION = """
INSERT INTO region_status (cluster, region, target_size, why, observed_at)
VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (cluster, region) DO UPDATE SET
    target_size = excluded.target_size, why = excluded.why, observed_at = excluded.observed_at
"""
_FORGET_REGION = "DELETE FROM region_status WHERE cluster = %s AND region = %s"
_PUT_FORECAST = """
INSERT INTO forecasts (cluster, computed_at, document) VALUES (%s, %s, %s::json)
ON CONFLICT (cluster) DO UPDATE SET
    computed_at = excluded.computed_at, document = excluded.document
"""
_RAISE_ALERT = """
INSERT INTO alerts (kind, subject, severity, message, raised_at, last_seen_at, count)
VALUES (%(kind)s, %(subject)s, %(severity)s, %(message)s, %(at)s, %(at)s, 1)
ON CONFLICT (kind, subject) WHERE cleared_at IS NULL DO UPDATE SET
    severity = excluded.severity, message = excluded.message,
    last_seen_at = excluded.last_seen_at, count = alerts.count + 1
"""
_CLEAR_ALERT = """
UPDATE alerts SET cleared_at = %s WHERE kind = %s AND subject = %s AND cleared_at IS NULL
"""
_DEAD_LETTER = """
INSERT INTO dead_letters (message_id, source, body, attributes, reason, at, ordering_key)
VALUES (%s, %s, %s, %s::jsonb, %s, %s, %s) ON CONFLICT DO NOTHING
"""
# The same as core/dead_letter_bounds decides, over what is stored. Attributes count as they are
# stored: reading each of them would cost more than the bound is worth.
_TRIM_DEAD_LETTERS = """
DELETE FROM dead_letters WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM dead_letters WHERE ctid = ANY(ARRAY(
        SELECT place FROM (
            SELECT ctid AS place, row_number() OVER newest AS rank,
                sum(octet_length(body) + pg_column_size(attributes)) OVER newest AS bytes
            FROM dead_letters WHERE source = %s
            WINDOW newest AS (ORDER BY at DESC, message_id DESC)
        ) AS ranked WHERE rank > %s OR (bytes > %s AND rank > 1)
    )) FOR UPDATE SKIP LOCKED
))
"""
_REPLAY = "UPDATE dead_letters SET replayed_at = %s WHERE message_id = %s"


async def write_plain(
    connection: AsyncConnection[TupleRow], changes: Sequence[SmallChange]
) -> None:
    """In a fixed order of rows, so that two commits cannot wait for each other in a circle;
    changes to the same row keep theirs, because the sort is stable."""
    dead = [change for change in changes if isinstance(change, DeadLetter)]
    too_many = {letter.message_id for letter in beyond_bounds(dead)}
    for change in sorted(changes, key=_row):
        if not isinstance(change, DeadLetter) or change.message_id not in too_many:
            await _write_one(connection, change)
    for source in sorted({letter.source for letter in dead}):
        await connection.execute(_TRIM_DEAD_LETTERS, (source, ROWS_MAX, BYTES_MAX))


def _row(change: SmallChange) -> tuple[str, ...]:
    match change:
        case RaiseAlert(kind, subject) | ClearAlert(kind, subject):
            return ("alerts", kind, subject)
        case NewRequest(request):
            return ("cloud_requests", request.request_id)
        case SettleRequest(request_id):
            return ("cloud_requests", request_id)
        case DeadLetter(message_id) | ReplayDeadLetter(message_id):
            return ("dead_letters", message_id)
        case PutSupplyHistory(supply):
            return ("experience", *map(str, supply.place))
        case PutForecast(forecast):
            return ("forecasts", forecast.cluster)
        case PutRegionStatus(status):
            return ("region_status", status.cluster, status.region)
        case ForgetRegion(cluster, region):
            return ("region_status", cluster, region)
        case PutRegionBlock(block):
            return ("troubles", *map(str, block.key))
        case DropRegionBlock(key):
            return ("troubles", *map(str, key))
        case _:
            assert_never(change)


async def _write_one(connection: AsyncConnection[TupleRow], change: SmallChange) -> None:
    match change:
        case NewRequest(r):
            row = (r.request_id, r.kind, r.cluster, r.region, to_json(r.names), clean(r.reason))
            await connection.execute(
                _NEW_REQUEST,
                (*row, r.created_at, r.settled_at, clean(r.outcome), r.together, r.run_s),
            )
        case SettleRequest(request_id, outcome, at):
            await connection.execute(_SETTLE_REQUEST, (at, clean(outcome), request_id))
        case PutRegionBlock(t):
            times = (t.since, t.last_seen, t.until)
            key = (t.region, t.zone, t.machine_type, t.spot, str(t.kind))
            await connection.execute(_PUT_REGION_BLOCK, (*key, *times, t.count, clean(t.message)))
        case DropRegionBlock(key):
            await connection.execute(_DROP_REGION_BLOCK, key)
        case PutSupplyHistory(supply):
            await connection.execute(_PUT_SUPPLY_HISTORY, supply_row(supply))
        case PutForecast(forecast):
            document = (forecast.cluster, forecast.computed_at, to_json(forecast))
            await connection.execute(_PUT_FORECAST, document)
        case PutRegionStatus() | ForgetRegion():
            await _write_region(connection, change)
        case RaiseAlert(kind, subject, severity, message, at):
            words = {"kind": kind, "subject": clean(subject), "severity": severity}
            await connection.execute(_RAISE_ALERT, {**words, "message": clean(message), "at": at})
        case ClearAlert(kind, subject, at):
            await connection.execute(_CLEAR_ALERT, (at, kind, clean(subject)))
        case DeadLetter(message_id, source, body, attributes, reason, at, key):
            dead_letter = (message_id, source, body, to_json(attributes), clean(reason), at, key)
            await connection.execute(_DEAD_LETTER, dead_letter)
        case ReplayDeadLetter(message_id, at):
            await connection.execute(_REPLAY, (at, message_id))
        case _:
            assert_never(change)


async def _write_region(
    connection: AsyncConnection[TupleRow], change: PutRegionStatus | ForgetRegion
) -> None:
    if isinstance(change, ForgetRegion):
        await connection.execute(_FORGET_REGION, (change.cluster, change.region))
        return
    s = change.status
    row = (s.cluster, s.region, s.target_size, clean(s.why), s.observed_at)
    await connection.execute(_PUT_REGION, row)
