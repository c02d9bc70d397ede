"""Somebody uses an idempotency key or a page token that another tenant used."""

from __future__ import annotations

import pytest

from tests.attacks.intruders import OTHER, SECRET, VICTIM, Intruder, needs_tenants, owner
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("who", ["member of another tenant"])
def test_the_same_idempotency_key_is_another_job(up: Stack, intruder: Intruder) -> None:
    """It answers neither with the other tenant's job nor that there is one."""
    needs_tenants()
    body = {"command": ["true"], "environment": {"TOKEN": SECRET}, "tenant_id": VICTIM}
    headers = {"Idempotency-Key": "nightly"}
    with owner(up) as line:
        first = line.post("/api/v1/jobs", json=body, headers=headers)
        assert first.status_code == 201, first.text
    with intruder.calls(up) as line:
        mine = line.post("/api/v1/jobs", json={"command": ["false"]}, headers=headers)
        assert mine.status_code == 201, mine.text
        assert "Zen-Repeat" not in mine.headers
        shown = line.get(f"/api/v1/jobs/{mine.json()['job_id']}").json()
    assert (shown["tenant_id"], shown["command"]) == (OTHER, ["false"])


@pytest.mark.parametrize("who", ["member of another tenant", "viewer of another tenant"])
def test_a_page_token_leads_to_the_callers_jobs_alone(up: Stack, intruder: Intruder) -> None:
    """A token says where a page begins, never whose jobs are on it."""
    needs_tenants()
    ids = {up.submit("true", tenant_id=VICTIM) for _ in range(3)}
    with owner(up) as line:
        page = line.get("/api/v1/jobs", params={"tenant_id": VICTIM, "page_size": 1}).json()
    token = page["next_page_token"]
    assert token
    with intruder.calls(up) as line:
        answer = line.get("/api/v1/jobs", params={"page_token": token, "page_size": 500})
        other = line.get("/jobs", params={"page_token": token})
    told = answer.text + other.text
    assert [job for job in ids if job in told] == []
