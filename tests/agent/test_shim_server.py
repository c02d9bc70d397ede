"""The process that forks shims, spoken to as the agent does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from agent.runtimes import SHIM_SERVER
from tests.agent.vm import gone, until

pytestmark = pytest.mark.slow
WAIT_S = 60.0


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with subprocess.Popen([*SHIM_SERVER, str(theirs.fileno())], pass_fds=(theirs.fileno(),)) as it:
        theirs.close()
        yield it, ours
        ours.close()
        it.wait(WAIT_S)


def ask(requests: socket.socket) -> tuple[socket.socket, int]:
    """A shim's socket, and the shim by its own word."""
    mine, theirs = socket.socketpair()
    log_out, log_in = os.pipe()
    socket.send_fds(requests, [b"f"], [theirs.fileno(), log_in])
    theirs.close()
    for fd in (log_out, log_in):
        os.close(fd)
    mine.settimeout(WAIT_S)
    return mine, int(json.loads(mine.recv(4096))["shim"])


def test_forks(server: tuple[subprocess.Popen[bytes], socket.socket]) -> None:
    """Each request is a process of its own; one whose agent hangs up ends, and nobody else."""
    process, requests = server
    (first, one), (second, other) = ask(requests), ask(requests)
    assert len({process.pid, one, other}) == 3
    first.close()
    second.settimeout(0.05)
    with pytest.raises(TimeoutError):
        second.recv(1)
    second.close()


async def test_last_words_are_not_lost(
    server: tuple[subprocess.Popen[bytes], socket.socket],
) -> None:
    """A shim whose job has ended stays until the agent hangs up: what the agent says meanwhile does
    not break the connection before it has read how the job ended."""
    shim, pid = ask(server[1])
    order = {"argv": ["true"], "env": dict(os.environ), "cwd": "/", "box": {}, "leave": []}
    shim.sendall(json.dumps({**order, "memory_max": 0, "until": None}).encode() + b"\n")
    await until(lambda: b"exit" in shim.recv(4096, socket.MSG_PEEK), "the end of the job")
    for _ in range(3):
        shim.sendall(b"UNTIL 1.0\n")
    assert not gone(pid)
    assert b'{"exit": 0' in shim.recv(4096)
    shim.close()
    await until(lambda: gone(pid), "the shim is gone")


def test_request_without_files(server: tuple[subprocess.Popen[bytes], socket.socket]) -> None:
    """It is passed over."""
    _, requests = server
    requests.send(b"f")
    shim, _ = ask(requests)
    shim.close()


async def test_outlived_by_its_shims(
    server: tuple[subprocess.Popen[bytes], socket.socket],
) -> None:
    """A killed server takes no shim along; the end of the agent does."""
    process, requests = server
    shim, pid = ask(requests)
    process.kill()
    process.wait()
    assert requests.recv(1) == b"", "no shim holds the server's socket"
    assert not gone(pid)
    shim.close()
    await until(lambda: gone(pid), "the shim is gone")
