"""A key in the address, in a cookie or in another header ends up in logs and histories: it opens
nothing there."""

from __future__ import annotations

import httpx
import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["key", "api_key", "access_token", "token", "authorization"])
def test_a_key_in_the_query_opens_nothing(up: Stack, name: str) -> None:
    """401, as without one; and the answer does not repeat it."""
    for path in ("/api/v1/jobs", "/jobs", "/metrics", "/docs"):
        answer = httpx.get(f"{up.run['api']}{path}", params={name: up.key}, timeout=10)
        assert answer.status_code == 401
        assert up.key not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Api-Key": "KEY"},
        {"Proxy-Authorization": "Bearer KEY"},
        {"Cookie": "key=KEY; authorization=Bearer KEY; session=KEY"},
        {"X-Forwarded-User": "owner", "X-Remote-User": "owner", "X-Forwarded-Email": "a@b.c"},
        {"X-Original-Url": "/api/v1/health", "X-Rewrite-Url": "/api/v1/health"},
        {"X-Goog-Authenticated-User-Email": "accounts.google.com:owner@example.com"},
    ],
    ids=lambda headers: next(iter(headers)),
)
def test_other_headers_open_nothing(up: Stack, headers: dict[str, str]) -> None:
    """What a proxy might say about a user counts only where a proxy is declared and signs it."""
    sent = {name: value.replace("KEY", up.key) for name, value in headers.items()}
    answer = httpx.get(f"{up.run['api']}/api/v1/jobs", headers=sent, timeout=10)
    assert answer.status_code == 401


def test_no_log_has_the_key(up: Stack) -> None:
    """Neither of the service nor of its access."""
    httpx.get(f"{up.run['api']}/api/v1/jobs", params={"key": up.key}, timeout=10)
    secret = up.key.rpartition("_")[2].encode()
    found = [path.name for path in (up.home / "logs").iterdir() if secret in path.read_bytes()]
    assert found == []
