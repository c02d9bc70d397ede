"""Prices and consent on every door: native REST and the routes of older clients."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from core.tenants import Consent, Tenant
from tests.scheduler.api.fakes import CLUSTERS, House

NATIVE = "/api/v1/jobs"
BODY = {"command": ["true"], "gpu_type": "a100-40gb", "gpu_count": 2}
V1 = {"job_id": "ftj", "workflow": "train", "gpu_type": "a100-40gb", "num_gpus": 2}
RESOURCES = {"gpu_type": "a100-40gb", "gpu_count": 2, "cpu_cores": 1, "memory_mb": 100}
DEFINITION = {"definition": {"name": "t", "command": ["true"], "resources": RESOURCES}}
ROUTES = [
    (NATIVE, BODY, 201),
    ("/jobs/gcp", V1, 200),
    ("/jobs", V1, 200),
    ("/jobs", DEFINITION, 201),
]


def agree(house: House, consent: Consent) -> None:
    """The operator changes the tenant; the door reads it after a second."""
    house.put_tenant(Tenant("default", consent=consent))
    house.clock.at += timedelta(seconds=60)


@pytest.mark.parametrize(("path", "body", "accepted"), ROUTES)
async def test_a_dear_job_is_refused_until_its_tenant_buys_it(
    path: str, body: dict[str, object], accepted: int
) -> None:
    """409 with the price, and nothing stored. Routes that cannot confirm follow their tenant's own
    limit."""
    house = House(door={"confirm_above_usd_per_hour": 5.0})
    async with house.client() as client:
        refused = await client.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "price_not_confirmed")
        assert refused.json()["total_usd_per_hour"] == 8.4
        assert house.jobs == {}
        agree(house, Consent(confirm_above_usd_per_hour=20.0))
        assert (await client.post(path, json=body)).status_code == accepted


async def test_native_rest_confirms_the_price_that_it_was_told() -> None:
    """The price of the 409 as `confirmed_usd_per_hour`, or the job's own limit."""
    house = House(door={"confirm_above_usd_per_hour": 5.0})
    async with house.client() as client:
        usd = (await client.post(NATIVE, json=BODY)).json()["total_usd_per_hour"]
        less = await client.post(f"{NATIVE}?confirmed_usd_per_hour={usd - 1}", json=BODY)
        told = await client.post(f"{NATIVE}?confirmed_usd_per_hour={usd}", json=BODY)
        own = await client.post(NATIVE, json={**BODY, "max_usd_per_hour": usd})
    assert [less.status_code, told.status_code, own.status_code] == [409, 201, 201]


@pytest.mark.parametrize(("path", "body", "accepted"), ROUTES)
async def test_spot_is_taken_on_no_route_without_consent(
    path: str, body: dict[str, object], accepted: int
) -> None:
    """A route that cannot say `spot` follows its tenant's default."""
    house = House(door={})
    house.clusters = tuple(replace(c, spot=c.name == "2xa100-40gb") for c in CLUSTERS)
    async with house.client() as client:
        refused = await client.post(path, json=body)
        assert refused.status_code == 422
        assert "spot" in refused.json()["detail"]
        if path != NATIVE:
            assert "zen tenants set default --spot" in refused.json()["detail"]
        agree(house, Consent(spot=True))
        assert (await client.post(path, json=body)).status_code == accepted


@pytest.mark.parametrize(("path", "body", "accepted"), ROUTES)
async def test_a_tenant_that_agrees_to_spot_does_without_where_there_is_none(
    path: str, body: dict[str, object], accepted: int
) -> None:
    """Its default is consent, not a demand; a job that says `spot` itself is refused."""
    house = House(door={})
    agree(house, Consent(spot=True))
    async with house.client() as client:
        assert (await client.post(path, json=body)).status_code == accepted
        own = await client.post(NATIVE, json={**BODY, "spot": True})
    assert (own.status_code, own.json()["faults"][0]["field"]) == (422, "spot")
    (job,) = house.jobs.values()
    assert (job.cluster, job.spec.spot) == ("2xa100-40gb", True)


async def test_an_unknown_tenant_is_refused_by_name() -> None:
    """With the nearest ones and the way to set it up; where submissions may bring tenants, a header
    says that it is new."""
    house = House(door={"create_tenants": False})
    house.put_tenant(Tenant("vision"))
    body = {**BODY, "tenant_id": "visoin"}
    async with house.client() as client:
        refused = await client.post(NATIVE, json=body)
    (fault,) = refused.json()["faults"]
    assert (refused.status_code, fault["field"]) == (422, "tenant_id")
    assert "nearest: vision" in fault["expected"]
    assert "zen tenants set visoin" in fault["expected"]
    house.door = {}
    async with house.client() as client:
        taken = await client.post(NATIVE, json=body)
    assert (taken.status_code, taken.headers["Zen-New-Tenant"]) == (201, "true")


async def test_a_spot_job_with_a_deadline_is_told_what_it_may_cost_in_the_end() -> None:
    """As the deadline comes near it moves to standard VMs, which are dearer."""
    house = House()
    house.clusters = (*CLUSTERS, replace(CLUSTERS[0], name="1xl4-spot", spot=True))
    body = {"command": ["true"], "gpu_type": "l4", "spot": True, "deadline": "2999-01-01T00:00:00Z"}
    async with house.client() as client:
        message = (await client.post(NATIVE, json=body)).json()["message"]
    words = "1xl4 (1 × L4 per VM, $0.70 to $1.70/h by region)"
    assert message.endswith(f"; as its deadline comes near it may move to {words}")
