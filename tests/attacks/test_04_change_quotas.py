"""Somebody changes the weight and the quotas of a tenant."""

from __future__ import annotations

import pytest

from tests.attacks.intruders import OTHER, VICTIM, WATCHING, Intruder, new_key, owner, refused
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("who", WATCHING)
def test_settings_stay(up: Stack, intruder: Intruder) -> None:
    """Neither another tenant's nor the caller's: quotas are the admin's."""
    with owner(up) as line:
        set_up = line.patch(f"/api/v1/tenants/{VICTIM}", json={"weight": 3})
        assert set_up.status_code in (200, 201), set_up.text
        line.patch(f"/api/v1/tenants/{OTHER}", json={"weight": 2})
    with intruder.calls(up) as line:
        answers = [
            line.patch(f"/api/v1/tenants/{VICTIM}", json={"weight": 100}),
            line.patch(f"/api/v1/tenants/{OTHER}", json={"weight": 100}),
            line.post("/api/v1/tenants", json={"id": "fresh", "weight": 100}),
            line.delete(f"/api/v1/tenants/{OTHER}"),
        ]
    assert [a.text for a in answers if not refused(a, intruder.who)] == []
    found = {t["tenant_id"]: t["weight"] for t in up.get("/tenants")["tenants"]}
    assert (found[VICTIM], found[OTHER]) == (3, 2)
    assert "fresh" not in found


def test_an_operator_sets_no_quota(up: Stack) -> None:
    """The fleet is the operator's; who may have how much of it is not."""
    key = str(new_key(up, "night-shift", "*", "operator")["key"])
    with Intruder("operator", key).calls(up) as line:
        answer = line.patch(f"/api/v1/tenants/{VICTIM}", json={"weight": 100})
    assert answer.status_code == 403
