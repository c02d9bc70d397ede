"""Somebody presents wrong keys from the address of others, so that they are locked out."""

from __future__ import annotations

import httpx
import pytest

from tests.access import bearer
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

FROM = "127.0.0.37"
WRONG = f"zen_{'b' * 12}_{'0' * 64}"


def test_keys_in_use_go_on(up: Stack) -> None:
    """The address is told to wait; the owner's key from the same address is served."""
    transport = httpx.HTTPTransport(local_address=FROM)
    with httpx.Client(base_url=up.run["api"], transport=transport, timeout=10) as line:
        assert line.get("/api/v1/jobs", headers=bearer(up.key)).status_code == 200
        told = [line.get("/api/v1/jobs", headers=bearer(WRONG)).status_code for _ in range(60)]
        assert told[-1] == 429
        assert line.get("/api/v1/jobs", headers=bearer(up.key)).status_code == 200
