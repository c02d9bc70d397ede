"""Somebody stops the job or the group of another tenant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.intruders import VICTIM, WATCHING, Intruder, needs_tenants, refused
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(up: Stack) -> Iterator[str]:
    """A job that runs until the tests are done."""
    needs_tenants()
    job, release = up.submit_held(tenant_id=VICTIM, group="crew")
    up.wait(job, "RUNNING")
    yield job
    release.touch()
    up.wait(job, "SUCCEEDED")


@pytest.mark.parametrize("who", WATCHING)
def test_it_runs_on(up: Stack, running: str, intruder: Intruder) -> None:
    """By no route, and whatever the caller says about who they are."""
    tries = [
        ("POST", f"/api/v1/jobs/{running}/stop"),
        ("POST", f"/api/v1/jobs/{running}/stop?tenant_id={VICTIM}&user_id=0"),
        ("DELETE", f"/api/v1/jobs/{running}"),
        ("POST", "/api/v1/groups/crew/stop"),
        ("POST", "/api/v1/groups/crew/stop?user_id=0"),
        ("POST", f"/jobs/{running}/stop"),
        ("POST", f"/jobs/gcp/stop/{running}/0"),
    ]
    with intruder.calls(up) as line:
        answers = {
            f"{method} {path}": line.request(method, path, json={"by": "owner"})
            for method, path in tries
        }
        aborted = line.post(f"/jobs/{running}/abort", json={})
    assert {at: a.text for at, a in answers.items() if not refused(a, intruder.who)} == {}
    assert aborted.status_code >= 400
    assert up.job(running)["status"] == "RUNNING"
