"""zen submit --wait: follows a job to its end and ends with its exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cli.output import follow
from tests.cli.commands.submissions import Job, Zen
from tests.cli.conftest import refusal

if TYPE_CHECKING:
    from tests.cli.conftest import Api

pytestmark = pytest.mark.usefixtures("accepts")

# --- waiting ------------------------------------------------------------------------------------


class Run:
    """A job that is queued, runs, maybe again, and ends: one step with each question."""

    def __init__(self, job: Job, attempts: list[list[bytes]], ends: Job) -> None:
        self.job, self.attempts, self.ends = job, attempts, ends
        self.number = 0

    def get(self, _: httpx.Request) -> httpx.Response:
        if self.number == 0:
            self.number = 1
            return self._job(status="PROVISIONING", attempt=0, why="a VM boots")
        return self._job(attempt=self.number)

    def logs(self, request: httpx.Request) -> httpx.Response:
        asked, offset = int(request.url.params["attempt"]), int(request.url.params["offset"])
        whole = b"".join(self.attempts[asked - 1])
        pieces = self.attempts[asked - 1]
        data, at = b"", 0
        for piece in pieces:
            if at == offset:
                data = piece
            at += len(piece)
        done = offset + len(data) == len(whole)
        last = asked == len(self.attempts)
        if done and not last:
            self.number = asked + 1
        if done and last:
            self.job = {**self.job, **self.ends, "attempt": asked}
        heads = {
            "Zen-Attempt": str(asked),
            "Zen-Offset": str(offset),
            "Zen-Next-Offset": str(offset + len(data)),
            "Zen-Done": str(done).lower(),
            "Zen-Final": str(done and last).lower(),
        }
        return httpx.Response(200, content=data, headers=heads)

    def _job(self, **changes: object) -> httpx.Response:
        return httpx.Response(200, json={**self.job, **changes, **self._end()})

    def _end(self) -> Job:
        return self.ends if self.job.get("status") == self.ends["status"] else {}


@pytest.fixture
def runs(api: Api, job: Job, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(follow, "PAUSE_S", 0.001)

    def play(attempts: list[list[bytes]], **ends: Any) -> None:
        run = Run({**job, "job_id": "j-1", "status": "RUNNING"}, attempts, ends)
        api.on("GET", "/api/v1/jobs/j-1", run.get)
        api.on("GET", "/api/v1/jobs/j-1/logs", run.logs)
        api.on("GET", "/api/v1/jobs/j-1/events", timeline)

    return play


def timeline(_: httpx.Request) -> httpx.Response:
    """Of a job that lost its first attempt, and was admitted again before anybody looked."""
    steps = [
        (0, None, "QUEUED", "submitted"),
        (1, "PROVISIONING", "ASSIGNED", "placed"),
        (1, "RUNNING", "QUEUED", "VM vm-1 was lost"),
        (1, "QUEUED", "PROVISIONING", "admitted: 1 VM will be asked for"),
    ]
    events = [{"attempt": a, "from": b, "to": c, "reason": why} for a, b, c, why in steps]
    return httpx.Response(200, json={"events": events, "next_after": None})


def test_wait_prints_the_log_and_ends_like_the_job(zen: Zen, runs: Callable[..., None]) -> None:
    """stdout is the job's output and nothing else; the exit code is the job's own."""
    runs([[b"one\n", b"two\n"]], status="FAILED", exit_code=7, reason="exited with 7")
    ended = zen("submit", "--wait", "true")
    assert ended.out == "one\ntwo\n"
    assert ended.code == 7
    assert "a VM boots" in ended.err
    assert "job j-1 failed (exit code 7): exited with 7" in ended.err


def test_wait_follows_every_attempt(zen: Zen, runs: Callable[..., None]) -> None:
    """A job that is queued again goes on with the log of its next attempt."""
    runs([[b"first\n"], [b"second\n"]], status="SUCCEEDED", exit_code=0, reason="")
    ended = zen("submit", "--wait", "true")
    assert (ended.code, ended.out) == (0, "first\nsecond\n")
    assert "attempt 1 ended (VM vm-1 was lost), waiting" in ended.err


def test_a_retry_is_told_in_the_words_of_its_reason() -> None:
    """Between two attempts people read which one failed, how, and when the next one comes."""
    words = "attempt 1 failed: exit code 1; attempt 2 of 3 in 10 s"
    job = {"status": "QUEUED", "reason": words, "retry_at": "2026-01-01T12:00:10.000Z"}
    assert follow.between_attempts(job, 1, words) == words
    assert follow.between_attempts({**job, "retry_at": None}, 1, "lost") == (
        "attempt 1 ended (lost), waiting"
    )


def test_wait_json_keeps_stdout_for_the_job_object(zen: Zen, runs: Callable[..., None]) -> None:
    """With --json the log goes to stderr and the final job to stdout."""
    runs([[b"words\n"]], status="SUCCEEDED", exit_code=0, reason="")
    ended = zen("submit", "--wait", "--json", "true")
    assert ended.json["status"] == "SUCCEEDED"
    assert "words" in ended.err


def test_wait_interrupted_leaves_the_job(
    zen: Zen, runs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the waiting, says that the job goes on and how to stop it: 130."""
    runs([[b"words\n"]], status="SUCCEEDED", exit_code=0, reason="")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(follow.Follower, "read", interrupt)
    ended = zen("submit", "--wait", "true")
    assert ended.code == 130
    assert "goes on" in ended.err
    assert "zen stop j-1" in ended.err


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ({"status": "SUCCEEDED", "exit_code": 0}, 0),
        ({"status": "FAILED", "exit_code": 3}, 3),
        ({"status": "FAILED", "exit_code": -9}, 137),
        ({"status": "FAILED", "exit_code": 143}, 143),
        ({"status": "FAILED", "exit_code": None}, 1),
        ({"status": "FAILED", "exit_code": 0}, 1),
        ({"status": "CANCELLED", "exit_code": -15}, 1),
    ],
)
def test_exit_codes_are_a_shells(ended: Job, code: int) -> None:
    """The job's own code, 128 + n for signals, 1 for every other way to end badly."""
    assert follow.exit_code(ended) == code


def test_following_rides_out_a_restart_of_the_api(
    zen: Zen, api: Api, runs: Callable[..., None]
) -> None:
    """A scheduler that is away for a moment does not end the waiting."""
    runs([[b"words\n"]], status="SUCCEEDED", exit_code=0, reason="")
    whole = api.routes[("GET", "/api/v1/jobs/j-1/logs")]
    answers = [lambda _: refusal(503, "database_unavailable", "the database is away")]

    def flaky(request: httpx.Request) -> httpx.Response:
        return answers.pop()(request) if answers else whole(request)

    api.on("GET", "/api/v1/jobs/j-1/logs", flaky)
    ended = zen("submit", "--wait", "true")
    assert (ended.code, ended.out) == (0, "words\n")
    assert "the database is away; trying again" in ended.err
