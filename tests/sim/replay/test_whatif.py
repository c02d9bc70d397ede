"""What-if questions on files and on the history of a stack, and the benchmark's verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.capacity import main as bench
from bench.capacity_verdict import CapacityVerdict
from cli.connection import HttpxConnection
from cli.main import run
from core.errors import BadInput
from sim.replay.history import past_of
from sim.replay.supply import UNBOUNDED
from sim.replay.whatif import Change

SUPPLY = "time_utc,us-east4-a,us-west1-b\n2025-01-01 00:00:00,{0},4\n2025-01-02 00:00:00,{0},4\n"
JOBS = "submit_s,duration_s,num_gpu\n" + "".join(f"{60 * i},1800,1\n" for i in range(6))
PRICES = "region,usd_per_gpu_hour\nus-east4,1\nus-west1,2\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Options that name a small past."""
    texts = {"jobs": JOBS, "supply": SUPPLY.format(1), "prices": PRICES}
    words: list[str] = []
    for name, text in texts.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(text)
        words += [f"--{name}", str(path)]
    return words


def _answers(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert run(["whatif", *words, "--rotations", "1", "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["answers"]
    return found


def test_another_region_is_weighed_against_the_present(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Today: one VM at a time in the east. With the west, nobody waits long, and it costs more."""
    now, then = _answers([*files, "--add-region", "us-west1"], capsys)
    assert (now["words"], then["words"]) == ("as it is", "with us-west1")
    assert then["wait_mean_s"] < now["wait_mean_s"] / 4
    assert then["usd"] > now["usd"]


def test_several_changes_are_shown_alone_and_together(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of two, of six, spot, and both."""
    words = [*files, "--vm-max-now", "2", "--vm-max", "6", "--spot"]
    found = _answers(words, capsys)
    assert [a["words"] for a in found] == ["as it is", "vm_max 6", "spot", "vm_max 6, spot"]
    assert found[1]["wait_mean_s"] < found[0]["wait_mean_s"]
    assert found[0]["vms_most"] == 2


def test_people_get_a_table_and_what_was_assumed(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One row for each configuration; what had to be assumed is on stderr."""
    assert run(["whatif", *files[:4], "--drop-region", "us-east4", "--rotations", "1"]) == 0
    shown = capsys.readouterr()
    assert "as it is" in shown.out
    assert "without us-east4" in shown.out
    assert "every zone costs a dollar" in shown.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--jobs", "nowhere.csv"], "--supply is missing"),
        ([], "--jobs is missing"),
        (["--jobs", "nowhere.csv", "--supply", "nowhere.csv"], "no such file"),
    ],
)
def test_what_is_missing_is_said(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, no traceback."""
    assert run(["whatif", *words]) != 0
    assert expected in capsys.readouterr().err


def test_an_unknown_region_is_refused_with_those_that_exist(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Zones and regions are both understood."""
    assert run(["whatif", *files, "--add-region", "mars"]) == 1
    assert "us-west1-b" in capsys.readouterr().err


def test_made_up_traces_can_be_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people who have none: the files that are written are the files that are read."""
    assert run(["whatif", "--make-traces", str(tmp_path), "--days", "0.1"]) == 0
    capsys.readouterr()
    words = ["--jobs", str(tmp_path / "jobs.csv"), "--supply", str(tmp_path / "supply.csv")]
    found = _answers([*words, "--prices", str(tmp_path / "prices.csv")], capsys)
    assert [a["words"] for a in found] == ["as it is"]


def _job(submitted: str, started: str | None, ended: str | None) -> dict[str, object]:
    days = "2026-01-01T"
    return {
        "submitted_at": f"{days}{submitted}Z",
        "started_at": f"{days}{started}Z" if started else None,
        "ended_at": f"{days}{ended}Z" if ended else None,
        "tenant_id": "t",
    }


CLUSTER = {
    "name": "1xl4",
    "regions": [
        {"region": "us-east4", "usd_per_hour": 0.7},
        {"region": "us-west1", "usd_per_hour": 0.8},
    ],
}


def test_history_becomes_a_trace() -> None:
    """Jobs that ran, in order; a region that refused half of the time is down half of the time;
    of one that was never asked nothing is known, and that is said."""
    past = past_of(
        CLUSTER,
        [
            _job("10:05:00", "10:06:00", "10:16:00"),
            _job("10:00:00", "10:01:00", "10:02:00"),
            _job("10:07:00", None, None),
        ],
        [{"region": "us-east4", "zone": "", "hits": 3.0, "misses": 3.0}],
        seed=1,
    )
    assert [(j.submit_s, j.duration_s) for j in past.work.jobs] == [(0, 60), (300, 600)]
    east, west = past.supply.zones
    assert 0.3 < east.mean / UNBOUNDED < 0.7
    assert west.counts == (UNBOUNDED,)
    assert any("us-west1" in words for words in past.assumed)
    with pytest.raises(BadInput, match="at least one that has run"):
        past_of(CLUSTER, [], [], seed=1)


def _api(request: httpx.Request) -> httpx.Response:
    """Two pages of jobs, one cluster, and what is known of its regions."""
    where = request.url.path.removeprefix("/api/v1")
    if where == "/clusters":
        told = {**CLUSTER, "vm_max": 1, "spot": False}
        return httpx.Response(200, json={"clusters": [told]})
    if where == "/capacity":
        return httpx.Response(200, json={"places": []})
    assert where == "/jobs"
    assert request.url.params["cluster"] == "1xl4"
    second = request.url.params.get("page_token") == "more"
    minutes = range(4, 8) if second else range(4)
    jobs = [_job(f"10:0{m}:00", f"10:1{m}:00", f"10:2{m}:00") for m in minutes]
    return httpx.Response(200, json={"jobs": jobs, "next_page_token": None if second else "more"})


def test_the_history_of_a_stack_is_asked_over_its_api(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All pages of a cluster's jobs under its own limit, against another limit."""
    transport = httpx.MockTransport(_api)
    monkeypatch.setattr(
        "cli.client.connect",
        lambda at: HttpxConnection(httpx.Client(base_url=at, transport=transport)),
    )
    words = ["--cluster", "1xl4", "--api", "http://zen.test", "--vm-max", "8"]
    now, then = _answers(words, capsys)
    assert (now["vms_most"], then["words"]) == (1, "vm_max 8")
    assert then["wait_mean_s"] < now["wait_mean_s"] / 2
    assert run(["whatif", "--cluster", "9xl4", "--api", "http://zen.test"]) == 1
    assert "no cluster 9xl4: there are 1xl4" in capsys.readouterr().err


def test_a_change_is_told_in_words() -> None:
    """Nothing asked is the present."""
    assert Change().words == "as it is"
    assert Change().one_by_one() == []


@pytest.mark.parametrize(
    ("value", "words"), [(0.9, "stretch"), (1.0, "must"), (1.1, "MISSED by 4.8 %")]
)
def test_verdicts_publish_losses_too(value: float, words: str) -> None:
    """Stretch, must, or by how much it was missed."""
    assert CapacityVerdict("s", "t", value, must=1.05, stretch=0.95).words == words


def test_the_benchmark_prints_and_draws_the_same_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made-up traces, one rotation: the same bytes for the same seed, and every target judged."""
    words = ["--days", "0.04", "--rotations", "1", "--boots", "90", "--dear", "z", "--json"]
    shown: list[str] = []
    for name in ("one", "two"):
        assert bench([*words, "--workers", "1", "--plots", str(tmp_path / name)]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    drawn = sorted((tmp_path / "one").iterdir())
    assert {path.name for path in drawn} == {"capacity-waste.svg", "capacity-wait-dollars.svg"}
    for path in drawn:
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    report = json.loads(shown[0])
    assert {t["target"] for t in report["targets"]} >= {"wait ÷ scale-every", "$/h ÷ oracle"}
    assert report["dear"]
