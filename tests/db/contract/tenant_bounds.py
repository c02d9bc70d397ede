"""Questions that are bound to tenants: jobs of others are not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.access import Tenants
from core.errors import NotFound
from core.job import Job
from core.ports import Store
from core.reads import JobFilter, Reads
from tests.db.builders import Maker, put, submitted

RED, BLUE = Tenants(frozenset({"red"})), Tenants(frozenset({"blue"}))


async def _put(store: Store, maker: Maker, job_id: str, tenant_id: str) -> Job:
    job = maker.job(job_id)
    spec = replace(job.spec, tenant_id=tenant_id, group="g")
    job = replace(job, spec=spec)
    await put(store, submitted(job))
    return job


class TenantBounds:
    async def test_a_job_of_another_tenant_is_not_there(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """By its name, in the list, and for those who would stop it."""
        mine = await _put(store, maker, "mine", "red")
        await _put(store, maker, "theirs", "blue")
        assert (await reads.job("mine", None, RED)).job.uid == mine.uid
        assert [
            row.job.uid for row in (await reads.jobs(JobFilter(tenants=RED), 9, None)).rows
        ] == [mine.uid]
        for find in (reads.job, store.find_job):
            with pytest.raises(NotFound, match="mine"):
                await find("mine", None, BLUE)

    async def test_of_a_group_the_own_jobs(self, store: Store, reads: Reads, maker: Maker) -> None:
        """A group that holds jobs of two tenants is counted and stopped for each apart."""
        mine = await _put(store, maker, "mine", "red")
        await _put(store, maker, "theirs", "blue")
        owner = await store.find_group("g", None, RED)
        assert [job.uid for job in await store.open_jobs("g", owner, 9, RED)] == [mine.uid]
        assert sum((await reads.group("g", None, RED)).counts.values()) == 1
        assert sum((await reads.group("g", None)).counts.values()) == 2
        with pytest.raises(NotFound, match="g"):
            await store.find_group("g", None, Tenants(frozenset({"green"})))

    async def test_no_tenants_see_nothing(self, store: Store, reads: Reads, maker: Maker) -> None:
        """An empty set is not "all"."""
        await _put(store, maker, "mine", "red")
        assert (await reads.jobs(JobFilter(tenants=Tenants()), 9, None)).rows == ()
        with pytest.raises(NotFound):
            await reads.job("mine", None, Tenants())
