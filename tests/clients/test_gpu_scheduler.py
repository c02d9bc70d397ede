"""AzizBahloul/gpu-scheduler: the calls of its README, its demos and its Go command line."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.access import bearer
from tests.e2e.stack import Stack, shipped_config, stack, wait_for

pytestmark = pytest.mark.slow
Json = dict[str, Any]

ENDED = ("completed", "failed", "cancelled")
QUOTAS = {
    "max_gpus": 12,
    "max_gpu_memory_mb": 150000,
    "max_cpu_cores": 48,
    "max_memory_mb": 400000,
    "max_concurrent_jobs": 10,
}


@pytest.fixture(scope="module")
def metrics_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def up(metrics_port: int) -> Iterator[Stack]:
    settings = {"ZEN_API__METRICS_PORT": str(metrics_port), "ZEN_API__CORS_ORIGINS": "*"}
    with stack(environ=settings, config=shipped_config) as made:
        yield made


@pytest.fixture
def api(up: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{up.api}/api/v1", timeout=10) as client:
        yield client


def tenant(api: httpx.Client, **settings: object) -> str:
    """By its name alone, as those clients do."""
    answer = api.post("/tenants", json={"name": "AI Research Team", **settings})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def go_cli_job(tenant_id: str, **facts: object) -> Json:
    """What `gpu-cli submit` sends: these nine fields, always."""
    return {
        "tenant_id": tenant_id,
        "name": "my-job",
        "priority": 100,
        "gpu_count": 1,
        "gpu_memory_mb": 16000,
        "cpu_cores": 4,
        "memory_mb": 32000,
        "image": "nvidia/cuda:12.0-base",
        "script": "nvidia-smi",
        **facts,
    }


def test_the_workflow_of_the_readme(api: httpx.Client) -> None:
    """Jobs of 8, 2 and 1 GPUs are accepted under one tenant: 80,000 MB of GPU memory count once
    against its quota, not eight times."""
    owner = tenant(api, **QUOTAS)
    jobs = [
        {"gpu_count": 8, "priority": 2000, "gpu_memory_mb": 80000, "cpu_cores": 32,
         "memory_mb": 128000, "image": "pytorch:2.0-cuda11.8"},
        {"gpu_count": 2, "priority": 500, "image": "tensorflow:2.13-gpu"},
        {"gpu_count": 1, "priority": 100, "image": "cuda:11.8-base"},
    ]  # fmt: skip
    for facts in jobs:
        body = {"name": "🔥 Training", "tenant_id": owner, "command": ["python", "x.py"], **facts}
        answer = api.post("/jobs", json=body)
        assert answer.status_code == 201, answer.text
        assert answer.json()["status"] == "submitted"
        assert answer.json()["job_id"]
    listed = api.get("/jobs", params={"tenant_id": owner}).json()
    assert [job["priority"] for job in listed["jobs"]] == [100, 500, 2000]
    assert {job["name"] for job in listed["jobs"]} == {"🔥 Training"}


def test_tenants_of_one_name(api: httpx.Client) -> None:
    """Every call makes another tenant; the list shows them all, and each is found by its id."""
    one, two = tenant(api, max_gpus=8), tenant(api, max_gpus=16)
    assert one != two
    assert {one, two} <= {row["id"] for row in api.get("/tenants").json()["tenants"]}
    assert api.get(f"/tenants/{two}").json()["max_gpus"] == 16


def test_the_go_command_line(api: httpx.Client) -> None:
    """create-tenant with tier medium, submit with a script, list, get, cancel: the answers hold
    what the program decodes, in the types that it asserts."""
    tier = {"max_gpus": 10, "max_cpu_cores": 64, "max_memory_mb": 256000, "priority_tier": "medium"}
    owner = tenant(api, **tier)
    job_id = api.post("/jobs", json=go_cli_job(owner)).json()["job_id"]
    page = api.get("/jobs", params={"tenant_id": owner}).json()
    assert page["total"] == 1
    (row,) = page["jobs"]
    assert (row["id"], row["name"], row["gpu_count"], row["priority"]) == (
        *(job_id, "my-job"),
        *(1, 100),
    )
    assert row["submitted_at"].endswith("Z")
    found = api.get(f"/jobs/{job_id}").json()
    assert found["job_id"] == job_id
    assert found["state"] in ("pending", "scheduled", "running")
    assert isinstance(found["queue_position"], int)
    gone = api.delete(f"/jobs/{job_id}")
    assert (gone.status_code, bool(gone.json()["message"])) == (200, True)
    assert api.get("/jobs", params={"tenant_id": owner, "state": "pending"}).json()["jobs"] == []


def test_a_script_runs_to_its_end(up: Stack, api: httpx.Client) -> None:
    """With /bin/sh -c; while it runs the job names its node and its GPUs."""
    body = go_cli_job(tenant(api), image="", script="echo begun; sleep 2; echo a; echo b | tr b c")
    job_id = api.post("/jobs", json=body).json()["job_id"]

    def running() -> Json | None:
        job: Json = api.get(f"/jobs/{job_id}").json()
        return job if job["state"] == "running" else None

    job = wait_for("it runs", running, 60)
    assert job["node_name"] == job["vm"]["name"]
    assert job["allocated_gpus"] == [f"{job['node_name']}/0"]
    job = up.wait(job_id)
    assert (job["state"], up.log(job_id)) == ("completed", "begun\na\nc\n")


def test_quota_refusal(api: httpx.Client) -> None:
    """403 and the sentence that those clients show."""
    owner = tenant(api, max_gpus=4)
    answer = api.post("/jobs", json=go_cli_job(owner, gpu_count=8))
    assert answer.status_code == 403
    assert answer.json()["error"] == (
        f"quota exceeded for tenant {owner}: GPUs requested=8, quota=4, current=0"
    )


def test_lists_are_paged(api: httpx.Client) -> None:
    """By limit and offset."""
    owner = tenant(api)
    ids = [api.post("/jobs", json=go_cli_job(owner)).json()["job_id"] for _ in range(3)]
    asked: dict[str, str | int] = {"tenant_id": owner, "limit": 1, "offset": 1}
    assert [job["id"] for job in api.get("/jobs", params=asked).json()["jobs"]] == [ids[1]]


def test_monitors_and_browsers(up: Stack, api: httpx.Client, metrics_port: int) -> None:
    """/health beside the API, metrics under their names on a port of their own, CORS for any
    origin, and seven counts of the cluster that a program reads as numbers."""
    root = up.api
    assert httpx.get(f"{root}/health").json()["status"] == "healthy"
    metrics = httpx.get(f"http://127.0.0.1:{metrics_port}/metrics", headers=bearer(up.key)).text
    for name in ("jobs_total", "queue_size", "gpu_utilization", "scheduling_latency"):
        assert f"gpu_scheduler_{name}" in metrics
    asks = {"Origin": "https://dash.example", "Access-Control-Request-Method": "POST"}
    assert httpx.options(f"{root}/api/v1/jobs", headers=asks).status_code == 200
    counts = api.get("/cluster/status").json()
    assert len(counts) == 7
    assert all(isinstance(count, int) for count in counts.values())
