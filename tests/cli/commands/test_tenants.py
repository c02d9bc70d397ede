"""zen tenants: one line each, every limit beside its use, and what is sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx

from core.tenant_settings import LIMITS, SETTINGS
from scheduler.api.examples import example_of
from scheduler.api.routes.tenants import TenantOut

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
EXAMPLE = example_of(TenantOut)
PATH = "/api/v1/tenants"


def test_list(zen: Zen, api: Api) -> None:
    """Used of how much."""
    api.on("GET", PATH, {"tenants": [EXAMPLE], "total": 1})
    ended = zen("tenants", "list")
    assert ended.code == 0
    assert "40 of 64" in ended.out
    assert "Vision" in ended.out
    assert "of $5000" in ended.out


def test_list_reads_all_pages(zen: Zen, api: Api) -> None:
    """As one list."""

    def page(request: httpx.Request) -> httpx.Response:
        later = "after" in request.url.params
        tenant = {**EXAMPLE, "tenant_id": "zoo" if later else "vision"}
        said = {"tenants": [tenant], "total": 2, "next_after": None if later else "vision"}
        return httpx.Response(200, json=said)

    api.on("GET", PATH, page)
    found = json.loads(zen("tenants", "list", "--json").out)
    assert [tenant["tenant_id"] for tenant in found["tenants"]] == ["vision", "zoo"]
    assert found["total"] == 2


def test_show(zen: Zen, api: Api) -> None:
    """Every limit, also of one type; what has none says so."""
    api.on("GET", f"{PATH}/vision", EXAMPLE)
    ended = zen("tenants", "show", "vision")
    assert ended.code == 0
    assert "gpus:h100-80gb:  8 of 16" in ended.out
    assert "jobs:            9, no limit" in ended.out
    assert "at most 1999 (high)" in ended.out


def test_set_sends_only_what_was_named(zen: Zen, api: Api) -> None:
    """`none` takes a limit away."""
    api.on("PATCH", f"{PATH}/vision", EXAMPLE)
    words = ("--weight", "2", "--gpus", "none", "--gpus-of", "h100-80gb=16", "--not-preemptible")
    ended = zen("tenants", "set", "vision", *words)
    assert ended.code == 0
    assert ended.out.startswith("tenant vision changed")
    quota = {"gpus": None, "gpus_by_type": {"h100-80gb": 16}}
    assert api.body() == {"weight": 2.0, "preemptible": False, "quota": quota}


def test_every_setting_has_an_option(zen: Zen, api: Api) -> None:
    """Names, classes and numbers are sent as the API reads them."""
    api.on("PATCH", f"{PATH}/vision", EXAMPLE)
    words = ("--name", "Vision 2", "--priority-max", "high", "--confirm-above", "none")
    assert zen("tenants", "set", "vision", *words, "--jobs", "7").code == 0
    assert api.body() == {
        "name": "Vision 2",
        "priority_max": "high",
        "confirm_above_usd_per_hour": None,
        "quota": {"jobs": 7},
    }
    shown = zen("tenants", "set", "--help").out
    assert all(one.option.flag in shown for one in (*SETTINGS.values(), *LIMITS.values()))


def test_words_that_are_no_numbers_are_named(zen: Zen, api: Api) -> None:
    """The option, what came, what was expected; nothing is sent."""
    for words in (("--gpus", "many"), ("--gpus-of", "h100"), ("--gpus-of", "h100=x"), ()):
        ended = zen("tenants", "set", "vision", *words)
        assert ended.code != 0
        assert "expected" in ended.err
    assert not api.requests


def test_delete(zen: Zen, api: Api) -> None:
    """Says what was deleted; a refusal is told in the API's words."""
    gone = {"tenant_id": "vision", "id": "vision", "message": "tenant vision deleted"}
    api.on("DELETE", f"{PATH}/vision", gone)
    ended = zen("tenants", "delete", "vision")
    assert (ended.code, ended.out.strip()) == (0, "tenant vision deleted")


def test_tenants_alone_is_the_list(zen: Zen, api: Api) -> None:
    """What a noun alone can only mean is done, as for zen jobs and zen alerts."""
    api.on("GET", "/api/v1/tenants", {"tenants": []})
    ended = zen("tenants")
    assert ended.code == 0
    assert ended.out.startswith("TENANT")
    assert "list" in zen("tenants", "--help").out
