"""Arrays and groups on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cli.commands import groups

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
ANSWER = {"job_id": "sweep", "user_id": "0", "message": "3 jobs queued", "jobs": 3}


def counted(message: str, *, done: bool, succeeded: bool) -> dict[str, Any]:
    return {"group": "sweep", "message": message, "done": done, "succeeded": succeeded}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "PAUSE_S", 0.0)


def test_array_after_and_group_become_fields(zen: Zen, api: Api) -> None:
    """Each option lands in its field; the answer says how to look at the array."""
    api.on("POST", "/api/v1/jobs", lambda _: httpx.Response(201, json=ANSWER))
    ended = zen("submit", "--array", "1-3", "--after", "a", "--after", "b:any", "--", "true")
    assert api.body() == {"array": "1-3", "after": ["a", "b:any"], "command": ["true"]}
    assert "./zen show sweep" in ended.out
    assert "./zen stop sweep" in ended.out


@pytest.mark.parametrize("good", [True, False])
def test_waiting_for_an_array_ends_with_its_worst(zen: Zen, api: Api, good: bool) -> None:
    """--wait follows the counts; it fails if any job did, and names it."""
    looks = iter(
        [
            counted("3 jobs: 3 RUNNING", done=False, succeeded=False),
            counted("3 jobs: done", done=True, succeeded=good),
        ]
    )
    bad = {"job_id": "sweep-2", "status": "FAILED", "reason": "exit code 3", "exit_code": 3}
    api.on("POST", "/api/v1/jobs", lambda _: httpx.Response(201, json=ANSWER))
    api.on("GET", "/api/v1/groups/sweep", lambda _: httpx.Response(200, json=next(looks)))
    page = {"jobs": [bad], "total": 1, "next_page_token": None}
    api.on("GET", "/api/v1/jobs", lambda _: httpx.Response(200, json=page))
    ended = zen("submit", "--wait", "--array", "1-3", "--", "true")
    assert ended.code == (0 if good else 1)
    assert "sweep: 3 jobs: 3 RUNNING" in ended.err
    assert ("job sweep-2 failed: exit code 3" in ended.err) is not good


def test_a_group_is_stopped_as_one(zen: Zen, api: Api) -> None:
    """One request for the whole group; jobs and a group together are refused."""
    answer = {"group": "sweep", "message": "2 cancelled, 1 stopping"}
    api.on("POST", "/api/v1/groups/sweep/stop", lambda _: httpx.Response(202, json=answer))
    assert zen("stop", "--group", "sweep").out == "sweep: 2 cancelled, 1 stopping\n"
    assert "name jobs, or one group" in zen("stop", "a", "--group", "sweep").err
