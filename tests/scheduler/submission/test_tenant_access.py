"""The door asks who a tenant is before it lets a job in, also right after it has opened."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from core.access import EVERY_TENANT, Tenants, only_tenant
from core.errors import BadInput, StoreDown
from core.job_fields import JobSpec
from core.tenants import Holding, Tenant, TenantRow, Usage
from scheduler.submission.tenant_access import FRESH_S, TenantAccess
from tests.builders import at, cluster, live


class Clock:
    seconds = 100.0

    def now(self) -> datetime:
        return at(self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class Slow:
    """A store that answers when it is told to."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.down = False
        self.asked = 0
        self.cap = 500
        self.named = "team"
        self.gone = False

    async def tenants(self) -> Sequence[TenantRow]:
        self.asked += 1
        await self.answer.wait()
        if self.down:
            raise StoreDown("away")
        tenant = Tenant(self.named, priority_max=self.cap, deleted=self.gone)
        return [TenantRow(tenant, Usage())]

    async def holdings(self, tenant_id: str | None = None) -> Mapping[str, Holding]:
        return {}

    async def queued(self, cluster: str, tier: int, tenant_id: str, most: int) -> int:
        return 0


def spec(tenant: str = "team", priority: int = 501) -> JobSpec:
    return JobSpec("job", "0", tenant_id=tenant, priority=priority)


async def test_no_job_passes_while_the_tenants_are_read_for_the_first_time() -> None:
    """Two that come at once to a door that has just opened: both wait, both meet the cap."""
    store = Slow()
    door = TenantAccess(store, live(), Clock())
    coming = [asyncio.create_task(door.check(spec(), cluster())) for _ in range(2)]
    await asyncio.sleep(0)  # each of them runs until it has to wait
    assert store.asked == 2
    store.answer.set()
    for refused in await asyncio.gather(*coming, return_exceptions=True):
        assert isinstance(refused, BadInput)
        assert "at most 500" in str(refused)


async def test_a_stack_whose_jobs_have_one_user_takes_one_tenant() -> None:
    """The refusal says why, and what to do."""
    store = Slow()
    store.answer.set()
    door = TenantAccess(store, live(single_tenant=True), Clock())
    assert (await door.terms("default", EVERY_TENANT)).tenant_id == "default"
    with pytest.raises(BadInput, match="one Unix user"):
        await door.terms("vision", EVERY_TENANT)


async def test_strict_door_does_not_refuse_whom_it_has_not_asked_about() -> None:
    """A tenant that was set up is known to the second comer, too."""
    store = Slow()
    door = TenantAccess(store, live(create_tenants=False), Clock())
    coming = [asyncio.create_task(door.terms("team", EVERY_TENANT)) for _ in range(2)]
    await asyncio.sleep(0)  # each of them runs until it has to wait
    assert store.asked == 2
    store.answer.set()
    assert not any(terms.new for terms in await asyncio.gather(*coming))


async def test_a_tenant_that_was_set_up_a_moment_ago_may_submit() -> None:
    """What is known is a second old at most; before somebody is refused the store is asked."""
    store = Slow()
    store.answer.set()
    door = TenantAccess(store, live(create_tenants=False), Clock())
    await door.terms("team", EVERY_TENANT)
    store.named = "later"
    assert not (await door.terms("later", EVERY_TENANT)).new
    with pytest.raises(BadInput, match="nearest: later"):
        await door.terms("latr", EVERY_TENANT)


@pytest.mark.parametrize("visible", [only_tenant("latr"), Tenants()])
async def test_no_name_is_told_of_a_tenant_that_the_caller_may_not_see(visible: Tenants) -> None:
    """The tenant of a grant that was never set up, or was deleted."""
    store = Slow()
    store.answer.set()
    store.named = "later"
    door = TenantAccess(store, live(create_tenants=False), Clock())
    with pytest.raises(BadInput) as refused:
        await door.terms("latr", visible)
    assert "later" not in str(refused.value)


async def test_many_that_name_a_tenant_that_there_is_not_share_a_reading() -> None:
    """A reading that began before they came may be too old for them; the next one serves all."""
    store = Slow()
    store.answer.set()
    door = TenantAccess(store, live(create_tenants=False), Clock())
    await door.terms("team", EVERY_TENANT)
    store.answer.clear()
    coming = [asyncio.create_task(door.terms("ghost", EVERY_TENANT)) for _ in range(50)]
    await asyncio.sleep(0)  # each of them runs until it has to wait
    store.answer.set()
    refused = await asyncio.gather(*coming, return_exceptions=True)
    assert all(isinstance(error, BadInput) for error in refused)
    assert store.asked == 3, "the first one's, and one that began after the others came"


async def test_first_reading_that_fails_opens_no_door() -> None:
    """Without a database nothing is known: the next one asks again, and is refused."""
    store = Slow()
    store.answer.set()
    store.down = True
    door = TenantAccess(store, live(), Clock())
    with pytest.raises(StoreDown):
        await door.check(spec(), cluster())
    store.down = False
    with pytest.raises(BadInput):
        await door.check(spec(), cluster())


async def test_while_one_reads_again_others_go_on_with_what_is_known() -> None:
    """Nobody waits for news of a second."""
    store, clock = Slow(), Clock()
    store.answer.set()
    door = TenantAccess(store, live(), clock)
    await door.check(spec(priority=1), cluster())
    clock.seconds += 2 * FRESH_S
    store.answer.clear()
    reading = asyncio.create_task(door.check(spec(priority=1), cluster()))
    await asyncio.sleep(0)  # each of them runs until it has to wait
    assert store.asked == 2
    with pytest.raises(BadInput):
        await door.check(spec(), cluster())
    assert store.asked == 2, "the other one did not ask"
    store.answer.set()
    await reading


async def test_a_deleted_tenant_is_unknown() -> None:
    """Its row is there, and still nobody may submit for it where tenants must be set up."""
    store = Slow()
    store.answer.set()
    store.gone = True
    door = TenantAccess(store, live(create_tenants=False), Clock())
    with pytest.raises(BadInput, match="tenant_id"):
        await door.terms("team", EVERY_TENANT)


async def test_a_secret_that_there_is_not_is_refused() -> None:
    """Each one is named, with what to do. What Secret Manager has nobody can know here."""
    store = Slow()
    store.answer.set()

    async def names(tenant_id: str) -> Sequence[str]:
        return {"team": ["known"]}.get(tenant_id, ())

    managed = {"C": "sm://project-1/c"}
    settings = live(secret_projects={"team": ("project-1",)})
    door = TenantAccess(store, settings, Clock(), names)
    of = replace(spec(priority=1), secrets={"A": "zen://known", "B": "zen://other", **managed})
    with pytest.raises(BadInput) as refused:
        await door.check(of, cluster())
    (fault,) = refused.value.faults
    assert (fault.field, fault.got) == ("secrets.B", '"zen://other"')
    assert "tenant team has no secret zen://other; set it with" in str(refused.value)
    await door.check(replace(of, secrets={"A": "zen://known", **managed}), cluster())
    unasked = TenantAccess(store, settings, Clock())
    await unasked.check(of, cluster())
