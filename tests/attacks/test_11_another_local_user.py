"""A second user of the machine submits to the stack of the first, and runs as its owner."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e.stack import ROOT, Stack

pytestmark = pytest.mark.slow

NOBODY = 65534


def test_the_key_is_readable_for_its_owner_alone(up: Stack) -> None:
    """The file, and the directory that it is in."""
    key_file = Path(up.run["key_file"])
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(up.home.stat().st_mode) == 0o700
    assert key_file.stat().st_uid == os.geteuid()


def test_without_the_key_nothing_is_submitted(up: Stack) -> None:
    """The port is open to every local user; it serves none without a key."""
    before = up.get("/jobs")["total"]
    for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Basic emVuOg=="}):
        answer = httpx.post(
            f"{up.run['api']}/api/v1/jobs", json={"command": ["id"]}, headers=headers, timeout=10
        )
        assert answer.status_code == 401
        assert "Bearer" in answer.headers["WWW-Authenticate"]
    assert up.get("/jobs")["total"] == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_finds_no_key(up: Stack) -> None:
    """Neither in the state directory, nor in the processes of the stack, nor by the bus's file."""
    look = (
        "import pathlib, sys\n"
        "found = b''\n"
        "for path in sys.argv[1:]:\n"
        "    try: found += pathlib.Path(path).read_bytes()\n"
        "    except OSError: pass\n"
        "sys.stdout.buffer.write(found)\n"
    )
    places = [str(up.run["key_file"]), str(up.home / "run.json")]
    places += [
        f"/proc/{process.pid}/{part}"
        for process in up.processes()
        for part in ("environ", "cmdline")
    ]
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-c", look, *places],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        cwd="/",
        check=True,
        timeout=30,
    )
    assert up.key.encode() not in done.stdout
    assert b"zen_" not in done.stdout


def test_a_wrong_key_is_told_in_words(up: Stack, tmp_path: Path) -> None:
    """The command line says what to do, without a traceback."""
    words = [sys.executable, "-m", "cli", "submit", "--", "id"]
    wrong = f"zen_{'a' * 12}_{'0' * 64}"
    environ = {**up.environ, "ZEN_API_KEY": wrong, "ZEN_API": up.run["api"]}
    done = subprocess.run(
        words, env=environ, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode != 0
    assert "key is wrong" in done.stderr
    assert "Traceback" not in done.stderr
