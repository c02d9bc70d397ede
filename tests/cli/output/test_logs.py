"""zen logs: whole, tail, follow, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
TEXT = b"one\ntwo\nthr\xc3\xa9e\n"  # the é is cut in two by pieces of four bytes


@pytest.fixture(autouse=True)
def finished(api: Api, job: dict[str, Any]) -> None:
    """A job that has ended, whose log comes four bytes at a time."""

    def logs(request: httpx.Request) -> httpx.Response:
        offset = int(request.url.params["offset"])
        data = TEXT[offset : offset + 4]
        heads = {
            "Zen-Attempt": request.url.params.get("attempt", "2"),
            "Zen-Offset": str(offset),
            "Zen-Next-Offset": str(offset + len(data)),
            "Zen-Done": str(offset + len(data) == len(TEXT)).lower(),
            "Zen-Final": "true",
        }
        return httpx.Response(200, content=data, headers=heads)

    ended = {**job, "status": "SUCCEEDED", "exit_code": 0, "attempt": 2, "reason": ""}
    api.on("GET", "/api/v1/jobs/train-7", ended)
    api.on("GET", "/api/v1/jobs/train-7/logs", logs)


def test_whole_log_comes_as_it_is(zen: Zen) -> None:
    """Bytes are passed on untouched, over all pieces."""
    assert zen("logs", "train-7").out.encode() == TEXT
    assert zen("logs", "--raw", "train-7").out.encode() == TEXT


def test_orders_to_the_terminal_are_left_out(zen: Zen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also orders that are cut in two by the pieces; --raw prints them."""
    hostile = b"a\x1b]0;owned\x07b\x1b[31mred\x1b[2J\x1b[0m\n"
    monkeypatch.setitem(globals(), "TEXT", hostile)
    for words in (("logs",), ("logs", "-f"), ("logs", "--tail", "1")):
        assert zen(*words, "train-7").out == "ab\x1b[31mred\x1b[0m\n"
        assert zen(*words, "--raw", "train-7").out.encode() == hostile


def test_tail_cuts_lines(zen: Zen) -> None:
    """--tail N prints the last N lines."""
    assert zen("logs", "--tail", "2", "train-7").out == "two\nthrée\n"
    assert zen("logs", "--tail", "0", "train-7").out == ""


def test_attempt_is_asked_for(zen: Zen, api: Api) -> None:
    """--attempt reaches the API."""
    zen("logs", "--attempt", "1", "train-7")
    assert api.query(0)["attempt"] == "1"


def test_follow_ends_with_the_job(zen: Zen) -> None:
    """-f prints everything, then how the job ended, on stderr."""
    ended = zen("logs", "-f", "train-7")
    assert (ended.code, ended.out.encode()) == (0, TEXT)
    assert ended.err == "zen: job train-7 succeeded\n"


def test_follow_from_the_tail_repeats_nothing(zen: Zen) -> None:
    """-f --tail prints the last lines once and goes on from there."""
    assert zen("logs", "-f", "--tail", "1", "train-7").out == "thrée\n"


def test_json(zen: Zen) -> None:
    """One object without -f; with -f one line for each piece, the job last."""
    whole = zen("logs", "--json", "train-7").json
    assert whole["text"] == TEXT.decode()
    assert (whole["attempt"], whole["offset"], whole["done"]) == (2, 0, True)
    lines = [json.loads(line) for line in zen("logs", "-f", "--json", "train-7").out.splitlines()]
    assert lines[-1]["status"] == "SUCCEEDED"
    assert "".join(line["text"] for line in lines[:-1]) == TEXT.decode()
    assert [line["offset"] for line in lines[:-1]] == [0, 4, 8, 12]
