"""A header of 60 MB, and 300,000 headers: the server must not keep them."""

from __future__ import annotations

import socket
from contextlib import suppress
from urllib.parse import urlsplit

import psutil
import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

HEAD = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "more", [b"X: " + b"a" * 60_000_000, b"X: 1\r\n" * 300_000], ids=["long", "many"]
)
def test_large_heads_are_not_buffered(up: Stack, more: bytes) -> None:
    """The server answers 431 or closes after 32 kB; it does not grow by what was sent."""
    scheduler = psutil.Process(up.run["processes"]["scheduler"])
    before = scheduler.memory_info().rss
    at = urlsplit(up.api)
    with socket.create_connection((at.hostname, at.port or 0), timeout=10) as line:
        line.sendall(HEAD)
        sent = 0
        with suppress(ConnectionError):
            while sent < 60_000_000:
                sent += line.send(more[sent % len(more) :][:65_536])
    assert sent < 16_000_000  # what the buffers of the system take, not ours
    assert scheduler.memory_info().rss - before < 45_000_000
