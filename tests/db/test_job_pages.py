"""Pages of jobs by every filter are what the filter says, whichever index finds them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from core import pages
from core.access import EVERY_TENANT, Tenants
from core.job import Job, JobEvent, JobStatus
from core.reads import JobFilter
from db import job_pages
from db.reads import PostgresReads
from db.store import PostgresStore
from tests.db.builders import Maker, at, put, step, submitted

pytestmark = pytest.mark.slow
FIELDS: tuple[dict[str, object], ...] = (
    {},
    {"user_id": "u1"},
    {"user_id": "nobody"},
    {"tenant_id": "t1"},
    {"group": "g"},
)
STATUSES = ((), (JobStatus.QUEUED,), (JobStatus.CANCELLED, JobStatus.QUEUED))
LABELS: tuple[dict[str, str], ...] = ({}, {"team": "a"}, {"team": "a", "odd": "no"}, {"team": "x"})
BOUNDS = (EVERY_TENANT, Tenants(frozenset({"t0"})), Tenants(frozenset({"t0", "t1"})))


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield opened
    await opened.close()


async def stored(store: PostgresStore, maker: Maker) -> list[Job]:
    """Of two tenants and clusters, some cancelled, newest first."""
    jobs = []
    for n in range(24):
        job = maker.job(f"j{n}", now=at(n // 2))
        labels = {"team": "ab"[n % 2], "odd": "yes" if n % 3 else "no"} if n % 4 else {}
        spec = replace(
            job.spec,
            tenant_id=f"t{n % 3}",
            user_id=f"u{n % 2}",
            labels=labels,
            group="g" if n % 5 == 0 else None,
        )
        jobs.append(replace(job, spec=spec, cluster=f"c{n % 2}"))
    await put(store, *(submitted(job) for job in jobs))
    ended = [step(job, JobEvent.STOP_ASKED, at(50)) for job in jobs[::4]]
    await put(store, *ended)
    now = {move.after.uid: move.after for move in ended}
    found = [now.get(job.uid, job) for job in jobs]
    return sorted(found, key=lambda job: (job.submitted_at, job.uid), reverse=True)


async def test_every_combination_of_filters(store: PostgresStore) -> None:
    """The first page, the next one, and one behind an offset; and how many there are."""
    jobs, reads = await stored(store, Maker()), PostgresReads(store)
    clusters = (None, "c0", "c9")
    for fields, statuses, labels, cluster, tenants in itertools.product(
        FIELDS, STATUSES, LABELS, clusters, BOUNDS
    ):
        where = JobFilter(fields, statuses, cluster, labels, tenants=tenants)
        expected = [job.spec.job_id for job in jobs if where.fits(job)]
        page = await reads.jobs(where, 3, None)
        assert [row.job.spec.job_id for row in page.rows] == expected[:3], where
        assert (page.total, page.total_exact) == (len(expected), True), where
        if page.next_token is not None:
            further = await reads.jobs(where, 50, page.next_token)
            assert [row.job.spec.job_id for row in further.rows] == expected[3:], where
            passed = await reads.jobs(where, 2, None, offset=2)
            assert [row.job.spec.job_id for row in passed.rows] == expected[2:4], where


async def test_totals_that_are_not_kept_are_bounded(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By label they are counted to a bound, and the page says so; by cluster they are exact."""
    monkeypatch.setattr(job_pages, "COUNTED_MAX", 4)
    monkeypatch.setattr(pages, "COUNTED_MAX", 4)
    await stored(store, Maker())
    reads = PostgresReads(store)
    by_label = await reads.jobs(JobFilter(labels={"team": "b"}), 2, None)
    assert (by_label.total, by_label.total_exact) == (4, False)
    by_cluster = await reads.jobs(JobFilter(cluster="c0"), 2, None)
    assert (by_cluster.total, by_cluster.total_exact) == (12, True)
