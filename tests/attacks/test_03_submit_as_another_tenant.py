"""Somebody submits as another tenant or as another user."""

from __future__ import annotations

import pytest

from tests.attacks.intruders import OTHER, VICTIM, WATCHING, Intruder, needs_tenants, refused
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("who", WATCHING)
def test_no_job_of_the_tenant_is_made(up: Stack, intruder: Intruder) -> None:
    """By no route: neither a job, nor a preview, nor one job of an array."""
    command = {"command": ["true"], "tenant_id": VICTIM}
    tries = {
        "/api/v1/jobs": command,
        "/api/v1/jobs?dry_run=true": command,
        "/jobs/gcp": {"job_id": "forged", "user_id": "0", "tenant_id": VICTIM, "args": {}},
    }
    with intruder.calls(up) as line:
        before = up.get("/jobs", tenant_id=VICTIM)["total"]
        answers = {path: line.post(path, json=body) for path, body in tries.items()}
    native = {path: a.text for path, a in answers.items() if path.startswith("/api")}
    assert {p: t for p, t in native.items() if not refused(answers[p], intruder.who)} == {}
    assert answers["/jobs/gcp"].status_code >= 400
    assert up.get("/jobs", tenant_id=VICTIM)["total"] == before


@pytest.mark.parametrize("who", ["member of another tenant"])
def test_the_user_is_the_keys(up: Stack, intruder: Intruder) -> None:
    """A name in the body is refused without the scope on-behalf-of; without one it is the key's."""
    needs_tenants()
    with intruder.calls(up) as line:
        forged = line.post("/api/v1/jobs", json={"command": ["true"], "user_id": "boss"})
        plain = line.post("/api/v1/jobs", json={"command": ["true"]})
        assert forged.status_code == 403
        assert plain.status_code == 201, plain.text
        job = line.get(f"/api/v1/jobs/{plain.json()['job_id']}").json()
    assert job["tenant_id"] == OTHER
    assert job["user_id"].startswith("intruder-")
