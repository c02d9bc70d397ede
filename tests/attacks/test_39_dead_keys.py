"""A key that was revoked, has expired or was rotated is presented again."""

from __future__ import annotations

import httpx
import pytest

from tests.access import bearer
from tests.attacks.intruders import OTHER, new_key, owner
from tests.e2e.stack import Stack, wait_for

pytestmark = pytest.mark.slow

REVOKED_WITHIN_S = 5


def status(up: Stack, key: str) -> int:
    with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.39")) as line:
        found = line.get(f"{up.run['api']}/api/v1/jobs", headers=bearer(key), timeout=10)
        return found.status_code


def is_dead(up: Stack, key: str) -> bool | None:
    return True if status(up, key) == 401 else None


def test_a_revoked_key_is_dead_within_five_seconds(up: Stack) -> None:
    """And it does not come back: it can be neither rotated nor granted to life."""
    made = new_key(up, "leaver", OTHER, "member")
    assert status(up, made["key"]) == 200
    with owner(up) as line:
        assert line.delete(f"/api/v1/keys/{made['key_id']}").status_code == 200
        wait_for("the end of the key", lambda: is_dead(up, made["key"]), REVOKED_WITHIN_S)
        assert line.post(f"/api/v1/keys/{made['key_id']}/rotate").status_code == 409
        grant = {"principal": f"key:{made['key_id']}", "tenant_id": "*", "role": "admin"}
        line.post("/api/v1/grants", json=grant)
    assert status(up, made["key"]) == 401


def test_an_expired_key_is_dead(up: Stack) -> None:
    """At the second that its maker chose."""
    made = new_key(up, "guest", OTHER, "member", expires_in_s=1)
    wait_for("the end of the key", lambda: is_dead(up, made["key"]), REVOKED_WITHIN_S)


def test_the_old_secret_of_a_rotated_key_is_dead(up: Stack) -> None:
    """The new one opens what the old one opened."""
    made = new_key(up, "turning", OTHER, "member")
    with owner(up) as line:
        fresh = line.post(f"/api/v1/keys/{made['key_id']}/rotate").json()["key"]
    wait_for("the end of the old", lambda: is_dead(up, made["key"]), REVOKED_WITHIN_S)
    assert status(up, fresh) == 200
