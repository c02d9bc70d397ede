"""How a process is shut in, tried as the agent tries it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.sandbox import enter

PROGRAM = Path(enter.__file__)
SHOW = """
import sys
exec(sys.stdin.read().partition("if __name__")[0])
enter(json.loads(sys.argv[1]))
print(open("/proc/self/status").read())
"""
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def test_without_root_it_gives_up_ways_to_more() -> None:
    """An ordinary user's job runs as that user, and no program makes it more."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    assert python is not None
    as_nobody = NOBODY if os.geteuid() == 0 else ()
    command = [*as_nobody, python, "-c", SHOW, json.dumps({"uid": None})]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/", input=PROGRAM.read_text()
    )
    assert "NoNewPrivs:\t1" in done.stdout, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts are refused otherwise")
def test_what_is_refused_is_told(tmp_path: Path) -> None:
    """A mount that cannot be made stops the start, and names its place."""
    where = str(tmp_path / "nowhere")
    box = {"uid": 1879048192, "pids_max": 100, "mounts": [["tmpfs", where, "shm"]]}
    program = [shutil.which("python3") or "python3", "-I", "-S", str(PROGRAM), json.dumps(box)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert where in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root becomes somebody else")
def test_a_person_keeps_their_groups() -> None:
    """And nothing of root's."""
    box = {"uid": 4242, "gid": 4343, "groups": [44, 4343]}
    command = [shutil.which("python3") or "python3", "-c", SHOW, json.dumps(box)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/", input=PROGRAM.read_text()
    )
    for line in (
        *("Uid:\t4242\t4242\t4242\t4242", "Gid:\t4343\t4343\t4343\t4343", "Groups:\t44 4343"),
        *("CapBnd:\t0000000000000000", "CapEff:\t0000000000000000"),
    ):
        assert line in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("argv", "ends"),
    [
        (["true"], 0),
        (["/bin/sh", "-c", "exit 7"], 7),
        (["no-such-program"], "FileNotFoundError"),
        (["denied"], "PermissionError"),
    ],
)
def test_a_job_is_found_without_a_module(tmp_path: Path, argv: list[str], ends: object) -> None:
    """Its user may be able to read none of the interpreter's modules."""
    (tmp_path / "denied").write_text("")
    path = f"/nowhere:{tmp_path}:/usr/bin:/bin"
    script = f"""
import sys
exec(sys.stdin.read().partition("if __name__")[0])
sys.path.clear()
execute({argv!r}, {{"PATH": {path!r}}})
"""
    python = shutil.which("python3") or "python3"
    done = subprocess.run(
        [python, "-I", "-S", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        input=PROGRAM.read_text(),
    )
    assert done.returncode == ends or str(ends) in done.stderr
