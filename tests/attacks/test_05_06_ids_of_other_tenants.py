"""Taking a job id that another tenant wants, and waiting for another tenant's job to learn its
end."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

Clients = tuple[httpx.Client, httpx.Client]


def client_of(up: Stack, tenant_id: str) -> httpx.Client:
    """Of a member of the tenant. The two tenants' users have the same name."""
    body = {"name": tenant_id, "tenant_id": tenant_id, "role": "member", "user_id": "ada"}
    answer = httpx.post(f"{up.api}/api/v1/keys", json=body, timeout=10)
    assert answer.status_code == 201, answer.text
    bearer = {"authorization": f"Bearer {answer.json()['key']}"}
    return httpx.Client(base_url=up.run["api"], headers=bearer, timeout=10)


@pytest.fixture(scope="module")
def clients(up: Stack) -> Iterator[Clients]:
    with client_of(up, "red") as red, client_of(up, "blue") as blue:
        yield red, blue


def held(job_id: str | None, word: str) -> dict[str, object]:
    """A job that stays in the queue: no cluster has such a VM to spare."""
    body = {"command": ["echo", word], "environment": {"WORD": word}, "gpu_type": "a100-40gb"}
    return {**body, "gpu_count": 2, **({} if job_id is None else {"job_id": job_id})}


def test_an_id_cannot_be_taken_from_another_tenant(up: Stack, clients: Clients) -> None:
    """Both have it, each sees and stops its own; who may see both must say which one is meant."""
    for client, word in zip(clients, ("red", "blue"), strict=True):
        assert client.post("/api/v1/jobs", json=held("train", word)).status_code == 201
    for client, word in zip(clients, ("red", "blue"), strict=True):
        job = client.get("/api/v1/jobs/train").json()
        assert (job["tenant_id"], job["environment"]) == (word, {"WORD": word})
        assert client.post("/api/v1/jobs", json=held("train", "other")).status_code == 409
    red, blue = clients
    assert red.post("/api/v1/jobs/train/stop").status_code == 202
    assert blue.get("/api/v1/jobs/train").json()["status"] not in ("CANCELLED", "STOPPING")
    both = httpx.get(f"{up.api}/api/v1/jobs/train", timeout=10)
    assert (both.status_code, "tenant_id" in both.text) == (409, True)
    one = httpx.get(f"{up.api}/api/v1/jobs/train?tenant_id=red", timeout=10)
    assert one.json()["tenant_id"] == "red"
    assert blue.post("/api/v1/jobs/train/stop").status_code == 202


def test_an_idempotency_key_is_its_tenants(clients: Clients) -> None:
    """The same key of two tenants makes two jobs."""
    headers = {"idempotency-key": "nightly"}
    answers = [
        client.post("/api/v1/jobs", json=held(None, word), headers=headers)
        for client, word in zip(clients, ("red", "blue"), strict=True)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    for client, answer, word in zip(clients, answers, ("red", "blue"), strict=True):
        job_id = answer.json()["job_id"]
        assert client.get(f"/api/v1/jobs/{job_id}").json()["tenant_id"] == word
        assert client.post(f"/api/v1/jobs/{job_id}/stop").status_code == 202


def test_clients_that_know_no_tenant_have_their_own(clients: Clients) -> None:
    """On the routes of version 1 a job id is free, found and stopped in the caller's tenant."""
    body = {"job_id": "tune", "workflow": "echo", "gpu_type": "a100-40gb", "num_gpus": 2}
    for client in clients:
        assert client.post("/jobs/gcp", json=body).status_code == 200
        assert client.post("/jobs/gcp", json=body).status_code == 422
    red, blue = clients
    assert red.post("/jobs/gcp/stop/tune/ada").json() == {"status": "stopping"}
    question = {"user_id": "ada", "job_ids": ["tune"]}
    (left,) = blue.post("/jobs/get_by_user_and_ids", json=question).json()
    assert left["status"] in ("NEW", "WAIT_FOR_VM")
    assert blue.post("/jobs/gcp/stop/tune/ada").json() == {"status": "stopping"}


@pytest.mark.parametrize("secret", ["secret", "secrets"])
def test_nobody_waits_for_another_tenants_job(clients: Clients, secret: str) -> None:
    """Its job and its group are answered as what there is not, word for word."""
    red, blue = clients
    body = {**held("secret", "red"), "group": "secrets"}
    assert red.post("/api/v1/jobs", json=body).status_code == 201
    refused = [
        blue.post("/api/v1/jobs", json={**held("spy", "blue"), "after": [f"{name}:any"]})
        for name in (secret, "nothing")
    ]
    assert [answer.status_code for answer in refused] == [422, 422]
    told, nothing = (answer.json()["error"] for answer in refused)
    assert told == nothing.replace("nothing", secret)
    assert blue.get("/api/v1/jobs/spy").status_code == 404
