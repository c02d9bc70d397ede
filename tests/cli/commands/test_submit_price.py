"""zen submit: prices that need a confirmation, and the dry run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from tests.cli.commands.submissions import ANSWER, Zen

if TYPE_CHECKING:
    from tests.cli.conftest import Api

pytestmark = pytest.mark.usefixtures("accepts")


def dear(request: httpx.Request) -> httpx.Response:
    """An API that wants its price confirmed."""
    if request.url.params.get("confirmed_usd_per_hour") == "28.0000":
        return httpx.Response(201, json=ANSWER)
    body = {"message": "it costs up to $28.00/h", "code": "price_not_confirmed"}
    return httpx.Response(409, json={**body, "total_usd_per_hour": 28.0})


def test_a_price_that_must_be_confirmed_ends_with_2_where_nobody_can_be_asked(
    zen: Zen, api: Api
) -> None:
    """The price is shown, nothing is submitted; --yes agrees to exactly that price."""
    api.on("POST", "/api/v1/jobs", dear)
    ended = zen("submit", "--", "true")
    assert (ended.code, ended.out) == (2, "")
    assert "$28.00/h" in ended.err
    assert "--yes" in ended.err
    assert len(api.requests) == 1
    assert zen("submit", "--yes", "--", "true").code == 0


@pytest.mark.parametrize(("said", "code"), [(True, 0), (False, 1)])
def test_a_terminal_is_asked(
    zen: Zen, api: Api, monkeypatch: pytest.MonkeyPatch, said: bool, code: int
) -> None:
    """Yes submits at the price that was shown; no submits nothing."""
    api.on("POST", "/api/v1/jobs", dear)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: said)
    assert zen("submit", "--", "true").code == code
    assert len(api.requests) == (2 if said else 1)


CANDIDATE = {
    "cluster": "4xl4",
    "machine_type": "g2-standard-48",
    "gpus_per_vm": 4,
    "spot": False,
    "usd_per_hour": 4.0,
    "usd_per_hour_max": 4.8,
    "vms": 2,
    "total_usd_per_hour": 9.6,
    "regions": 6,
    "regions_open": 5,
    "success_probability": 0.91,
    "eta_s": 96.0,
    "eta_based_on": "a new VM",
    "chosen": False,
    "needs": ["allow_larger"],
    "drained": False,
}


def test_dry_run_shows_a_table_and_what_would_become_of_it(zen: Zen, api: Api) -> None:
    """It ends with 1 if the job would be refused, and asks the API to store nothing."""
    answer = {"cluster": None, "message": "no", "confirm": None, "candidates": [CANDIDATE]}
    api.on("POST", "/api/v1/jobs", lambda _: httpx.Response(200, json=answer))
    ended = zen("submit", "--dry-run", "--gpus", "3", "--", "true")
    assert ended.code == 1
    assert api.query() == {"dry_run": "true"}
    head, row, *rest = ended.out.splitlines()
    assert head.split() == [
        *("CLUSTER", "GPUS", "OPEN", "$/H", "TOTAL", "SPOT", "CHANCE", "ETA", "NOTE")
    ]
    assert row.split() == [
        *("4xl4", "4", "5/6", "4.00-4.80", "9.60", "no", "91%", "1m36s", "with", "--allow-larger")
    ]
    assert rest[-1] == "dry run: nothing was submitted, nothing is bought"
    assert zen("submit", "--dry-run", "--json", "--", "true").json == answer


def test_dry_run_says_what_each_cluster_needs(zen: Zen, api: Api) -> None:
    """A standard VM for a job that insists on spot VMs does not "fit": the job must change."""
    plain = {**CANDIDATE, "cluster": "4xt4", "needs": ["no_spot"]}
    larger = {**CANDIDATE, "needs": ["allow_larger", "no_spot"]}
    answer = {"cluster": None, "message": "no", "confirm": None, "candidates": [plain, larger]}
    api.on("POST", "/api/v1/jobs", lambda _: httpx.Response(200, json=answer))
    first, second = zen("submit", "--dry-run", "--spot", "--", "true").out.splitlines()[1:3]
    assert first.endswith("  without --spot")
    assert second.endswith("  with --allow-larger, without --spot")
