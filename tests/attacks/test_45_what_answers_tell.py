"""Somebody learns of other tenants from answers that are their own: a preview, a refusal, counts,
a conflict."""

from __future__ import annotations

import pytest

from tests.attacks.intruders import OTHER, SECRET, VICTIM, Intruder, needs_tenants, victim_job
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("who", ["member of another tenant"])
def test_no_answer_names_another_tenants_job(up: Stack, intruder: Intruder) -> None:
    """A preview, the fleet, the service, costs and VMs are told without the jobs of others."""
    job = victim_job(up, job_id="merger-plans")
    with intruder.calls(up) as line:
        told = [
            line.post("/api/v1/jobs?dry_run=true", json={"command": ["true"]}).text,
            *(line.get(path).text for path in ("/api/v1/status", "/api/v1/clusters", "/stats")),
            *(line.get(path).text for path in ("/api/v1/capacity", "/executors", "/status")),
            *(line.get(path).text for path in ("/executors/healthy", "/api/v1/tenants")),
            line.get("/api/v1/cost?by=job").text,
            line.get("/api/v1/cost?by=tenant").text,
        ]
    words = (job, SECRET, f'"{VICTIM}"')
    assert [text for text in told if any(word in text for word in words)] == []


@pytest.mark.parametrize("who", ["member of another tenant"])
def test_another_tenants_job_and_no_job_are_answered_alike(up: Stack, intruder: Intruder) -> None:
    """Whether an id is taken elsewhere cannot be told from the answer."""
    victim_job(up, job_id="merger-plans-2")
    with intruder.calls(up) as line:
        for path in ("/api/v1/jobs/{}", "/api/v1/jobs/{}/logs", "/api/v1/jobs/{}/artifacts"):
            there = line.get(path.format("merger-plans-2"))
            nowhere = line.get(path.format("merger-plans-9"))
            assert there.status_code == nowhere.status_code == 404
            assert there.json()["error"].replace("plans-2", "") == (
                nowhere.json()["error"].replace("plans-9", "")
            )


@pytest.mark.parametrize("who", ["member of another tenant"])
def test_a_job_may_have_an_id_that_another_tenant_has(up: Stack, intruder: Intruder) -> None:
    """Its own job, with its own command."""
    needs_tenants()
    up.submit("true", job_id="shared-name", tenant_id=VICTIM)
    with intruder.calls(up) as line:
        body = {"command": ["false"], "job_id": "shared-name"}
        mine = line.post("/api/v1/jobs", json=body)
        assert mine.status_code == 201, mine.text
        assert line.get("/api/v1/jobs/shared-name").json()["tenant_id"] == OTHER
