"""The order of a queue is written once in Python and once in SQL: both say the same."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, replace
from datetime import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.job import Job
from core.queueing import HeadsOf, QueueRule, class_of, goes_before
from db.reads import PostgresReads
from db.store import PostgresStore
from scheduler.queue.fair_share import Shares
from scheduler.queue.order import ranked
from sim.memory.tables import Tables
from tests.db.builders import Maker, at, put, submitted

pytestmark = pytest.mark.slow
TENANTS = ("a", "b", "c")
EVEN = Shares({}, {}, 1.0, 0.1)
_numbers = itertools.count()


@dataclass(frozen=True)
class Drawn:
    """What decides a job's place. Few values, so that there are ties."""

    tenant: str
    priority: int
    queued_s: int
    due_s: int


drawn_jobs = st.lists(
    st.builds(
        Drawn,
        st.sampled_from(TENANTS),
        st.sampled_from((100, 499, 500, 700, 999, 1000, 1500, 2500)),
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=12,
)


def made(drawn: list[Drawn], cluster: str, seed: int) -> list[Job]:
    maker = Maker(seed)
    found = []
    for number, one in enumerate(drawn):
        job = maker.job(
            f"{cluster}-{number}",
            cluster=cluster,
            queue_timeout_s=1e9,
            tenant_id=one.tenant,
            priority=one.priority,
        )
        found.append(replace(job, queued_since=at(one.queued_s), due_at=at(one.due_s)))
    return found


def expected(jobs: list[Job], rule: QueueRule, most: int) -> list[list[str]]:
    """The queue; of a fair one a queue for each class and tenant, since among tenants the shares
    of the moment decide."""
    order = list(ranked(jobs, rule, EVEN))
    if rule is not QueueRule.FAIR:
        return [[job.uid for job in order[:most]]]
    return split(order)


def split(order: list[Job]) -> list[list[str]]:
    parts: dict[tuple[int, str], list[str]] = {}
    for job in order:
        key = (-class_of(job.spec.priority), job.spec.tenant_id)
        parts.setdefault(key, []).append(job.uid)
    return [parts[key] for key in sorted(parts)]


async def check(url: str, drawn: list[Drawn], most: int) -> None:
    number = next(_numbers)
    cluster = f"1xl4-{number}"  # of this example alone
    jobs = made(drawn, cluster, number)
    tables = Tables()
    for job in jobs:
        tables.add_job(job, "")
    store = PostgresStore(url)
    await store.open()
    try:
        await put(store, *(submitted(job) for job in jobs))
        for rule in QueueRule:
            limit = len(jobs) if rule is QueueRule.FAIR else most
            asked = HeadsOf(cluster, limit, rule, TENANTS)
            stored = list(await store.heads([asked], limit))
            kept = [tables.jobs[uid].job for uid in tables.heads_of(asked, limit, NEVER)]
            for found in (stored, kept):
                parts = split(found) if rule is QueueRule.FAIR else [[job.uid for job in found]]
                assert parts == expected(jobs, rule, most), rule
        for job in jobs:
            row = await PostgresReads(store).job(job.spec.job_id, None)
            assert row.position == 1 + sum(goes_before(other, job) for other in jobs)
    finally:
        await store.close()


NEVER = datetime.max.replace(tzinfo=at(0).tzinfo)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=drawn_jobs, most=st.integers(1, 12))
def test_sql_and_python_agree_on_who_is_next(
    database_url: str, drawn: list[Drawn], most: int
) -> None:
    """For every rule, for both stores, and for the position that people are told."""
    asyncio.run(check(database_url, drawn, most))
