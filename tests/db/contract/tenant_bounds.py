"""Questions that are bound to tenants: jobs of others are not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.access import EVERY_TENANT, Tenants
from core.errors import Ambiguous, NotFound
from core.groups import After, Wait
from core.job import E, Job, S, group_of
from core.ports import Store
from core.reads import JobFilter, Reads, TenantCounts
from core.reasons import RefusalKind
from tests.db.builders import Maker, at, put, put_placed, put_ready_vm, step, submitted
from tests.db.contract.holds import behind, freed, succeeds

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
        """A user's groups of one name in two tenants are two groups."""
        mine = await _put(store, maker, "mine", "red")
        await _put(store, maker, "theirs", "blue")
        found = await store.find_group("g", None, RED)
        assert found == ("red", "0", "g")
        assert [job.uid for job in await store.open_jobs(found, 9)] == [mine.uid]
        assert sum((await reads.group("g", None, RED)).counts.values()) == 1
        with pytest.raises(Ambiguous, match="tenant_id"):
            await reads.group("g", None)
        with pytest.raises(NotFound, match="g"):
            await store.find_group("g", None, Tenants(frozenset({"green"})))

    async def test_no_tenants_see_nothing(self, store: Store, reads: Reads, maker: Maker) -> None:
        """An empty set is not "all"."""
        await _put(store, maker, "mine", "red")
        assert (await reads.jobs(JobFilter(tenants=Tenants()), 9, None)).rows == ()
        with pytest.raises(NotFound):
            await reads.job("mine", None, Tenants())

    async def test_jobs_of_others_are_not_counted(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """By cluster and status, by region, by VM; nor how long they wait."""
        vm = await put_ready_vm(store, maker)
        mine = await _put(store, maker, "mine", "red")
        theirs = await _put(store, maker, "theirs", "blue")
        placed, _ = await put_placed(store, maker, mine, vm, at(1))
        claimed = step(placed, E.CLAIMED, at(2))
        await put(store, claimed, step(claimed.after, E.STARTED, at(3)))
        red, blue = await reads.tenant_counts(RED), await reads.tenant_counts(BLUE)
        assert red == TenantCounts({("1xl4", S.RUNNING): 1}, {("1xl4", vm.region): 1}, None)
        assert blue == TenantCounts({("1xl4", S.QUEUED): 1}, {}, theirs.queued_since)
        assert await reads.tenant_counts(Tenants()) == TenantCounts({}, {}, None)
        both = await reads.tenant_counts(EVERY_TENANT)
        assert both == TenantCounts({**red.jobs, **blue.jobs}, red.running, theirs.queued_since)
        for tenants, count in ((RED, {vm.uid: 1}), (BLUE, {}), (EVERY_TENANT, {vm.uid: 1})):
            assert await reads.counts_on([vm.uid], tenants) == count

    async def test_two_tenants_may_have_the_same_id(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Nobody takes an id from another tenant; the own tenant's second one is refused."""
        red, blue = [await _put(store, maker, "train", name) for name in ("red", "blue")]
        assert await store.find_job("train", "0", RED) == red
        assert (await reads.job("train", None, BLUE)).job == blue
        for find in (reads.job, store.find_job):
            with pytest.raises(Ambiguous, match="tenant_id"):
                await find("train", "0")
        for job in (red, blue):
            assert await store.content_hash(job.key) == (job.uid, submitted(job).content_hash)
        assert await store.content_hash(red.key._replace(tenant_id="green")) is None
        again = replace(maker.job("train"), spec=red.spec)
        committed = await store.commit([(submitted(again),)], None)
        assert committed.refusals[0].kind is RefusalKind.EXISTS

    async def test_jobs_wait_for_the_group_of_their_tenant(
        self, store: Store, maker: Maker
    ) -> None:
        """Another tenant's group of that name neither holds them up nor tells them how it ended."""
        red, blue = [await _put(store, maker, name, name) for name in ("red", "blue")]
        waiting = maker.job("waiting", tenant_id="red")
        group = group_of(red.spec)
        assert group is not None
        await put(store, behind(waiting, None, Wait(None, group, After("g"))))
        await put(store, step(blue, E.STOP_ASKED, at(1)))
        assert await freed(store) == {}
        await succeeds(store, red)
        assert await freed(store) == {"waiting": None}
