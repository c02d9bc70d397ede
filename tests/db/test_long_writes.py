"""Large submissions are written without questions, and only where all rows are alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest

from core.changes import AtomicBatch
from core.job_fields import JobSpec
from db.long_writes import Connection, NotPlain, write_long
from tests.db.builders import Maker
from tests.db.contract.arrays import in_parts, jobs_of, shared_by


class Statements:
    """A connection that keeps what it is asked to run."""

    def __init__(self) -> None:
        self.inserts: list[tuple[str, int]] = []
        """Table, and how many rows."""

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[None]:
        yield

    async def execute(self, query: str, values: Sequence[object] = ()) -> None:
        words = query.split()
        rows = max((len(value) for value in values if isinstance(value, list)), default=1)
        if words[:2] == ["INSERT", "INTO"]:
            self.inserts.append((words[2], rows))
        else:
            assert words[0] != "SELECT" or "pg_notify" in query, "nothing is read"


async def test_each_part_is_a_statement_of_its_own() -> None:
    """No statement, and no work between two of them, is larger than a part: others are served in
    between."""
    jobs, connection = jobs_of(Maker(), JobSpec("sweep", array="1-7")), Statements()
    await write_long(cast("Connection", connection), in_parts(jobs, 3))
    written = [rows for table, rows in connection.inserts if table == "jobs"]
    assert written == [rows for table, rows in connection.inserts if table == "timelines"]
    assert written == [2, 3, 2]


async def test_rows_that_differ_need_the_guards() -> None:
    """A job of another class, one that waits for others, one without the shared spec."""
    jobs = jobs_of(Maker())
    first, other = jobs[0], jobs[1]
    for odd in (
        replace(other, job=replace(other.job, cluster="8xh100-80gb")),
        replace(other, shared=None),
        replace(other, entry=replace(other.entry, dedup_key="x")),
    ):
        part: AtomicBatch = (shared_by(jobs), first, odd)
        with pytest.raises(NotPlain):
            await write_long(cast("Connection", Statements()), iter([part]))
    with pytest.raises(NotPlain):
        await write_long(cast("Connection", Statements()), iter([(first,)]))
