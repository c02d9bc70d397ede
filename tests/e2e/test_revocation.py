"""What is taken away on one replica counts on no other: keys, grants and sessions, over two."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.access import bearer
from tests.e2e.stack import Stack, stack, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
REVOKED_S = 5


@pytest.fixture(scope="module")
def two() -> Iterator[Stack]:
    with stack(replicas=2) as made:
        yield made


def replicas(made: Stack) -> tuple[str, str]:
    here, there = made.run["apis"]
    return str(here), str(there)


def new_key(made: Stack, role: str = "viewer") -> dict[str, str]:
    body = {"name": "nightly", "role": role}
    here, _ = replicas(made)
    answer = httpx.post(f"{here}/api/v1/keys", json=body, headers=bearer(made.key))
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def goes(address: str, headers: dict[str, str]) -> int:
    return httpx.get(f"{address}/api/v1/jobs", headers=headers, timeout=10).status_code


def refused(address: str, headers: dict[str, str], status: int) -> None:
    """Within the time that is claimed."""
    wait_for(
        f"{status} at {address}",
        lambda: True if goes(address, headers) == status else None,
        REVOKED_S,
    )


def test_a_revoked_key(two: Stack) -> None:
    """It was in use on both."""
    here, there = replicas(two)
    key = new_key(two)
    as_key = bearer(key["key"])
    assert (goes(here, as_key), goes(there, as_key)) == (200, 200)
    httpx.delete(f"{here}/api/v1/keys/{key['key_id']}", headers=bearer(two.key))
    refused(there, as_key, 401)
    refused(here, as_key, 401)


def test_a_grant_that_was_taken(two: Stack) -> None:
    """The key is known still, and may do nothing."""
    here, there = replicas(two)
    key = new_key(two)
    as_key = bearer(key["key"])
    assert (goes(here, as_key), goes(there, as_key)) == (200, 200)
    grant = {"principal": f"key:{key['key_id']}", "tenant_id": "default", "role": "viewer"}
    taken = httpx.delete(f"{here}/api/v1/grants", params=grant, headers=bearer(two.key))
    assert taken.status_code == 200, taken.text
    refused(there, as_key, 403)
    refused(here, as_key, 403)


@pytest.mark.parametrize("how", ["sign-out", "admin", "key"])
def test_a_session_that_has_ended(two: Stack, how: str) -> None:
    """By its owner, by an admin, or with the key that opened it."""
    here, there = replicas(two)
    key = new_key(two)
    page = {"accept": "text/html"}
    with httpx.Client(base_url=here) as browser:
        assert browser.post("/sign-in", data={"key": key["key"]}).status_code == 303
        cookie = {"cookie": f"zen-session={browser.cookies['zen-session']}"}
        assert (goes(here, cookie), goes(there, cookie)) == (200, 200)
        if how == "sign-out":
            found = re.search(r"value='([0-9a-f]{64})'", browser.get("/sign-in", headers=page).text)
            assert found is not None
            assert browser.post("/sign-out", data={"csrf": found[1]}).status_code == 303
        elif how == "admin":
            two.zen("sessions", "revoke", cookie["cookie"].partition("=")[2].partition("_")[0])
        else:
            two.zen("keys", "revoke", key["key_id"])
    refused(there, cookie, 401)
    refused(here, cookie, 401)
