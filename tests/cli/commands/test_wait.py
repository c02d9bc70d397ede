"""zen wait: until jobs have ended; the exit code says how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from cli.commands import wait
from tests.cli.commands.submissions import Job, Zen

if TYPE_CHECKING:
    from tests.cli.conftest import Api

SWEEP = {"group": "sweep", "user_id": "0", "message": "2 jobs: 2 SUCCEEDED"}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "PAUSE_S", 0.0)


def ends(api: Api, job: Job, looks: int, **end: object) -> None:
    """The job runs until it was looked at so often."""
    left = [looks]

    def answer(_: httpx.Request) -> httpx.Response:
        left[0] -= 1
        return httpx.Response(200, json={**job, **end} if left[0] <= 0 else job)

    api.on("GET", f"/api/v1/jobs/{job['job_id']}", answer)


def test_exit_code_is_the_jobs(zen: Zen, api: Api, job: Job) -> None:
    """It is looked at until it has ended, and its exit code is the command's."""
    ends(api, job, 3, status="FAILED", exit_code=7, reason="exit code 7")
    ended = zen("wait", "train-7")
    assert ended.code == 7
    assert "job train-7 failed: exit code 7" in ended.err
    assert len(api.requests) == 3


def test_first_bad_end_counts(zen: Zen, api: Api, job: Job) -> None:
    """Of several jobs the first that did not end well says the exit code, whichever came first."""
    ends(api, job, 2, status="SUCCEEDED")
    ends(api, {**job, "job_id": "a"}, 3, status="FAILED", exit_code=3)
    ends(api, {**job, "job_id": "b"}, 1, status="CANCELLED", exit_code=None)
    ended = zen("wait", "train-7", "a", "b", "--json", "--quiet")
    assert ended.code == 3
    assert [one["status"] for one in ended.json["jobs"]] == ["SUCCEEDED", "FAILED", "CANCELLED"]
    assert ended.err == ""


def test_array_ends_with_all_its_jobs(zen: Zen, api: Api) -> None:
    """0 if all of them went well, else 1."""
    api.on("GET", "/api/v1/groups/sweep", {**SWEEP, "done": True, "succeeded": True})
    assert zen("wait", "sweep").code == 0
    api.on("GET", "/api/v1/groups/sweep", {**SWEEP, "done": True, "succeeded": False})
    assert zen("wait", "sweep").code == 1


def test_timeout_is_told(zen: Zen, api: Api, job: Job) -> None:
    """124, as of timeout(1); the job is left alone."""
    ends(api, job, 10**9)
    ended = zen("wait", "train-7", "--timeout", "10ms")
    assert ended.code == 124
    assert "not over after 10ms: train-7; the jobs go on" in ended.err
    assert zen("wait", "train-7", "--timeout", "10").code == 2


@pytest.mark.usefixtures("api")
def test_nothing_of_that_name(zen: Zen) -> None:
    ended = zen("wait", "nosuch")
    assert ended.code == 1
    assert "there is no job, array or group nosuch" in ended.err
