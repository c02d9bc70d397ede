"""The metadata server behind its wall, in a network of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.sandbox import metadata_wall
from core.sandbox import SandboxRules

ROOT = Path(__file__).parents[3]
# Runs in a network namespace: a server at the address of the metadata server, the wall, then one
# connection as each user and port.
SCRIPT = """
import encodings.idna, os, socket, subprocess, sys
sys.path.insert(0, sys.argv[1])
from agent.sandbox import metadata_wall
from core.sandbox import SandboxRules
if sys.argv[2] != "nft":
    metadata_wall._SBIN = sys.argv[3]
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["ip", "addr", "add", "169.254.169.254/32", "dev", "lo"], check=True)
servers = [socket.create_server(("169.254.169.254", port)) for port in (80, 53)]
rules = SandboxRules()
for _ in range(2):
    why = metadata_wall.close_metadata_server(rules)
    assert not why, why
for uid in (0, rules.uid_first, rules.uid_first + rules.uid_count - 1):
    for port in (80, 53):
        if os.fork() == 0:
            os.setuid(uid)
            try:
                socket.create_connection(("169.254.169.254", port), 5).close()
                print(min(uid, 1), port, "open", flush=True)
            except OSError:
                print(min(uid, 1), port, "closed", flush=True)
            os._exit(0)
        os.wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize("by", ["nft", "iptables"])
def test_jobs_are_refused_and_the_agent_is_not(by: str, tmp_path: Path) -> None:
    """Users of jobs reach the address for names alone, the agent all of it. Twice is once."""
    if os.geteuid() != 0:
        pytest.skip("needs root: rules for packets")
    program = shutil.which(by, path=metadata_wall._SBIN)
    if program is None:
        pytest.skip(f"needs {by}: not installed")
    (tmp_path / by).symlink_to(program)
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", SCRIPT, str(ROOT), by, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["0 80 open", "0 53 open"], done.stderr
    assert lines[2:] == ["1 80 closed", "1 53 open"] * 2


def test_without_a_program_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a packet filter is told apart, not passed over."""
    monkeypatch.setattr(metadata_wall, "_SBIN", str(tmp_path))
    why = metadata_wall.close_metadata_server(SandboxRules())
    assert why == "the metadata server is open to jobs: neither nft nor iptables is installed"
