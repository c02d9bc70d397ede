"""No GET route of the API reads the whole of a table that grows."""

from __future__ import annotations

import psycopg
import pytest

from bench.many_jobs import ManyJobs, fill_jobs
from bench.plans import CLUSTERS, LargeTables, explain_all, faults

LARGE = LargeTables(frozenset({"jobs"}), {"ix_jobs_newest": "submitted_at"})


def node(kind: str, **more: object) -> dict[str, object]:
    return {"Node Type": kind, "Parent Relationship": "Outer", **more}


def test_what_is_a_fault() -> None:
    """A table that grows is read by an index and a condition, or by an index and a limit."""
    newest = node("Index Scan", **{"Index Name": "ix_jobs_newest", "Relation Name": "jobs"})
    sort = node("Sort", Plans=[newest])
    assert faults(node("Seq Scan", **{"Relation Name": "leader"}), LARGE) == []
    assert faults(node("Seq Scan", **{"Relation Name": "jobs"}), LARGE)
    assert faults(newest, LARGE)
    assert faults(node("Limit", Plans=[newest]), LARGE) == []
    assert faults(node("Limit", Plans=[sort]), LARGE)
    searched = {**newest, "Filter": "(user_id = 'u'::text)"}
    assert faults(node("Limit", Plans=[searched]), LARGE)
    assert faults(sort, LargeTables(frozenset(), {})) == []
    assert faults({**newest, "Index Cond": "(uid = 1)"}, LARGE)
    assert faults({**newest, "Index Cond": "(submitted_at = 1)"}, LARGE) == []


@pytest.mark.slow
async def test_every_get_route_reads_by_index(database_url: str) -> None:
    """Scans are priced out, so the ones that are left have no index to use; the same over a million
    jobs: python -m bench.plans."""
    size = ManyJobs(jobs=3000, clusters=CLUSTERS, tenants=50, users=50, history=300)
    fill_jobs(database_url, size)
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET enable_seqscan = off'.encode())
    count, wrong = await explain_all(database_url, rows_min=-1)
    assert not wrong, "\n".join(wrong)
    assert count > 100
