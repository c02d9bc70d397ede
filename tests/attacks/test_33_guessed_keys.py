"""Somebody guesses keys, again and again."""

from __future__ import annotations

import secrets

import httpx
import pytest

from tests.access import bearer
from tests.attacks.intruders import owner
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

GUESSES = 1500
FROM = "127.0.0.33"


def test_guesses_are_cut_off(up: Stack) -> None:
    """After a few the address is told to wait, whatever it presents, and how long; the owner at
    another address notices nothing."""
    transport = httpx.HTTPTransport(local_address=FROM)
    known = up.key.split("_")[1]
    with httpx.Client(base_url=up.run["api"], transport=transport, timeout=10) as line:
        answers = [
            line.get("/api/v1/jobs", headers=bearer(f"zen_{known}_{secrets.token_hex(32)}"))
            for _ in range(GUESSES)
        ]
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {401, 429}
    assert statuses.count(401) <= 20
    assert statuses == sorted(statuses)
    assert int(answers[-1].headers["Retry-After"]) > 0
    with owner(up) as line:
        assert line.get("/api/v1/jobs").status_code == 200
