"""Somebody makes a tenant whose name looks like another's, or means more than a name."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.attacks.intruders import VICTIM, Intruder, new_key, owner
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

NAMES = (
    "viсtim",  # a Cyrillic letter
    "victim\u200b",
    "victim\u0000",
    "victim ",
    " victim",
    "victim\n",
    "ｖｉｃｔｉｍ",
    "*",
    "..",
    "../victim",
    "victim/../other",
    "victim%2F",
    "",
    "v" * 64,
)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_it_is_no_name(up: Stack, name: str) -> None:
    """Refused for a tenant, for a key's tenant (but for `*`, which is every one), for a job."""
    with owner(up) as line:
        answers = [
            line.patch(f"/api/v1/tenants/{quote(name, safe='')}", json={"weight": 2}),
            line.post("/api/v1/tenants", json={"id": name}),
            line.post("/api/v1/jobs", json={"command": ["true"], "tenant_id": name}),
        ]
        if name != "*":
            body = {"name": "odd", "tenant_id": name}
            answers.append(line.post("/api/v1/keys", json=body))
        known = {tenant["tenant_id"] for tenant in line.get("/api/v1/tenants").json()["tenants"]}
    assert [a.text for a in answers if not 400 <= a.status_code < 500] == []
    assert name not in known


def test_case_counts(up: Stack) -> None:
    """`Victim` is another tenant than `victim`: its member sees nothing of the latter."""
    key = str(new_key(up, "capital", "Victim", "member")["key"])
    with Intruder("member", key).calls(up) as line:
        assert line.get(f"/api/v1/tenants/{VICTIM}").status_code == 404
        assert line.get("/api/v1/jobs", params={"tenant_id": VICTIM}).json()["jobs"] == []
