"""Jobs as they begin are written without questions, and without what is the same in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from core.audit_log import Actor, AuditAction, AuditEntry
from core.groups import After, Wait
from core.job import JobStatus
from db.job_rows import JOB_NEW, JobWrite
from db.new_jobs import Connection, all_begin, insert_jobs
from tests.db.builders import T0, Maker, submitted
from tests.db.contract.arrays import jobs_of

AUDITED = AuditEntry(T0, Actor("ann", "ann"), AuditAction.SUBMIT, "job a")


class Columns:
    """A connection that keeps how many columns were sent."""

    def __init__(self) -> None:
        self.sent = 0

    async def execute(self, _: str, arrays: Sequence[object]) -> None:
        self.sent = len(arrays)


def test_only_jobs_that_wait_for_nothing_need_no_look() -> None:
    """Members of arrays, jobs that wait for others and all other changes have guards that read."""
    new = submitted(Maker().job("a"))
    assert all_begin([(new, AUDITED), (new,)])
    waits = replace(new, waits=(Wait("uid", None, After("b")),))
    once = replace(new, entry=replace(new.entry, dedup_key="x"))
    for other in (waits, once, *jobs_of(Maker())):
        assert not all_begin([(new,), (other, AUDITED)])


@pytest.mark.parametrize(
    "other", [{"status": JobStatus.PROVISIONING}, {"version": 2}, {"holds": 1}, {"blocked": "uid"}]
)
async def test_a_job_that_has_moved_is_written_whole(other: dict[str, object]) -> None:
    """Also if it is one of many."""
    job = Maker().job("a")
    rows, connection = [JobWrite(job, "", 1)], Columns()
    await insert_jobs(cast("Connection", connection), rows)
    assert 0 < connection.sent < len(JOB_NEW.fields) / 2
    rows.append(JobWrite(replace(job, **other), "", 1))  # type: ignore[arg-type]  # its own fields
    await insert_jobs(cast("Connection", connection), rows)
    assert connection.sent == len(JOB_NEW.fields)
