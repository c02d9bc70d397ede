"""Who tries the attacks: without a key, with a viewer's, with a key of another tenant."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.access import bearer
from tests.e2e.stack import Stack

VICTIM = "victim"
OTHER = "other"
SECRET = "planted-5d41402abc4b2a76"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Intruder:
    """Somebody with less than an attack needs."""

    who: str
    key: str | None

    @contextmanager
    def calls(self, up: Stack, **options: Any) -> Iterator[httpx.Client]:
        """The API, as this intruder reaches it."""
        headers = bearer(self.key) if self.key is not None else {}
        with httpx.Client(base_url=up.run["api"], headers=headers, timeout=10, **options) as line:
            yield line


def owner(up: Stack, **options: Any) -> httpx.Client:
    """The API with the owner's key."""
    return httpx.Client(base_url=up.run["api"], headers=bearer(up.key), timeout=10, **options)


def new_key(up: Stack, name: str, tenant_id: str, role: str, **fields: Any) -> Json:
    """A key that the owner makes."""
    body = {"name": name, "tenant_id": tenant_id, "role": role, **fields}
    with owner(up) as line:
        answer = line.post("/api/v1/keys", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()  # type: ignore[no-any-return]


WITHOUT = ("no key", "viewer of another tenant", "member of another tenant")
"""Who may not know of the victim's tenant."""
WATCHING = (*WITHOUT, "viewer of the tenant")
"""Who may change nothing of the victim's tenant."""
_ROLES = {
    "viewer of another tenant": (OTHER, "viewer"),
    "member of another tenant": (OTHER, "member"),
    "viewer of the tenant": (VICTIM, "viewer"),
}


def intruders(up: Stack) -> dict[str, Intruder]:
    """By what they are."""
    found = {"no key": Intruder("no key", None)}
    for number, (who, (tenant_id, role)) in enumerate(_ROLES.items()):
        made = new_key(up, f"intruder-{number}", tenant_id, role)
        found[who] = Intruder(who, str(made["key"]))
    return found


def needs_tenants() -> None:
    """Where all jobs run as one Unix user, one tenant may submit: there is no victim."""
    if os.geteuid() != 0:
        pytest.skip("jobs of several tenants need a stack that runs as root")


def victim_job(up: Stack, **fields: Any) -> str:
    """A job of the victim's tenant that has ended, with a secret in its environment and log."""
    needs_tenants()
    environment = {"TOKEN": SECRET}
    job = up.submit("sh", "-c", "echo $TOKEN", environment=environment, tenant_id=VICTIM, **fields)
    up.wait(job, "SUCCEEDED")
    return job


def refused(answer: httpx.Response, who: str) -> bool:
    """Without a key always 401; with one that lacks the right, nothing is told or done."""
    wanted = (401,) if who == "no key" else (403, 404)
    return answer.status_code in wanted and SECRET not in answer.text
