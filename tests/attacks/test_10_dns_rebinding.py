"""A page's own DNS name leads to the API's address, so that its answers are the page's to read."""

from __future__ import annotations

import httpx
import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/config", "/health", "/docs", "/"])
def test_a_rebound_name_is_not_served(up: Stack, path: str) -> None:
    """Whatever the path and the method: 421, and nothing of the service in it."""
    for method in ("GET", "POST", "OPTIONS"):
        headers = {"Host": "evil.example"}
        answer = httpx.request(method, f"{up.api}{path}", headers=headers, timeout=10)
        assert answer.status_code == 421
        assert answer.json()["code"] == "wrong_host"
