"""The check of a whole history notices what must never have been."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from db.history_check import check_history
from db.store import PostgresStore

pytestmark = pytest.mark.slow
_JOB = """
INSERT INTO jobs (uid, tenant_id, user_id, job_id, name, cluster, status, priority, spec,
    content_hash, version, attempt, submitted_at, status_since, queued_since, ended_at)
VALUES (gen_random_uuid(), 't', 'u', %(job)s, '', 'c', 'SUCCEEDED', 1, '{}',
    'h', 1, 0, now(), now(), now(), now())
"""
_ATTEMPT = """
INSERT INTO attempts (uid, attempt, lease_id, vm_uid, vm_name, region, zone, slots, usd_per_hour,
    assigned_at, ended_at, outcome)
SELECT uid, 1, %(job)s, '00000000-0000-0000-0000-000000000001', 'vm', 'r', 'z', %(slots)s::jsonb,
    1, now() - make_interval(secs => %(since)s), now() - make_interval(secs => %(until)s), 'x'
FROM jobs WHERE job_id = %(job)s
"""


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield opened
    await opened.close()


async def test_gpu_in_two_leases_at_once_is_a_fault(store: PostgresStore) -> None:
    """Side by side on others, or one after the other on the same, is none."""
    stays = (
        ("a", "[0,1]", 100, 50),
        ("b", "[2]", 90, 10),
        ("c", "[1]", 50, 20),
        ("d", "[1,3]", 40, 5),
    )
    async with store.connection() as connection:
        for job, slots, since, until in stays:
            facts = {"job": job, "slots": slots, "since": since, "until": until}
            await connection.execute(_JOB, facts)
            await connection.execute(_ATTEMPT, facts)
    assert (await check_history(store)).loose == ("leases c and d had the same GPU of vm",)
