"""Histories are stored packed, and read as they were."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest

from core.commit_writes import EventWrite
from core.job import JobEvent, JobStatus, TimelineEntry
from db.packed import PLAIN
from db.reads import PostgresReads
from db.store import PostgresStore
from db.timelines import PACKED_MAX, packed_events, unpacked
from tests.db.builders import Maker, at, put, submitted
from tests.db.contract.words import note

VM = "pipeline-zen-jobs-1xl4-us-east4-vm-56fr"
ADMITTED = TimelineEntry(at(1), "admitted", JobStatus.QUEUED, JobStatus.PROVISIONING, 0, "why")
PLACED = TimelineEntry(
    at(2.5),
    *("placed", JobStatus.PROVISIONING, JobStatus.ASSIGNED, 1, f"placed on {VM}", VM, "us-east4"),
    data={"slots": [0, 1], "é": None},
)


def test_rows_of_a_commit_are_one() -> None:
    """Each is read with its own number and time; those of another job are another row."""
    rows = [EventWrite("a", 4, ADMITTED), EventWrite("b", 1, PLACED), EventWrite("a", 5, PLACED)]
    first, second = packed_events(rows)
    assert [(row.uid, row.seq) for row in (first, second)] == [("a", 5), ("b", 1)]
    read = unpacked(first.seq, first.at, first.packed, first.dedup_key)
    assert [(row.seq, row.entry) for row in read] == [(4, ADMITTED), (5, PLACED)]


def test_what_must_not_come_twice_stands_alone() -> None:
    """So that an index sees to it."""
    once = replace(ADMITTED, dedup_key="k")
    rows = packed_events(
        [EventWrite("a", n, entry) for n, entry in enumerate((ADMITTED, once, PLACED), 1)]
    )
    assert [(row.seq, row.dedup_key) for row in rows] == [(1, None), (2, "k"), (3, None)]


def test_members_that_begin_alike() -> None:
    """Are packed once; one that differs is not."""
    entries = (ADMITTED, ADMITTED, PLACED)
    rows = packed_events(EventWrite(str(n), 1, entry) for n, entry in enumerate(entries))
    assert [row.uid for row in rows] == ["0", "1", "2"]
    read = [unpacked(row.seq, row.at, row.packed, None)[0].entry for row in rows]
    assert read == list(entries)


def test_rows_are_bounded() -> None:
    """A commit that says very much about a job makes several."""
    rows = packed_events(EventWrite("a", n, ADMITTED) for n in range(1, 2 * PACKED_MAX + 2))
    assert [row.seq for row in rows] == [PACKED_MAX, 2 * PACKED_MAX, 2 * PACKED_MAX + 1]


def test_a_stop_is_plain() -> None:
    """SQL tells what anybody may write from what only the leader may."""
    stop = replace(ADMITTED, event=str(JobEvent.STOP_ASKED))
    (row,) = packed_events([EventWrite("a", 2, stop)])
    assert (row.packed[0], b"stop_asked" in row.packed) == (PLAIN, True)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield opened
    await opened.close()


async def test_pages_across_rows(store: PostgresStore, database_url: str) -> None:
    """Rows of a release before come first; a page may begin and end within a packed row."""
    job = Maker().job()
    await put(store, submitted(job))
    await put(store, *(note(job.uid, f"note {n}") for n in range(2, 7)))
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(b"UPDATE timelines SET seq = seq + 1")
        connection.execute(
            b"INSERT INTO job_events (uid, seq, at, event, to_status, attempt, reason) "
            b"SELECT uid, 1, at, 'old', 'QUEUED', 0, 'said before' FROM timelines WHERE seq = 2"
        )
    reads = PostgresReads(store)

    async def page(after: int, size: int) -> list[int]:
        return [row.seq for row in await reads.events(job.uid, size, after)]

    assert await page(0, 100) == [1, 2, 3, 4, 5, 6, 7]
    assert await page(0, 3) == [1, 2, 3]
    assert await page(3, 3) == [4, 5, 6]
    assert await page(6, 3) == [7]
    assert (await reads.events(job.uid, 1, 0))[0].entry.reason == "said before"
