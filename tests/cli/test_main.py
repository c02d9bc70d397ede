"""The command as a whole: help, exit codes, one-line errors, no traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import httpx
import pytest
from typer.main import get_command

from cli import client, main, paths
from cli.output.durations import between, clock_time, moment, seconds, short

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]


def commands() -> list[tuple[str, ...]]:
    """Every command that there is, by its words."""
    found: list[tuple[str, ...]] = []

    def walk(command: object, words: tuple[str, ...]) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            found.append(words)
            return
        for name, child in inner.items():
            walk(child, (*words, name))

    walk(get_command(main.app), ())
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help_and_json(zen: Zen, words: tuple[str, ...]) -> None:
    """--help answers with 0; --json is there, except for commands that never answer."""
    ended = zen(*words, "--help")
    assert ended.code == 0
    assert "Usage: zen " + " ".join(words) in ended.out
    assert ("--json" in ended.out) == (words[-1] not in ("serve", "proxy"))


def test_no_arguments_show_the_help(zen: Zen) -> None:
    """A user who does not know what to say is told."""
    ended = zen()
    assert ended.code == 2
    assert "Commands:" in ended.out


def test_unknown_command(zen: Zen) -> None:
    """One line, exit code 2."""
    ended = zen("jbos")
    assert ended.code == 2
    assert ended.err.startswith("zen: No such command 'jbos'")
    assert ended.err.count("\n") == 1


def test_nothing_runs(zen: Zen, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection says how to start it."""
    monkeypatch.setenv("ZEN_API", "http://127.0.0.1:1")
    ended = zen("jobs")
    assert ended.code == 1
    assert ended.err.startswith("zen: nothing runs at http://127.0.0.1:1: start it with ./zen up")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("address", ["http://[", "ftp://x", "http://a b"])
def test_impossible_addresses_are_one_line(zen: Zen, address: str) -> None:
    """What cannot be an address is named, without a traceback."""
    ended = zen("jobs", "--api", address)
    assert ended.code == 1
    assert ended.err.startswith("zen: ")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(502, text="<html>"), "the API answered 502 Bad Gateway"),
        (httpx.Response(200, text="<html>"), "is not the API of this scheduler"),
        (httpx.Response(200, json=[1]), "is not the API of this scheduler"),
        (httpx.Response(503, json={"message": "the database is away"}), "the database is away"),
    ],
)
def test_strange_answers_are_one_line(
    zen: Zen, api: Api, answer: httpx.Response, said: str
) -> None:
    """Whatever answers there, the user sees one line."""
    api.on("GET", "/api/v1/jobs", lambda _: answer)
    ended = zen("jobs")
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_time_out_is_one_line(zen: Zen, api: Api) -> None:
    """An API that does not answer in time is named with the time."""

    def late(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("late", request=request)

    api.on("GET", "/api/v1/jobs", late)
    assert "did not answer within 30 s" in zen("jobs").err


def test_broken_pipe_is_quiet() -> None:
    """`zen … | head` ends without a word on stderr."""
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-m", "cli", "config", "check"],
        cwd=paths.ROOT,
        stdout=writes,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writes)
    assert done.stderr == ""
    assert done.returncode != 0


def test_nobody_elses_stack_is_asked(zen: Zen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs here: the usual port may be somebody else's, so it is not tried."""
    monkeypatch.delenv("ZEN_API")
    ended = zen("jobs")
    assert ended.code == 1
    assert "nothing runs here" in ended.err


def test_address_comes_from_the_running_stack(
    zen: Zen, api: Api, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --api and ZEN_API the state directory knows it; --api wins."""
    monkeypatch.delenv("ZEN_API")
    api.on("GET", "/api/v1/jobs", {"jobs": [], "total": 0, "next_page_token": None})
    here = paths.Home(home)
    here.make()
    here.write(paths.Running(1, "http://127.0.0.1:4321", "", "", "", ""))
    zen("jobs")
    zen("jobs", "--api", "10.0.0.1:80")
    assert [request.url.host for request in api.requests] == ["127.0.0.1", "10.0.0.1"]
    assert api.requests[0].url.port == 4321


class Healthy(BaseHTTPRequestHandler):
    """A replica that says it lives."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quietly."""


def address_of(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_dead_replica_is_passed_over(
    zen: Zen, api: Api, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every replica answers: the first that says it lives is asked, neither one that is gone nor
    one that takes connections and hangs."""
    monkeypatch.delenv("ZEN_API")
    monkeypatch.setattr(client, "ALIVE_S", 0.05)
    api.on("GET", "/api/v1/jobs", {"jobs": [], "total": 0, "next_page_token": None})
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = address_of(closed)
    lives = HTTPServer(("127.0.0.1", 0), Healthy)
    Thread(target=lives.serve_forever, args=(0.01,), daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as frozen, lives:
        apis = (dead, address_of(frozen), address_of(lives.socket))
        here = paths.Home(home)
        here.make()
        here.write(paths.Running(1, dead, "", "", "", "", apis=apis))
        assert zen("jobs").code == 0
        lives.shutdown()
    assert str(api.requests[0].url).startswith(apis[2])


def test_a_stack_that_lives_is_not_said_to_be_down(
    zen: Zen, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its API may be starting again: nobody is told to start what runs."""
    monkeypatch.delenv("ZEN_API")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = address_of(closed)
    here = paths.Home(home)
    here.make()
    here.write(paths.Running(os.getpid(), dead, "", "", "", ""))
    ended = zen("jobs")
    assert ended.code == 1
    assert f"nothing answers at {dead} at the moment" in ended.err


def test_state_directory_is_private(home: Path) -> None:
    """Nobody else may read logs and database; a wider directory is narrowed."""
    home.mkdir(mode=0o755)
    paths.Home(home).make()
    assert home.stat().st_mode & 0o777 == 0o700


def test_half_a_run_file_is_no_run_file(home: Path) -> None:
    """What cannot be read whole is taken for nothing."""
    here = paths.Home(home)
    here.make()
    here.run_file.write_text('{"pid": 1, "ap')
    assert here.read() is None


# --- spans of time ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("0.5s", 0.5),
        ("250ms", 0.25),
        (" 2H ", 7200),
    ],
)
def test_spans_are_read(text: str, expected: float) -> None:
    """Units from milliseconds to weeks, alone or together."""
    assert seconds(text, "--for") == expected


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 s", "s", "1x", "1h soon", "inf", "nan"])
def test_bad_spans_name_what_came(text: str) -> None:
    """The error names what came and shows examples."""
    with pytest.raises(Exception, match="expected a span of time") as caught:
        seconds(text, "--for")
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["90", "1.5", "0"])
def test_a_bare_number_is_no_span(text: str) -> None:
    """Seconds or minutes? The option is named, with examples."""
    with pytest.raises(Exception, match=f"--max-runtime {text}: say the unit, e.g. {text}s, 15m"):
        seconds(text, "--max-runtime")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("jobs", "--cluster", "1xl3"), "--cluster: unknown cluster 1xl3; did you mean 1xl4?"),
        (("jobs", "--tenant", "visoin"), "--tenant: unknown tenant visoin; did you mean vision?"),
        (("vms", "--cluster", "1xl3", "--json"), "unknown cluster 1xl3"),
        (("vms", "--region", "us-east9"), "unknown region us-east9; did you mean us-east4?"),
        (("cost", "--tenant", "visoin"), "did you mean vision?"),
        (("capacity", "--cluster", "l4"), "did you mean 1xl4?"),
    ],
)
def test_filters_by_names_that_do_not_exist(
    zen: Zen, api: Api, words: tuple[str, ...], said: str
) -> None:
    """A filter with a typing error is not an empty answer: the name is refused with the nearest."""
    empty = {"jobs": [], "vms": [], "rows": [], "places": [], "total": 0, "next_page_token": None}
    for name in ("jobs", "vms", "cost", "capacity"):
        api.on("GET", f"/api/v1/{name}", empty)
    regions = [{"region": "us-east4"}]
    api.on("GET", "/api/v1/clusters", {"clusters": [{"name": "1xl4", "regions": regions}]})
    api.on("GET", "/api/v1/tenants", {"tenants": [{"tenant_id": "vision"}]})
    ended = zen(*words)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err


@pytest.mark.parametrize("words", [("show", ""), ("logs", " "), ("show", ".."), ("stop", "")])
def test_an_id_is_never_empty(zen: Zen, api: Api, words: tuple[str, ...]) -> None:
    """An empty id, as an unset variable leaves it, is a wrong call: nobody is asked."""
    ended = zen(*words)
    assert ended.code == 2
    assert "expected an id" in ended.err
    assert not api.requests


@pytest.mark.parametrize(
    ("span_s", "expected"),
    [(0, "0s"), (59.9, "59s"), (125, "2m05s"), (11400, "3h10m"), (187200, "2d4h"), (-3, "0s")],
)
def test_spans_are_written_short(span_s: float, expected: str) -> None:
    """The two largest units; never negative, whatever the clocks say."""
    assert short(span_s) == expected


def test_missing_times_are_a_dash() -> None:
    """An API time that is null or garbage is shown as nothing."""
    now = moment("2026-11-16T07:00:05Z")
    assert now is not None
    assert between("2026-11-16T07:00:00.500Z", now) == "4s"
    assert between(None, now) == "-"
    assert clock_time("garbage", now) == "-"


def test_hints_are_commands_that_work_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the checkout it is ./zen; elsewhere zen if the PATH finds that one, else its path."""
    root, other = tmp_path / "checkout", tmp_path / "other"
    for directory in (root, other):
        directory.mkdir()
        (directory / "zen").write_text("#!/bin/sh\n")
        (directory / "zen").chmod(0o755)
    called = "__main__.py"
    assert paths._program(called, root, root) == "./zen"
    assert paths._program("zen", root, tmp_path) == "zen"
    monkeypatch.setenv("PATH", str(other))
    assert paths._program(called, root, tmp_path) == str(root / "zen")
    monkeypatch.setenv("PATH", str(root))
    assert paths._program(called, root, tmp_path) == "zen"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("jobs", "--tenant", ""), "--tenant"),
        (("jobs", "--group", ""), "--group"),
        (("jobs", "--label", ""), "--label"),
        (("cost", "--tenant", ""), "--tenant"),
        (("cost", "--until", ""), "--until"),
        (("vms", "--region", ""), "--region"),
        (("capacity", "--cluster", ""), "--cluster"),
        (("dead-letters", "list", "--source", ""), "--source"),
        (("list", "--tenant", ""), "--tenant"),
        (("logs", "--user", "", "train-7"), "--user"),
        (("stop", "--group", ""), "--group"),
    ],
)
def test_an_empty_filter_is_no_filter_that_was_left_out(
    zen: Zen, api: Api, words: tuple[str, ...], option: str
) -> None:
    """An unset variable of a script must not mean everything; nothing is asked of the API."""
    ended = zen(*words)
    assert (ended.code, ended.out) == (2, "")
    assert f"zen: {option}: got '', expected a value; leave it out for none" in ended.err
    assert api.requests == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("jobs", "--limit", "0"), "--limit: got 0, expected at least 1"),
        (("jobs", "--limit", "501"), "--limit: got 501, expected at most 500"),
        (("jobs", "--limit", "x"), "--limit: got x, expected a whole number"),
        (("sim", "quota", "r", "M", "--limit", "x"), "--limit: got x, expected a number"),
        (("cost", "--by", "nope"), "--by: 'nope' is not one of 'kind', 'job'"),
        (("whatif", "--days", "inf"), "--days: got inf, expected a finite number"),
        (("jobs", "--state", "nope"), "--state: got 'nope', expected one of pending, scheduled"),
    ],
)
def test_a_wrong_value_is_told_in_our_words(
    zen: Zen, api: Api, words: tuple[str, ...], said: str
) -> None:
    """The option that was typed, what came, what is expected."""
    ended = zen(*words)
    assert ended.code == 2
    assert said in ended.err
