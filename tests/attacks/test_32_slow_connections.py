"""Hundreds of connections that begin a request and never end it."""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.stack import Stack, wait_for

pytestmark = pytest.mark.slow

SLOW = 800
HEADS = (
    b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nX: ",
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n",
    b"",
)


def is_closed(line: socket.socket) -> bool:
    """Whether the server has closed its end, whatever it has said before."""
    try:
        while line.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def test_slow_connections_do_no_harm(up: Stack) -> None:
    """While they are open health answers as ever, and after the header time-out all are closed."""
    at = urlsplit(up.api)
    lines = []
    try:
        for number in range(SLOW):
            line = socket.create_connection((at.hostname, at.port or 0), timeout=10)
            line.sendall(HEADS[number % len(HEADS)])
            line.setblocking(False)
            lines.append(line)
        took = []
        with httpx.Client(base_url=up.api, timeout=10) as client:
            for _ in range(200):
                begun = time.perf_counter()
                assert client.get("/api/v1/health").status_code == 200
                took.append(time.perf_counter() - begun)
        print(f"health p99 {sorted(took)[197] * 1000:.1f} ms with {SLOW} slow connections")
        closed = wait_for(
            "all slow connections closed", lambda: all(map(is_closed, lines)) or None, 25
        )
        assert closed
    finally:
        for line in lines:
            line.close()
