"""Somebody reads a job of any tenant without naming one: environment, logs, artifacts."""

from __future__ import annotations

import pytest

from tests.attacks.intruders import (
    SECRET,
    VICTIM,
    WITHOUT,
    Intruder,
    owner,
    refused,
    victim_job,
)
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

OF_A_JOB = ("", "/events", "/waits", "/members", "/attempts", "/logs", "/artifacts")


@pytest.fixture(scope="module")
def job(up: Stack) -> str:
    return victim_job(up)


@pytest.mark.parametrize("who", WITHOUT)
def test_a_job_is_not_there_for_others(up: Stack, job: str, intruder: Intruder) -> None:
    """Not by its id, not by its user, not by naming its tenant, not by other systems' routes."""
    about = [f"/api/v1/jobs/{job}{part}" for part in OF_A_JOB]
    about += [f"{path}?tenant_id={VICTIM}" for path in about]
    about += [f"/api/v1/jobs/{job}?user_id=0", f"/api/v1/jobs/{job}/artifacts/file?path=x"]
    about += [f"/jobs/{job}"]
    with intruder.calls(up) as line:
        answers = {path: line.get(path) for path in about}
    told = {path: a.text for path, a in answers.items() if not refused(a, intruder.who)}
    assert told == {}


@pytest.mark.parametrize("who", WITHOUT)
def test_lists_leave_it_out(up: Stack, job: str, intruder: Intruder) -> None:
    """Also lists that name the tenant, the user, or the job."""
    lists = ("/api/v1/jobs", f"/api/v1/jobs?tenant_id={VICTIM}", "/api/v1/jobs?user_id=0", "/jobs")
    with intruder.calls(up) as line:
        told = [line.get(path).text for path in lists]
        asked = {"user_id": "0", "job_ids": [job]}
        told.append(line.post("/jobs/get_by_user_and_ids", json=asked).text)
        told.append(line.get(f"/api/v1/cost?tenant={VICTIM}&by=job").text)
        told.append(line.get(f"/api/v1/tenants/{VICTIM}").text)
    assert [text for text in told if SECRET in text or f'"{job}"' in text] == []


@pytest.mark.parametrize("who", ["viewer of the tenant"])
def test_a_viewer_of_the_tenant_sees_no_values(up: Stack, job: str, intruder: Intruder) -> None:
    """Names of the environment, not its values: on each route that shows a job."""
    with intruder.calls(up) as line:
        shown = line.get(f"/api/v1/jobs/{job}")
        told = [shown.text, line.get("/api/v1/jobs").text, line.get(f"/jobs/{job}").text]
        told += [line.get(f"/api/v1/jobs/{job}{part}").text for part in OF_A_JOB if part != "/logs"]
    assert shown.status_code == 200
    assert list(shown.json()["environment"]) == ["TOKEN"]
    assert [text for text in told if SECRET in text] == []


def test_the_owner_sees_it(up: Stack, job: str) -> None:
    """So the tests above look at something that is there."""
    with owner(up) as line:
        assert SECRET in line.get(f"/api/v1/jobs/{job}").text
        assert SECRET in line.get(f"/api/v1/jobs/{job}/logs").text
