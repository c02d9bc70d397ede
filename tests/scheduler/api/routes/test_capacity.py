"""GET /capacity: what regions have delivered and refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from core.changes import PutRegionBlock, PutSupplyHistory, RaiseAlert
from core.names import Names
from core.region_blocks import BlockKind, RegionBlock
from core.supply import DurationEstimate, SupplyHistory, SupplyOutcome
from tests.scheduler.api.fakes import NOW, House

KINDS = (BlockKind.STOCKOUT, BlockKind.QUOTA)


async def test_capacity_shows_what_is_known_and_what_blocks() -> None:
    """Success probability, last outcome, usual times and price by region; the block with its kind
    and end."""
    house = House()
    known = SupplyHistory(
        region="us-central1",
        zone="",
        machine_type="machine-1xl4",
        spot=False,
        updated_at=NOW,
        hits=3.0,
        last=SupplyOutcome.HIT,
        last_at=NOW - timedelta(hours=1),
        delivery=DurationEstimate(3.0, 3.8286, 0.0),
    )
    house.write(PutSupplyHistory(known))
    until = NOW + timedelta(seconds=300)
    place = ("europe-west4", "", "machine-1xl4", False)
    house.write(PutRegionBlock(RegionBlock(*place, KINDS[1], NOW, NOW, until, 1, "no quota")))
    async with house.client() as client:
        answer = await client.get("/api/v1/capacity", params={"cluster": "1xl4"})
    central, west = answer.json()["places"]
    # mean (3 + 1.5) / 5, and half way from there to the hit of an hour ago
    assert central["belief"] == pytest.approx(0.95)
    assert (central["last_outcome"], central["usual_delivery_s"]) == ("hit", 46.0)
    assert (central["usual_boot_s"], central["preemptions_per_hour"]) == (None, None)
    assert (west["belief"], west["last_outcome"], west["usd_per_hour"]) == (0.75, None, 1.7)
    assert (west["blocked"]["kind"], west["blocked"]["message"]) == ("quota", "no quota")


async def test_capacity_by_zone() -> None:
    """Each region is followed by its zones."""
    async with House().client() as client:
        answer = await client.get("/api/v1/capacity", params={"cluster": "1xl4", "zones": "true"})
    zones = [(place["region"], place["zone"]) for place in answer.json()["places"]]
    assert zones[:2] == [("us-central1", ""), ("us-central1", "us-central1-a")]


async def test_capacity_shows_open_alerts_between_two_blocks() -> None:
    """A quota that a human must raise is told until it is mended, also while nothing is blocked;
    an alert about another group is not."""
    house = House()
    group = Names().mig("1xl4", "europe-west4")
    mine = RaiseAlert("cloud_quota", group, "warning", "no quota", NOW)
    house.write(mine, replace(mine, subject="another-group"))
    async with house.client() as client:
        answer = await client.get("/api/v1/capacity", params={"cluster": "1xl4", "zones": "true"})
    told = {(p["region"], p["zone"]): p["alerts"] for p in answer.json()["places"]}
    (alert,) = told.pop(("europe-west4", ""))
    assert (alert["kind"], alert["message"]) == ("cloud_quota", "no quota")
    assert not any(told.values())
