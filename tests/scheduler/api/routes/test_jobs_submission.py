"""GET /jobs/{id}/submission: what to send for the same job again, and what of it stays hidden."""

from __future__ import annotations

from tests.access import bearer, known
from tests.scheduler.api.fakes import House, assert_error

JOBS = "/api/v1/jobs"
VIEWER, VIEWER_KEY = known("viewer000000", ("default", "viewer"), user_id="vic")
SUBMITTER, SUBMITTER_KEY = known("submitter000", ("default", "submitter"), user_id="sue")
ASKED = {"command": ["python3", "train.py"], "environment": {"SEED": "7"}, "gpu_count": 2}


async def test_submission_of_a_job_is_what_was_submitted() -> None:
    """Sent again it makes a job with the same fields under another id."""
    async with House().client() as client:
        await client.post(JOBS, json={**ASKED, "job_id": "one"})
        answer = (await client.get(f"{JOBS}/one/submission")).json()
        assert {name: answer["submission"][name] for name in ASKED} == ASKED
        assert (answer["hidden"], answer["array"]) == ([], None)
        again = await client.post(JOBS, json=answer["submission"])
        assert again.status_code == 201
        assert again.json()["job_id"] != "one"


async def test_hidden_values_are_left_out() -> None:
    """Who may not see the environment's values is told the names alone, and submits as itself."""
    async with House(keys=(VIEWER_KEY, SUBMITTER_KEY)).client() as client:
        await client.post(JOBS, json={**ASKED, "job_id": "one", "user_id": "eve"})
        for key in (VIEWER, SUBMITTER):
            answer = await client.get(f"{JOBS}/one/submission", headers=bearer(key))
            assert answer.json()["hidden"] == ["SEED"]
            assert not {"environment", "user_id"} & answer.json()["submission"].keys()
            assert '"7"' not in answer.text


async def test_array_as_a_whole() -> None:
    """Any job of an array leads to the submission of all; a single job has no such thing."""
    async with House().client() as client:
        await client.post(JOBS, json={**ASKED, "job_id": "sweep", "array": "1-3"})
        await client.post(JOBS, json={**ASKED, "job_id": "one"})
        whole = {"whole_array": "true"}
        answer = (await client.get(f"{JOBS}/sweep-2/submission", params=whole)).json()
        assert answer["submission"]["array"] == answer["array"] == "1-3"
        assert answer["submission"]["environment"] == {"SEED": "7"}
        refused = await client.get(f"{JOBS}/one/submission", params=whole)
        assert_error(refused, 422, "bad_input")
