"""zen clusters, vms, alerts, status: the machines as people and scripts see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cli.commands.fleet import clusters_table
from cli.output.durations import moment
from cli.paths import Home, Running
from tests.cli.conftest import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]


def region(name: str, **changes: object) -> dict[str, Any]:
    quiet = {"target": 0, "requested": 0, "booting": 0, "idle": 0, "busy": 0}
    rest = {"draining": 0, "deleting": 0, "blocked": None, "why": "", "observed_at": None}
    head = {"region": name, "zones": [f"{name}-a"], "usd_per_hour": 0.7}
    return {**head, **quiet, **rest, **changes}


def cluster(name: str, *regions: dict[str, Any], queued: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "gpu_type": "l4",
        "gpus": 1,
        "machine_type": "g2-standard-4",
        "spot": False,
        "vm_max": 8,
        "vm_min": 0,
        "worker": "v2",
        "jobs": {"queued": queued, "provisioning": 1, "running": 2},
        "vms": 3,
        "regions": list(regions),
    }


BLOCK = {"kind": "stockout", "until": "2026-11-16T09:00:00Z", "message": "no capacity"}


def test_clusters_show_regions_and_blocks(zen: Zen, api: Api) -> None:
    """Numbers per region, the cluster's own in its first row, and what blocks a region."""
    found = cluster(
        "1xl4",
        region("us-central1", blocked=BLOCK, why="stocked out in all zones"),
        region("us-east4", target=3, requested=1, booting=1, idle=0, busy=2, deleting=1),
    )
    api.on("GET", "/api/v1/clusters", {"clusters": [found]})
    ended = zen("clusters")
    first, second = ended.out.splitlines()[1:3]
    assert first.split()[:4] == ["1xl4", "3/8", "1", "2"]
    assert "stockout" in first
    assert "stocked out in all zones" in first
    assert second.split()[:8] == ["1xl4", "us-east4", "$0.70", "3", "2", "0", "2", "1"]
    assert zen("clusters", "--json").json == {"clusters": [found]}


def test_what_is_being_emptied_says_so(zen: Zen, api: Api) -> None:
    """A cluster that is drained, and a region that was withdrawn, which has no price any more."""
    gone = region("us-west1", busy=1, usd_per_hour=None, why="withdrawn from the cluster")
    found = {**cluster("1xl4", region("us-east4"), gone), "drain": True, "vm_max": 0}
    api.on("GET", "/api/v1/clusters", {"clusters": [found]})
    ended = zen("clusters")
    (row,) = [line for line in ended.out.splitlines() if "us-west1" in line]
    assert "1xl4 (draining)" in ended.out
    assert row.rstrip().endswith("withdrawn from the cluster")


def test_watching_hides_clusters_without_work() -> None:
    """A live table shows what is in use or blocked and counts the rest."""
    quiet = {**cluster("8xv100", region("us-central1")), "jobs": {"queued": 0}}
    busy = cluster("1xl4", region("us-east4", busy=1), region("us-west1"))
    now = moment("2026-11-16T08:59:30Z")
    assert now is not None
    made = clusters_table([quiet, busy], now, busy_only=True)
    assert [row[0].plain for row in made.rows] == ["1xl4"]
    assert made.foot == ["… 1 clusters without work"]


def test_vms_follow_pages(zen: Zen, api: Api) -> None:
    """All pages are read up to the limit, and named as idle, busy or by their state."""

    def vm(name: str, **changes: object) -> dict[str, Any]:
        base = {
            "name": name,
            "cluster": "1xl4",
            "region": "us-east4",
            "zone": "us-east4-a",
            "state": "READY",
            "busy": False,
            "jobs": [],
            "spot": True,
            "usd_per_hour": 0.7,
            "requested_at": "2026-11-16T07:00:00Z",
            "ready_at": None,
            "idle_since": None,
            "last_beat_at": None,
            "gone_at": None,
            "reason": "",
            "instance_id": "1",
            "cost_usd": 1.5,
            "gpus": [],
        }
        return {**base, **changes}

    def answer(request: httpx.Request) -> httpx.Response:
        if "page_token" in request.url.params:
            page = [vm("b", state="DRAINING")]
            return httpx.Response(200, json={"vms": page, "total": 2, "next_page_token": None})
        page = [vm("a", busy=True, jobs=["j-1"])]
        return httpx.Response(200, json={"vms": page, "total": 2, "next_page_token": "t"})

    api.on("GET", "/api/v1/vms", answer)
    lines = zen("vms").out.splitlines()
    assert lines[1].split()[:4] == ["a", "busy", "us-east4-a", "spot"]
    assert "j-1" in lines[1]
    assert lines[2].split()[:2] == ["b", "draining"]
    assert [vm["name"] for vm in zen("vms", "--json").json["vms"]] == ["a", "b"]


def test_alerts(zen: Zen, api: Api) -> None:
    """Open ones by default; --all asks for the past too."""
    alert = {
        "id": 3,
        "kind": "permission",
        "subject": "us-east4",
        "severity": "error",
        "message": "not allowed",
        "raised_at": "2026-11-16T07:00:00Z",
        "count": 4,
        "last_seen_at": "2026-11-16T07:00:00Z",
        "cleared_at": None,
        "action": "Give the role.",
    }
    api.on("GET", "/api/v1/alerts", {"alerts": [alert]})
    out = zen("alerts", "--all").out
    assert "not allowed" in out
    assert out.endswith("permission: Give the role.\n")
    assert api.query() == {"all": "true"}
    assert zen("alerts", "--json").json["alerts"] == [alert]
    api.on("GET", "/api/v1/alerts", {"alerts": []})
    assert zen("alerts").out == "no open alerts\n"


STATUS = {
    "now": "2026-11-16T07:00:00Z",
    "leader": "vm-1",
    "term": 3,
    "leader_until": None,
    "jobs": {"QUEUED": 2, "RUNNING": 1, "FAILED": 0},
    "vms": {"requested": 0, "idle": 1},
    "clusters": 19,
    "oldest_waiting_since": None,
    "outbox": 0,
    "open_alerts": 1,
    "embedded": {"vm_cap": 8, "note": "at most 8 pretend VMs"},
    "version": "0.1.0",
}


def test_status_when_up(zen: Zen, api: Api, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes, leader, jobs, VMs and the limit of this machine; exit code 0."""
    monkeypatch.delenv("ZEN_API")
    api.on("GET", "/api/v1/status", STATUS)
    place = Home(home)
    place.make()
    place.write(Running(1, "http://127.0.0.1:9", "", "", "", "", processes={"bus": 12}))
    ended = zen("status")
    assert ended.code == 0
    for words in ("bus 12", "vm-1 (term 3", "2 queued, 1 running", "1 idle", "at most 8"):
        assert words in ended.out
    assert str(api.requests[0].url).startswith("http://127.0.0.1:9/")
    found = zen("status", "--json").json
    assert found["up"] is True
    assert found["processes"] == {"bus": 12}
    assert found["jobs"] == STATUS["jobs"]


def test_status_when_down(zen: Zen, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3 and what to do."""

    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(api, "handle", refuse)
    api.on("GET", "/api/v1/status", refuse)
    ended = zen("status")
    assert ended.code == 3
    assert "start it with ./zen up" in ended.out
    assert zen("status", "--json").json["up"] is False


@pytest.mark.parametrize("address", [None, "http://127.0.0.1:1"])
def test_status_when_nothing_ever_ran(
    zen: Zen, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """No stack, or nothing at the address: exit code 3, and one JSON object with --json."""
    monkeypatch.delenv("ZEN_API")
    words = ("--api", address) if address else ()
    assert zen("status", *words).code == 3
    ended = zen("status", *words, "--json")
    assert ended.code == 3
    assert ended.json["up"] is False
    assert ended.json["api"] == address
    assert "start it with" in ended.json["message"]


def test_status_when_the_service_cannot_answer(zen: Zen, api: Api) -> None:
    """An API without its database is not up: exit code 3 and its own words."""
    api.on("GET", "/api/v1/status", lambda _: refusal(503, "store_down", "no database"))
    ended = zen("status", "--json")
    assert ended.code == 3
    assert ended.json["message"] == "no database"
