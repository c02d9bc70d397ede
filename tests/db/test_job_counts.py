"""Counts that are kept beside the jobs are those of the jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from db import migrate
from db.job_counts import FOLD, KEY
from db.roles import LEADER

pytestmark = pytest.mark.slow

_NEW = """
INSERT INTO jobs (uid, tenant_id, user_id, job_id, name, cluster, status, priority, labels, spec,
    content_hash, version, attempt, submitted_at, status_since, queued_since, deadline_at, gang,
    rank, gang_size, blocked)
SELECT u.uid, 't' || n % 3, 'u' || n % 5, 'j' || n, '', 'c' || n % 2, 'QUEUED', 1,
    CASE WHEN n % 4 = 0 THEN '{"a": "b"}' ELSE '{}' END::jsonb, '{}', 'h', 1, 0, now(), now(),
    now(), now(), CASE WHEN n % 4 > 1 THEN u.uid END, n % 4 / 2, 1 + n % 4 / 2,
    CASE WHEN n % 4 > 2 THEN u.uid END
FROM generate_series(1, 60) AS n
CROSS JOIN LATERAL (SELECT md5(n::text)::uuid AS uid) AS u ON CONFLICT DO NOTHING
"""
_CANCEL = """
UPDATE jobs SET status = 'CANCELLED', deadline_at = NULL, ended_at = now(), blocked = NULL, why = ''
WHERE user_id = 'u1'
"""
_STEPS = (
    _NEW,
    _NEW,  # nothing is new: nothing is counted
    "UPDATE jobs SET why = 'no VM'",
    _CANCEL,
    "UPDATE jobs SET cluster = 'c7' WHERE user_id = 'u2'",
    "UPDATE jobs SET blocked = NULL WHERE user_id = 'u3'",
    FOLD,
    "DELETE FROM jobs WHERE user_id = 'u4'",
    FOLD,
    "TRUNCATE jobs CASCADE",
)
_KEPT = f"""
SELECT {KEY}, sum(listed), sum(counted) FROM job_counts GROUP BY {KEY}
HAVING sum(listed) <> 0 OR sum(counted) <> 0
"""  # noqa: S608
_COUNTS = """count(*) FILTER (WHERE rank = 0),
    count(*) FILTER (WHERE rank = 0 OR blocked IS DISTINCT FROM uid)"""
_TRUE = f"""
SELECT {KEY}, {_COUNTS} FROM jobs GROUP BY {KEY}
UNION ALL SELECT '', '', cluster, status, {_COUNTS} FROM jobs GROUP BY cluster, status
"""  # noqa: S608
_LABELS = "SELECT uid FROM job_labels WHERE label = md5('a=b')::uuid"
_LABELLED = """SELECT uid FROM jobs WHERE labels @> '{"a": "b"}' AND rank = 0"""
_WAITS = "SELECT FROM pg_locks WHERE relation = 'jobs'::regclass AND NOT granted"


def _assert_true_counts(connection: psycopg.Connection, step: str = "") -> None:
    def found(query: str) -> list[tuple[object, ...]]:
        rows = connection.execute(query.encode()).fetchall()
        return sorted(row for row in rows if any(row[4:]) or len(row) == 1)

    assert found(_KEPT) == found(_TRUE), step
    assert found(_LABELS) == found(_LABELLED), step


def test_counts_follow_every_change(database_url: str) -> None:
    """After each statement that writes jobs, and after rows were folded."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for step in _STEPS:
            connection.execute(step.encode())
            _assert_true_counts(connection, step)


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [(_NEW, "SELECT"), ("SELECT FROM jobs FOR NO KEY UPDATE", _NEW)],
    ids=["written", "locked"],
)
def test_jobs_written_during_the_upgrade_are_counted(
    database_url: str, before: str, meanwhile: str
) -> None:
    """A replica of the release before has not committed its jobs when the migration begins, or has
    locked rows and writes now: neither fails."""
    migrate.downgrade(database_url, "0033")
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(database_url, autocommit=True) as watcher,
        psycopg.connect(database_url) as writer,
    ):
        writer.execute(before.encode())
        upgrading = pool.submit(migrate.upgrade, database_url)
        while not watcher.execute(_WAITS.encode()).fetchall():
            assert not upgrading.done()
        writer.execute(meanwhile.encode())
        writer.commit()
        upgrading.result()
        assert watcher.execute("SELECT count(*) FROM jobs").fetchall() == [(60,)]
        _assert_true_counts(watcher)


_WRITES = (_NEW, _CANCEL, "DELETE FROM jobs WHERE user_id = 'u4'")


def test_a_writer_of_jobs_needs_no_right_on_counts(database_url: str) -> None:
    """The triggers write with the rights of their owner."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"REVOKE ALL ON job_counts, job_labels FROM {LEADER}".encode())
        connection.execute(f"SET ROLE {LEADER}".encode())
        for step in _WRITES:
            connection.execute(step.encode())
        connection.execute("RESET ROLE")
        _assert_true_counts(connection)


def test_a_table_of_the_writer_does_not_take_the_counts(database_url: str) -> None:
    """Temporary tables come first in a session's own search path."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"SET ROLE {LEADER}".encode())
        connection.execute("CREATE TEMP TABLE job_counts (LIKE public.job_counts)")
        for step in _WRITES:
            connection.execute(step.encode())
        assert connection.execute("SELECT * FROM job_counts").fetchall() == []
        connection.execute("DROP TABLE pg_temp.job_counts")
        _assert_true_counts(connection)


def test_folding_leaves_one_row_of_each_key(database_url: str) -> None:
    """And none where nothing is left to count."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_NEW.encode())
        connection.execute(b"UPDATE jobs SET cluster = 'c7'")
        connection.execute(FOLD.encode())
        query = f"SELECT count(*), count(DISTINCT ({KEY})) FROM job_counts"  # noqa: S608
        rows, keys = connection.execute(query.encode()).fetchall()[0]
        assert rows == keys == len(connection.execute(_TRUE.encode()).fetchall())
