"""emgeee/jobscheduler: the calls of its end-to-end suite and of its command line.

Its jobs name an image always; here they run as processes, so that no container runtime is needed.
`zen clients verify` runs the real suite, with containers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
import yaml

from tests.e2e.stack import ROOT, Stack, stack, wait_for

pytestmark = pytest.mark.slow
Json = dict[str, Any]
GONE = "12345678-1234-1234-1234-123456789012"


def with_executors(target: Path) -> Path:
    """CPU VMs that are kept ready, and a cluster with GPUs."""
    words = yaml.safe_load((ROOT / "config" / "zen.yaml").read_text())
    clusters = words["clusters"]
    cpu = clusters["0xcpu"]
    regions = dict(list(cpu["regions"].items())[:2])
    words["clusters"] = {
        "0xcpu": {**cpu, "vm_min": 2, "vm_max": 3, "regions": regions},
        "1xt4": {**clusters["1xt4"], "regions": clusters["1xt4"]["regions"][:2]},
    }
    del words["timers"]
    target.write_text(yaml.safe_dump(words))
    return target


@pytest.fixture(scope="module")
def up() -> Iterator[Stack]:
    with stack(config=with_executors) as made:
        yield made


@pytest.fixture
def api(up: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=up.api, timeout=10) as client:
        yield client


def submit(api: httpx.Client, *command: str, **resources: object) -> Json:
    asked = {"cpu_cores": 0.1, "memory_mb": 128, "gpu_count": 0, **resources}
    body = {"definition": {"name": "test-job", "command": list(command), "resources": asked}}
    answer = api.post("/jobs", json=body)
    assert answer.status_code == 201, answer.text
    found: Json = answer.json()
    return found


def executors(api: httpx.Client) -> list[Json]:
    found: list[Json] = api.get("/executors/healthy").json()["executors"]
    return found


def until(api: httpx.Client, job: Json, status: str) -> Json:
    def look() -> Json | None:
        found: Json = api.get(f"/jobs/{job['id']}").json()
        return found if found["status"] == status else None

    return wait_for(f"{job['id']} is {status}", look)


def test_the_system_is_ready(api: httpx.Client) -> None:
    """Healthy, and with an executor, before any job was submitted."""
    assert api.get("/health").json()["status"] == "healthy"
    found = wait_for("an executor", lambda: executors(api) or None)
    assert found[0]["executor_info"]["ip_address"]
    assert found[0]["available_resources"]["resources"]["cpu_cores"] == 4
    told = api.get("/status").json()
    assert (told["is_leader"], told["redis_connected"]) == (True, True)
    assert told["current_leader"]


def test_a_job_is_pending_when_it_was_submitted(api: httpx.Client) -> None:
    """Its id is a UUID; what it asked for is told again, zero GPUs as zero."""
    job = submit(api, "echo", "hello")
    assert str(UUID(job["id"])) == job["id"]
    assert job["status"] == "pending"
    asked = {"cpu_cores": 0.1, "memory_mb": 128, "gpu_type": None, "gpu_count": 0}
    assert job["definition"]["resources"] == asked
    assert api.get(f"/jobs/{job['id']}").json()["status"] == "pending"


def test_a_job_that_ends_at_once_was_assigned(api: httpx.Client) -> None:
    """A client that asks twice a second sees every state that its suite waits for."""
    job = submit(api, "echo", "success")
    assigned = until(api, job, "assigned")
    for field in ("assigned_executor_id", "assigned_at", "ip_address"):
        assert assigned[field], field
    ended = until(api, job, "succeeded")
    for field in ("finished_at", "started_at", "assigned_at"):
        assert ended[field], field
    assert ended["assigned_executor_id"] == assigned["assigned_executor_id"]
    listed = api.get("/jobs", params={"status_filter": "succeeded"}).json()["jobs"]
    assert job["id"] in [one["id"] for one in listed]


def test_a_job_that_fails(api: httpx.Client) -> None:
    """With its code, and why."""
    ended = until(api, submit(api, "sh", "-c", "exit 1"), "failed")
    assert (ended["exit_code"], bool(ended["error_message"])) == (1, True)
    assert ended["started_at"]


def test_what_fits_nowhere_is_pending_until_it_is_aborted(api: httpx.Client) -> None:
    """One core more than any executor has: accepted, never assigned, and nothing is bought."""
    most = max(e["available_resources"]["resources"]["cpu_cores"] for e in executors(api))
    job = submit(api, "sleep", "60", cpu_cores=most + 1)
    listed = api.get("/jobs", params={"status_filter": "pending"}).json()["jobs"]
    assert job["id"] in [one["id"] for one in listed]
    assert api.post(f"/jobs/{job['id']}/abort").status_code == 202
    aborted = until(api, job, "aborted")
    assert aborted["aborted_at"]
    assert aborted["assigned_executor_id"] is None


def test_a_running_job_is_aborted(api: httpx.Client) -> None:
    """While it runs nothing is left of its executor; afterwards it tells where it ran."""
    job = submit(api, "sleep", "60")
    running = until(api, job, "running")
    held = {e["executor_info"]["id"]: e for e in executors(api)}[running["assigned_executor_id"]]
    assert held["available_resources"]["resources"]["cpu_cores"] == 0
    assert held["assigned_jobs_count"] == 1
    assert api.post(f"/jobs/{job['id']}/abort").status_code == 202
    aborted = until(api, job, "aborted")
    assert aborted["aborted_at"]
    assert aborted["started_at"]
    assert aborted["assigned_executor_id"] == running["assigned_executor_id"]


def test_a_gpu_job_goes_to_a_vm_with_that_gpu(up: Stack, api: httpx.Client) -> None:
    """nvidia-t4 is our t4; a job without GPUs never goes there."""
    job = submit(api, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", gpu_count=1, gpu_type="nvidia-t4")
    assert job["definition"]["resources"]["gpu_type"] == "nvidia-t4"
    assert "1xt4" in until(api, job, "succeeded")["assigned_executor_id"]
    assert up.log(job["id"]) == "0\n"
    bare = until(api, submit(api, "sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]"), "succeeded")
    assert "0xcpu" in bare["assigned_executor_id"]
    assert up.log(bare["id"]) == "[]\n"


def test_a_job_that_does_not_exist(api: httpx.Client) -> None:
    """404 when it is asked for, 500 when it is to be aborted: its suite expects both."""
    assert api.get(f"/jobs/{GONE}").status_code == 404
    assert api.post(f"/jobs/{GONE}/abort").status_code == 500
