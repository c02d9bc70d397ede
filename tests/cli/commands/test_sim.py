"""zen sim: the faults that it sends are the ones that the pretend cloud understands."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from sim.cloud.faults import KnownNames, parse_fault

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
KNOWN = KnownNames(
    regions=frozenset({"us-central1"}),
    zones=frozenset({"us-central1-a"}),
    machine_types=frozenset({"a2-highgpu-2g"}),
    metrics=frozenset({"NVIDIA_L4_GPUS"}),
    vms=frozenset({"vm-1"}),
)


@pytest.fixture(autouse=True)
def sim(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses what the real one would refuse: it is the same parser."""
    monkeypatch.setenv("ZEN_SIM", "http://127.0.0.1:9")

    def take(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        fault = parse_fault(body, KNOWN)
        if body["kind"] in ("preempt", "crash"):
            return httpx.Response(200, json={"kind": body["kind"], "hit": [body.get("vm", "z")]})
        left = getattr(fault, "for_s", None)
        return httpx.Response(201, json={"id": "f1", **body, "left_s": left, "starts_in_s": 0})

    api.on("POST", "/sim/v1/faults", take)
    api.on("DELETE", "/sim/v1/faults", {"kind": "clear", "hit": ["f1", "f2"]})
    api.on("DELETE", "/sim/v1/faults/f1", {"kind": "clear", "hit": ["f1"]})


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (
            "stockout us-central1-a a2-highgpu-2g --for 10m",
            {
                "kind": "stockout",
                "zone": "us-central1-a",
                "machine_type": "a2-highgpu-2g",
                "for_s": 600.0,
            },
        ),
        (
            "stockout us-central1 --spot --after 5s",
            {
                "kind": "stockout",
                "region": "us-central1",
                "machine_type": "*",
                "spot": True,
                "after_s": 5.0,
            },
        ),
        ("preempt vm-1", {"kind": "preempt", "vm": "vm-1"}),
        ("preempt --zone us-central1-a", {"kind": "preempt", "zone": "us-central1-a"}),
        ("crash vm-1", {"kind": "crash", "vm": "vm-1"}),
        (
            "quota us-central1 NVIDIA_L4_GPUS --limit 2",
            {"kind": "quota", "region": "us-central1", "metric": "NVIDIA_L4_GPUS", "limit": 2.0},
        ),
        (
            "slow-boots us-central1 --factor 10 --by 30s",
            {"kind": "slow-boots", "region": "us-central1", "factor": 10.0, "seconds": 30.0},
        ),
        (
            "api-errors --rate 0.2 --kind 503 --kind 429 --for 1m",
            {
                "kind": "api-errors",
                "rate": 0.2,
                "kinds": ["503", "429"],
                "region": "*",
                "for_s": 60.0,
            },
        ),
        (
            "unsupported us-central1-a a2-highgpu-2g",
            {"kind": "unsupported", "zone": "us-central1-a", "machine_type": "a2-highgpu-2g"},
        ),
        ("address-space us-central1", {"kind": "address-space", "region": "us-central1"}),
        ("permissions us-central1", {"kind": "permissions", "region": "us-central1"}),
        (
            "create-error us-central1 CONDITION_NOT_MET violated",
            {
                "kind": "create-error",
                "region": "us-central1",
                "code": "CONDITION_NOT_MET",
                "message": "violated",
            },
        ),
        (
            "operation-error us-central1 X no --call createInstances --takes 5s",
            {
                "kind": "operation-error",
                "region": "us-central1",
                "call": "createInstances",
                "code": "X",
                "message": "no",
                "takes_s": 5.0,
            },
        ),
        (
            "quota global GPUS_ALL_REGIONS",
            {"kind": "quota", "region": "global", "metric": "GPUS_ALL_REGIONS", "limit": 0},
        ),
    ],
)
def test_commands_set_faults(zen: Zen, api: Api, words: str, body: dict[str, Any]) -> None:
    """Each command sends one fault that the pretend cloud's own parser accepts."""
    ended = zen("sim", *words.split())
    assert ended.code == 0, ended.err
    assert api.body() == body
    assert ended.out
    assert zen("sim", *words.split(), "--json").json["kind"] == body["kind"]


def test_a_set_fault_says_how_to_end_it(zen: Zen) -> None:
    """The id that clears it again is in the answer."""
    ended = zen("sim", "stockout", "us-central1", "--for", "90s")
    assert "for 1m30s" in ended.out
    assert "zen sim clear f1" in ended.out


def test_clear_one_or_all(zen: Zen) -> None:
    """With an id that one, without all."""
    assert zen("sim", "clear", "f1").out == "cleared f1\n"
    assert zen("sim", "clear").out == "cleared f1, f2\n"


def test_refusals_name_what_exists(zen: Zen, api: Api) -> None:
    """The pretend cloud's own words reach the user as one line."""
    text = "fault: zone: expected a known zone (nearest: us-central1-a), got 'us-central1-x'"
    answer = httpx.Response(422, json={"error": text, "problems": []})
    api.on("POST", "/sim/v1/faults", lambda _: answer)
    ended = zen("sim", "stockout", "us-central1-x")
    assert (ended.code, ended.err) == (1, f"zen: {text}\n")


def test_faults_and_state(zen: Zen, api: Api) -> None:
    """What is in force, and what the groups hold."""
    fault = {"id": "f1", "kind": "stockout", "zone": None, "region": "us-central1", "left_s": None}
    member = {
        "name": "vm-1",
        "zone": "us-central1-a",
        "action": "CREATING",
        "vm_id": None,
        "status": None,
        "error": "ZONE_RESOURCE_POOL_EXHAUSTED",
    }
    group = {
        "name": "g",
        "region": "us-central1",
        "zones": [],
        "machine_type": "m",
        "spot": True,
        "target_size": 1,
        "stable": False,
        "members": [member],
    }
    api.on("GET", "/sim/v1/state", {"migs": [group], "vms": [], "faults": [fault]})
    assert "region=us-central1" in zen("sim", "faults").out
    assert "until cleared" in zen("sim", "faults").out
    out = zen("sim", "state").out
    assert "1 groups, target size 1 together, 0 VMs, 1 faults" in out
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in out
    assert zen("sim", "state", "--json").json["migs"] == [group]


def test_without_a_pretend_cloud(zen: Zen, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says how to get one."""
    monkeypatch.delenv("ZEN_SIM")
    ended = zen("sim", "state")
    assert (ended.code, ended.err) == (
        1,
        "zen: no pretend cloud runs here: start it with ./zen up\n",
    )


@pytest.mark.parametrize("words", ["preempt", "preempt a --zone b", "slow-boots us-central1"])
def test_half_said_faults_are_usage_errors(zen: Zen, words: str) -> None:
    """What is missing is said before anything is sent."""
    assert zen("sim", *words.split()).code == 2
