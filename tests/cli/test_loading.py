"""Commands are imported when they are called, and nothing heavy with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from typer.main import get_command

from cli import loading, main
from cli.command_table import COMMANDS
from cli.paths import ROOT

HEAVY = {
    *("aiohttp", "asyncio", "cryptography", "email", "fastapi", "google", "grpc", "http", "httpx"),
    *("msgspec", "psycopg", "pydantic", "requests", "rich", "sqlalchemy", "ssl", "structlog"),
    *("uvicorn", "yaml"),
}
OURS_MAX = 45
"""Modules of this project that one command imports: each costs about a millisecond."""


class Answering(BaseHTTPRequestHandler):
    """An API as far as these commands ask it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        job: dict[str, Any] = self.server.job  # type: ignore[attr-defined]
        lists = {"events": [], "attempts": [], "waits": [], "jobs": [job], "total": 1}
        counts = {"vms": {}, "outbox": 0, "open_alerts": 0}
        told = {**job, **lists, **counts}
        if self.path.endswith("/status"):
            told["jobs"] = {}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Quietly."""


@pytest.fixture
def address(job: dict[str, Any]) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answering)
    server.job = job  # type: ignore[attr-defined]
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with server:
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def imported(*words: str, api: str = "") -> set[str]:
    """The modules that a command imports, by the interpreter's own account."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cli", *words],
        cwd=ROOT,
        env={**os.environ, "ZEN_API": api},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("jobs",),
        ("show", "train-7"),
        ("status",),
        ("submit", "--", "true"),
        ("stop", "-h"),
    ],
    ids=" ".join,
)
def test_what_people_call_all_day_imports_nothing_heavy(
    address: str, words: tuple[str, ...]
) -> None:
    """The commands that people wait for import few modules, and no library whose import takes
    longer than the command."""
    found = imported(*words, api=address)
    assert {name.partition(".")[0] for name in found} & HEAVY == set()
    ours = {name for name in found if name.partition(".")[0] in ("cli", "core", "config", "tests")}
    assert len(ours) <= OURS_MAX, sorted(ours)


def test_help_imports_no_command() -> None:
    """The lines of `zen --help` stand in the table."""
    assert not {name for name in imported("--help") if name.startswith("cli.commands")}


def test_every_line_of_help_fits() -> None:
    """A summary is one sentence that stands in one line of 80 columns."""
    longest = max(map(len, COMMANDS))
    for name, entry in COMMANDS.items():
        assert entry.hidden or entry.line[-1] in ".?", name
        assert len(entry.line) <= 80 - longest - 4, name


def _params(command: Any) -> Iterator[Any]:
    yield from command.params
    for inner in getattr(command, "commands", {}).values():
        yield from _params(inner)


def test_words_of_every_command_can_be_read() -> None:
    """No option or argument has a type that would be refused only when somebody uses it."""
    given = {int: "7", float: "7.5", bool: True}
    for param in _params(get_command(main.app)):
        kind = param.type_descriptor.annotation
        inner = kind.__args__[0] if param.multiple or param.nargs == -1 else kind
        choices = loading._choices(inner)
        low = given.get(inner, next(iter(choices), "x")) if param.min is None else str(param.min)
        assert isinstance(loading._read(param, inner, low), type(low) if choices else inner)


def test_a_command_that_is_not_there() -> None:
    """The table is asked, not the modules."""
    found = loading.Loaded(COMMANDS)
    assert "jobs" in found
    assert "jbos" not in found
    assert found.get("jbos") is None
    assert len(found) == len(COMMANDS)
