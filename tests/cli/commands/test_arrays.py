"""show, logs and stop of an array: its id is as good as a job's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cli.commands import arrays
from cli.commands.groups import whoami

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
Job = dict[str, Any]
GROUP = {
    "group": "sweep",
    "user_id": "ada",
    "total": 12,
    "done": True,
    "succeeded": False,
    "counts": {"SUCCEEDED": 11, "FAILED": 1},
    "message": "12 jobs: 11 SUCCEEDED, 1 FAILED",
}


@pytest.fixture(autouse=True)
def sweep(api: Api, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of twelve jobs that have ended; the third one printed two lines in two attempts."""
    monkeypatch.setattr(arrays, "PAUSE_S", 0.0)
    monkeypatch.setattr(arrays, "FINAL_WAIT_S", 0.0)
    ended = [
        {
            **job,
            "job_id": f"sweep-{index}",
            "user_id": "ada",
            "status": "SUCCEEDED",
            "attempt": 2 if index == 3 else 1,
        }
        for index in (10, 2, 12, 1, 11, 3, 4, 5, 6, 7, 8, 9)
    ]

    def page(request: httpx.Request) -> httpx.Response:
        params = request.url.params
        assert (params["group"], params["user_id"]) == ("sweep", "ada")
        size = int(params.get("limit") or params["page_size"])
        start = int(params.get("offset") or 0)
        rows = ended[start : start + size]
        body = {"jobs": rows, "total": len(ended), "next_page_token": None}
        return httpx.Response(200, json=body)

    def log(index: int) -> Callable[[httpx.Request], httpx.Response]:
        def answer(request: httpx.Request) -> httpx.Response:
            attempt = int(request.url.params.get("attempt") or (2 if index == 3 else 1))
            text = f"attempt {attempt}\nof {index}".encode()
            offset = int(request.url.params["offset"])
            heads = {"Zen-Attempt": str(attempt), "Zen-Offset": str(offset)}
            heads |= {"Zen-Next-Offset": str(len(text)), "Zen-Done": "true", "Zen-Final": "true"}
            return httpx.Response(200, content=text[offset:], headers=heads)

        return answer

    api.on("GET", "/api/v1/groups/sweep", GROUP)
    api.on("GET", "/api/v1/jobs", page)
    for index in range(1, 13):
        api.on("GET", f"/api/v1/jobs/sweep-{index}/logs", log(index))


def test_show_counts_and_lists_page_by_page(zen: Zen) -> None:
    """The counts of all jobs, one page of them, and how to see the next."""
    ended = zen("show", "sweep", "--limit", "5")
    assert ended.code == 0
    assert "12 jobs: 11 SUCCEEDED, 1 FAILED" in ended.out
    ids = [line.split()[0] for line in ended.out.splitlines() if line.startswith("sweep-")]
    assert ids == ["sweep-1", "sweep-2", "sweep-10", "sweep-11", "sweep-12"]
    assert "1 to 5 of 12 shown; the next: ./zen show sweep --offset 5" in ended.err
    last = zen("show", "sweep", "--offset", "10", "--json").json
    assert (last["total"], len(last["jobs"])) == (12, 2)


def test_logs_name_the_job_of_each_line(zen: Zen) -> None:
    """The logs of all jobs in the order of their indexes, each line behind its job's id."""
    lines = zen("logs", "sweep").out.splitlines()
    assert len(lines) == 24
    assert lines[0] == "sweep-1 | attempt 1"
    assert lines[-1] == "sweep-12 | of 12"
    assert zen("logs", "sweep", "--tail", "1").out.splitlines()[2] == "sweep-3 | of 3"
    told = zen("logs", "sweep", "--json").json["logs"]
    assert told[0] == {"job_id": "sweep-1", "attempt": 1, "text": "attempt 1\nof 1"}


def test_following_ends_with_the_last_job(zen: Zen) -> None:
    """Every attempt's lines, once each, then the counts."""
    ended = zen("logs", "-f", "sweep")
    lines = ended.out.splitlines()
    assert ended.code == 0
    assert len(lines) == 26
    mine = [line for line in lines if line.startswith("sweep-3 ")]
    assert mine[::2] == ["sweep-3 | attempt 1", "sweep-3 | attempt 2"]
    assert ended.err == "zen: sweep: 12 jobs: 11 SUCCEEDED, 1 FAILED\n"
    streamed = zen("logs", "-f", "sweep", "--json").out.splitlines()
    assert json.loads(streamed[-1])["group"] == "sweep"
    assert zen("logs", "-f", "--tail", "1", "sweep").code == 2


def test_stop_stops_all_of_them(zen: Zen, api: Api) -> None:
    """One request for the whole array, with who and why."""
    answer = {**GROUP, "cancelled": 2, "stopping": 1, "message": "2 cancelled, 1 stopping"}
    api.on("POST", "/api/v1/groups/sweep/stop", lambda _: httpx.Response(202, json=answer))
    ended = zen("stop", "sweep", "--reason", "wrong data")
    assert (ended.code, ended.out) == (0, "sweep: 2 cancelled, 1 stopping\n")
    assert api.body() == {"by": whoami(), "reason": "wrong data"}
