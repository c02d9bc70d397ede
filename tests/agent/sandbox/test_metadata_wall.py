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
servers = []
addresses = ("169.254.169.254", "fd20:ce::254")
for address, size, family in zip(addresses, (32, 128), (socket.AF_INET, socket.AF_INET6)):
    nodad = ["nodad"] if family == socket.AF_INET6 else []
    subprocess.run(["ip", "addr", "add", f"{address}/{size}", "dev", "lo", *nodad], check=True)
    servers += [socket.create_server((address, port), family=family) for port in (80, 53)]
rules = SandboxRules()
for _ in range(2):
    why = metadata_wall.close_metadata_server(rules)
    assert not why, why
for uid in (0, rules.uid_first, rules.uid_first + rules.uid_count - 1):
    for port in (80, 53):
        for address in addresses:
            if os.fork() == 0:
                os.setuid(uid)
                try:
                    socket.create_connection((address, port), 5).close()
                    print(min(uid, 1), port, "open", flush=True)
                except OSError:
                    print(min(uid, 1), port, "closed", flush=True)
                os._exit(0)
            os.wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize("by", ["nft", "iptables"])
def test_jobs_are_refused_and_the_agent_is_not(by: str, tmp_path: Path) -> None:
    """Users of jobs reach both addresses for names alone, the agent all of them. Twice is once."""
    if os.geteuid() != 0:
        pytest.skip("needs root: rules for packets")
    program = shutil.which(by, path=metadata_wall._SBIN)
    if program is None:
        pytest.skip(f"needs {by}: not installed")
    for name in (by, by.replace("ip", "ip6")):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to(Path(program).with_name(name))
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", SCRIPT, str(ROOT), by, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[:4] == ["0 80 open"] * 2 + ["0 53 open"] * 2, done.stderr
    assert lines[4:] == (["1 80 closed"] * 2 + ["1 53 open"] * 2) * 2


def test_without_a_program_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a packet filter is told apart, not passed over."""
    monkeypatch.setattr(metadata_wall, "_SBIN", str(tmp_path))
    why = metadata_wall.close_metadata_server(SandboxRules())
    assert why == "the metadata server is open to jobs: neither nft nor iptables is installed"


def test_half_a_wall_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """iptables alone leaves the second address open: the log says so, unless the machine does not
    speak IPv6."""
    (tmp_path / "iptables").write_text("#!/bin/sh\n")
    (tmp_path / "iptables").chmod(0o755)
    addresses = tmp_path / "if_inet6"
    monkeypatch.setattr(metadata_wall, "_SBIN", str(tmp_path))
    monkeypatch.setattr(metadata_wall, "_ADDRESSES_6", addresses)
    assert metadata_wall.close_metadata_server(SandboxRules()) == ""
    addresses.write_text("fd000000000000000000000000000002 04 40 00 82     eth0\n")
    why = metadata_wall.close_metadata_server(SandboxRules())
    assert why == "fd20:ce::254 of the metadata server is open to jobs: ip6tables is not installed"
