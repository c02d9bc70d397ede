"""zen cost: tables that add up, and what is below them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]


def amount(useful: float, **wasted: float) -> dict[str, Any]:
    names = ("boot", "idle", "hedge", "preempted", "lost")
    kinds = {"useful": useful, **dict.fromkeys(names, 0.0), **wasted}
    everything = sum(kinds.values())
    return {
        "usd": everything,
        "useful_usd": useful,
        "wasted_usd": everything - useful,
        "waste_share": (everything - useful) / everything if everything else 0.0,
        "kinds": kinds,
        "vm_hours": everything / 2,
        "gpu_hours": everything,
    }


def answer(by: str, **rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "now": "2026-01-31T12:00:00.000Z",
        "by": by,
        "since": "2026-01-24",
        "until": "2026-01-31",
        "rows": [{"key": key.strip("_"), "amount": row} for key, row in rows.items()],
        "others": None,
        "total": amount(6.0, idle=2.0),
        "decimals": 2,
        "burn_usd_per_hour": 4.0,
        "today_usd": 8.0,
        "forecast_usd": 56.0,
        "budgets": [
            {
                "tenant": "acme",
                "day_usd": 6.0,
                "usd_per_day": 5.0,
                "month_usd": 6.0,
                "usd_per_month": None,
                "held": True,
            }
        ],
    }


def test_table_by_tenant(zen: Zen, api: Api) -> None:
    """A row each, what is nobody's by that word, a total, and what burns now."""
    api.on("GET", "/api/v1/cost", answer("tenant", acme=amount(6.0), _=amount(0.0, idle=2.0)))
    ended = zen("cost", "--by", "tenant", "--since", "30d", "--cluster", "1xl4")
    assert ended.code == 0
    query = api.query()
    assert (query["by"], query["since"], query["cluster"]) == ("tenant", "30d", "1xl4")
    rows = {line.split("  ")[0]: line.split() for line in ended.out.splitlines()}
    assert rows["acme"][1:3] == ["$6.00", "$6.00"]
    assert rows["(no tenant)"][2:] == [
        "$2.00",
        "$0.00",
        "-",
        "$2.00",
        *["-"] * 3,
        "100.0%",
        *["1.00", "2.00"],
    ]
    assert rows["TOTAL"][1] == "$8.00"
    assert "wasted:    $2.00 of $8.00 (25.0%), 2026-01-24 to 2026-01-31 (UTC)" in ended.out
    assert "burn rate: $4.00/h now" in ended.out
    assert "$8.00 so far, $56.00 by 24:00 UTC" in ended.out
    assert "tenant acme: $6.00 of $5 today; new work is held" in ended.out


def test_table_by_kind(zen: Zen, api: Api) -> None:
    """Each kind with its share of the whole."""
    api.on("GET", "/api/v1/cost", answer("kind", useful=amount(6.0), idle=amount(0.0, idle=2.0)))
    ended = zen("cost")
    assert ["idle", "$2.00", "25.0%", "1.000", "2.000"] in [
        line.split() for line in ended.out.splitlines()
    ]


def test_nothing_spent(zen: Zen, api: Api) -> None:
    """Says so instead of an empty table."""
    api.on("GET", "/api/v1/cost", answer("day"))
    assert "nothing was spent from 2026-01-24 to 2026-01-31 (UTC)" in zen("cost", "--by", "day").out


def test_json_is_the_answer(zen: Zen, api: Api) -> None:
    """For scripts."""
    api.on("GET", "/api/v1/cost", answer("kind"))
    assert zen("cost", "--json").json["burn_usd_per_hour"] == 4.0


def test_unknown_group(zen: Zen) -> None:
    """Refused before anything is asked."""
    ended = zen("cost", "--by", "colour")
    assert ended.code == 2
    assert "colour" in ended.err


def test_jobs_are_named_as_commands_take_them(zen: Zen, api: Api) -> None:
    """A key of the report is JOB, or JOB@USER."""
    api.on("GET", "/api/v1/cost", answer("job", **{"a@bob": amount(1.0), "b": amount(2.0)}))
    lines = zen("cost", "--by", "job").out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["a", "b"]
    found = zen("cost", "--by", "job", "--json").json["rows"]
    assert [(row["job_id"], row["user_id"]) for row in found] == [("a", "bob"), ("b", "0")]
