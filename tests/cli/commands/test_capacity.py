"""zen capacity: what regions have delivered and refused, as people and scripts see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]


def place(region: str, **changes: object) -> dict[str, Any]:
    head = {"cluster": "1xl4", "region": region, "zone": "", "spot": True, "usd_per_hour": 0.7}
    seen = {"belief": 0.75, "hits": 0.0, "misses": 0.0, "last_outcome": None, "last_at": None}
    rest = {"usual_delivery_s": None, "usual_boot_s": None, "preemptions_per_hour": 0.1}
    return {**head, **seen, **rest, "blocked": None, **changes}


BLOCK = {"kind": "stockout", "until": "2026-11-16T09:00:00Z", "message": "no capacity"}


def test_capacity_shows_beliefs_and_blocks(zen: Zen, api: Api) -> None:
    """A region that was never asked is left out, unless all are wanted."""
    asked = place(
        "us-east4", belief=0.25, last_outcome="miss", blocked=BLOCK, usual_delivery_s=46.2
    )
    api.on("GET", "/api/v1/capacity", {"places": [asked, place("us-west1")]})
    lines = zen("capacity").out.splitlines()
    assert len(lines) == 2
    for word in ("us-east4", "25%", "miss", "46s", "0.10", "stockout", "no capacity"):
        assert word in lines[1]
    assert "us-west1" in zen("capacity", "--all").out


def test_nothing_is_known_yet(zen: Zen, api: Api) -> None:
    """A new house says so, and how to see its regions."""
    api.on("GET", "/api/v1/capacity", {"places": [place("us-west1")]})
    assert "nothing is known yet" in zen("capacity").out
    assert json.loads(zen("capacity", "--json").out)["places"][0]["region"] == "us-west1"


def test_open_alerts_are_shown(zen: Zen, api: Api) -> None:
    """A region with an open quota alert is listed, though nothing blocks it at the moment."""
    alert = {"kind": "cloud_quota", "since": "2026-11-16T09:00:00Z", "message": "no quota left"}
    places = [place("us-east4", alerts=[alert]), place("us-west1", alerts=[])]
    api.on("GET", "/api/v1/capacity", {"places": places})
    out = zen("capacity").out
    assert "us-west1" not in out
    assert "open alert cloud_quota since 2026-11-16" in out
    assert "no quota left" in out
