"""Somebody who guesses keys says to be at another address with each guess."""

from __future__ import annotations

import httpx
import pytest

from tests.access import bearer
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

FROM = "127.0.0.38"
HEADERS = ("X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "X-Client-Ip")


def test_a_header_moves_nobody(up: Stack) -> None:
    """Without a declared proxy the address is the connection's: the limit holds."""
    wrong = f"zen_{'c' * 12}_{'0' * 64}"
    transport = httpx.HTTPTransport(local_address=FROM)
    with httpx.Client(base_url=up.run["api"], transport=transport, timeout=10) as line:
        statuses = []
        for number in range(60):
            said = dict.fromkeys(HEADERS, f"198.51.100.{number}")
            statuses.append(line.get("/api/v1/jobs", headers={**bearer(wrong), **said}).status_code)
    assert statuses.count(401) <= 20
    assert statuses[-1] == 429


def test_the_audit_log_has_the_connections_address(up: Stack) -> None:
    """Not the one that the caller claims."""
    headers = {**bearer(up.key), "X-Forwarded-For": "198.51.100.7"}
    body = {"principal": "user:audited@example.com", "tenant_id": "other", "role": "viewer"}
    answer = httpx.post(f"{up.run['api']}/api/v1/grants", json=body, headers=headers, timeout=10)
    assert answer.status_code == 200, answer.text
    row = up.get("/audit", action="grant.add", page_size=1)["rows"][0]
    assert row["address"] == "127.0.0.1"
