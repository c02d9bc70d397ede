"""Retention on PostgreSQL: what only a database can show."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from core.errors import StoreDown
from core.retention import RetentionRules
from db import retention
from db.store import PostgresStore
from tests.db.builders import put
from tests.db.contract.words import send

pytestmark = pytest.mark.slow
RULES = RetentionRules()


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield opened
    await opened.close()


async def execute(url: str, query: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(query.encode())


async def test_confirmed_messages_are_pruned(store: PostgresStore, database_url: str) -> None:
    """Rows that a release before kept: a day after the bus confirmed them, also behind one that
    it will never take."""
    await put(store, send(b"poison"), send(b"old"), send(b"new"))
    rows = await store.outbox(10)
    query = "UPDATE outbox SET published_at = now() - interval '25 h' WHERE outbox_id = "
    await execute(database_url, query + str(rows[1].outbox_id))
    await store.published([rows[2].outbox_id])
    assert (await store.prune(RULES, 1))["outbox"] == 1
    assert (await store.prune(RULES, 10))["outbox"] == 0
    assert [row.message.body for row in await store.outbox(10)] == [b"poison"]


_FULL = """
INSERT INTO jobs (uid, tenant_id, user_id, job_id, name, cluster, status, priority, spec,
    content_hash, version, attempt, submitted_at, status_since, queued_since, ended_at)
SELECT gen_random_uuid(), 't', 'u', 'j' || n, '', 'c', 'SUCCEEDED', 1, '{}', 'h', 1, 1,
    now(), now(), now(), now() - (n - 0.5) * interval '1 h' FROM generate_series(1, 4000) AS n;
INSERT INTO job_events (uid, seq, at, event, to_status, attempt, reason)
SELECT uid, n, now(), 'e', 'QUEUED', 0, '' FROM jobs, generate_series(1, 5) AS n;
INSERT INTO timelines (uid, seq, at, packed) SELECT uid, 6, now(), '' FROM jobs;
INSERT INTO attempts (uid, attempt, lease_id, vm_uid, vm_name, region, zone, usd_per_hour,
    assigned_at, ended_at, outcome)
SELECT uid, 1, uid::text, uid, 'v', 'r', 'z', 1, ended_at - interval '1 h', ended_at, 'ok'
FROM jobs;
INSERT INTO vms (uid, name, cluster, region, state, version, request_id, gpus, spot,
    usd_per_hour, requested_at, state_since, gone_at, settled)
SELECT gen_random_uuid(), 'n' || n, 'c', 'r', 'GONE', 1, 'q', 1, false, 1, now(), now(),
    now() - (n - 0.5) * interval '1 h', true FROM generate_series(1, 4000) AS n;
INSERT INTO job_waits (uid, key, words, first_at, last_at, count)
SELECT uid, n, '', now(), now(), 1 FROM jobs CROSS JOIN generate_series(1, 2) AS n;
INSERT INTO cloud_requests (request_id, kind, cluster, region, reason, created_at, settled_at)
SELECT n::text, 'create', 'c', 'r', '', now(), now() - (n - 0.5) * interval '1 h'
FROM generate_series(1, 4000) AS n;
INSERT INTO alerts (kind, subject, severity, message, raised_at, last_seen_at, cleared_at, count)
SELECT 'k', n::text, 's', 'm', now(), now(), now() - (n - 0.5) * interval '1 h', 1
FROM generate_series(1, 4000) AS n;
INSERT INTO dead_letters (message_id, source, body, reason, at)
SELECT n::text, 's', '', '', now() - (n - 0.5) * interval '1 h' FROM generate_series(1, 4000) AS n;
INSERT INTO outbox (topic, body, published_at)
SELECT 't', '', now() - (4000.5 - n) * interval '1 h' FROM generate_series(1, 4000) AS n;
"""


@pytest.fixture
async def full_url(database_url: str) -> str:
    """Four thousand of everything, each an hour older than the one before."""
    await execute(database_url, _FULL)
    await execute(database_url, "VACUUM ANALYZE")
    return database_url


@pytest.fixture(scope="module")
def full_to_read_url(shared_database_url: str) -> str:
    """The same, made once."""
    with psycopg.connect(shared_database_url, autocommit=True) as connection:
        connection.execute(_FULL.encode())
        connection.execute(b"VACUUM ANALYZE")
    return shared_database_url


@pytest.mark.parametrize(
    "query",
    [
        retention.OUTBOX,
        retention.DEAD_LETTERS,
        retention.REQUESTS,
        retention.VMS,
        retention.ALERTS,
        retention.EVENTS,
        retention.TIMELINES,
        retention.ATTEMPTS,
        retention.WAITS,
        retention.EMPTIED,
    ],
)
async def test_no_table_is_scanned(full_to_read_url: str, query: str) -> None:
    """The oldest rows are found by index, whatever the size of the table."""
    async with await psycopg.AsyncConnection.connect(full_to_read_url) as connection:
        words = {"days": 90.0, "batch": 1000}
        cursor = await connection.execute(f"EXPLAIN {query}".encode(), words)
        plan = "\n".join(row[0] for row in await cursor.fetchall())
    assert "Seq Scan" not in plan, plan


async def test_batches_until_nothing_is_left(store: PostgresStore, full_url: str) -> None:
    """A thousand at a time of each table, until only what is young enough is left."""
    total: dict[str, int] = {}
    for _ in range(20):
        counts = await store.prune(RULES, 1000)
        assert max(counts.values()) <= 1000
        for table, count in counts.items():
            total[table] = total.get(table, 0) + count
        if not any(counts.values()):
            break
    old_jobs = 4000 - 90 * 24
    assert total == {
        "outbox": 4000 - 24,
        "dead_letters": 4000 - 30 * 24,
        "cloud_requests": 4000 - 7 * 24,
        "vms": 4000 - 30 * 24,
        "alerts": 4000 - 30 * 24,
        "job_events": 6 * old_jobs,
        "attempts": old_jobs,
        "job_waits": 2 * old_jobs,
        "experience": 0,
        "troubles": 0,
    }
    query = b"SELECT count(*) FROM jobs WHERE history_pruned"
    async with await psycopg.AsyncConnection.connect(full_url) as connection:
        row = await (await connection.execute(query)).fetchone()
    assert row == (old_jobs,)


async def test_counts_are_folded_even_where_a_delete_fails(
    store: PostgresStore, database_url: str
) -> None:
    """Else the rows of counts grow without end."""
    await execute(database_url, _FULL)
    await execute(database_url, "UPDATE jobs SET cluster = 'c7'")
    await execute(database_url, "ALTER TABLE dead_letters RENAME TO elsewhere")
    with pytest.raises(StoreDown):
        await store.prune(RULES, 10)
    query = b"SELECT count(*), count(DISTINCT (tenant_id, cluster)) FROM job_counts"
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        assert await (await connection.execute(query)).fetchone() == (2, 2)


async def test_held_rows_are_left_for_later(store: PostgresStore, full_url: str) -> None:
    """Pruning waits for nobody: what somebody holds is taken the next time."""
    async with await psycopg.AsyncConnection.connect(full_url) as connection:
        await connection.execute(b"SELECT FROM dead_letters ORDER BY at LIMIT 10 FOR UPDATE")
        assert (await store.prune(RULES, 4000))["dead_letters"] == 4000 - 30 * 24 - 10
    assert (await store.prune(RULES, 4000))["dead_letters"] == 10
