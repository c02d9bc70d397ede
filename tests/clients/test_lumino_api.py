"""luminolabs/lumino-api: the calls of its scheduler client, and what its job status updater reads.

The service itself is run by `zen clients verify`."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.stack import Stack, stack, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
USER = "98765432-9876-5432-9876-987654321098"
Json = dict[str, Any]
# The program that stands for the workflow on our own workers: it says where it is, waits to be
# told to end, and leaves weights.
WORKFLOW = """#!{python}
import json, os, pathlib, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
target = pathlib.Path(os.environ["ZEN_OUTPUT_DIR"], "job-meta.json")
step = {{"step_num": 7, "step_len": 9, "epoch_num": 1, "epoch_len": 2}}
rows = [{{"operation": "step", "data": step}}]
target.write_text(json.dumps({{"job_logger": rows}}))
while not pathlib.Path(words["--dataset_id"]).exists():
    time.sleep(0.1)
rows.append({{"operation": "weights", "data": {{"base_url": "u", "weight_files": ["w"]}}}})
target.write_text(json.dumps({{"job_logger": rows}}))
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    programs = tmp_path_factory.mktemp("bin")
    workflow = programs / "torchtunewrapper"
    workflow.write_text(WORKFLOW.format(python=sys.executable))
    workflow.chmod(0o755)
    programs.chmod(0o755)
    with stack(environ={"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}) as up:
        yield up


def _shared(service: Stack) -> Path:
    """A directory that jobs see, since it is on the PATH of their VMs: /tmp is each job's own."""
    return Path(service.environ["PATH"].split(os.pathsep)[0])


def post(service: Stack, path: str, body: Json | None = None) -> httpx.Response:
    return httpx.post(f"{service.api}{path}", json=body, timeout=10)


def payload(job_id: str, release: str, **fields: object) -> Json:
    """What start_fine_tuning_job sends."""
    args = {
        "job_config_name": "llm_llama3_1_8b",
        "dataset_id": release,
        "batch_size": 2,
        "shuffle": True,
        "num_epochs": 1,
        "use_lora": True,
        "use_qlora": False,
        "num_gpus": 1,
    }
    return {
        "job_id": job_id,
        "workflow": "torchtunewrapper",
        "args": args,
        "gpu_type": "l4",
        "num_gpus": 1,
        "user_id": USER,
        "keep_alive": False,
        **fields,
    }


def update(service: Stack, job_id: str) -> Json:
    """What the updater reads of one job: all these fields are always there."""
    body = {"user_id": USER, "job_ids": [job_id]}
    (found,) = post(service, "/jobs/get_by_user_and_ids", body).json()
    assert {"job_id", "status", "timestamps", "artifacts"} <= found.keys()
    return dict(found)


def wait_status(service: Stack, job_id: str, status: str) -> Json:
    def look() -> Json | None:
        seen = update(service, job_id)
        return seen if seen["status"] == status else None

    return wait_for(f"{job_id} {status}", look, 60)


def test_progress_and_model_appear(service: Stack) -> None:
    """`artifacts.job_logger` holds the steps while the job runs, and the weights at its end; the
    times of the statuses are told."""
    job_id, release = str(uuid.uuid4()), _shared(service) / "release-well"
    answer = post(service, "/jobs/gcp", payload(job_id, str(release)))
    assert (answer.status_code, answer.json()) == (200, {"job_id": job_id, "status": "new"})

    def steps() -> Json | None:
        seen = update(service, job_id)
        return seen if seen["artifacts"].get("job_logger") else None

    running = wait_for("progress", steps, 60)
    assert running["status"] == "RUNNING"
    (row,) = running["artifacts"]["job_logger"]
    assert (row["operation"], row["data"]["step_num"], row["data"]["step_len"]) == ("step", 7, 9)
    release.touch()
    ended = wait_status(service, job_id, "COMPLETED")
    weights = [r["data"] for r in ended["artifacts"]["job_logger"] if r["operation"] == "weights"]
    assert weights == [{"base_url": "u", "weight_files": ["w"]}]
    times = ended["timestamps"]
    assert all(times[name] for name in ("new", "running", "completed"))
    assert times["failed"] is None


def test_refusals(service: Stack) -> None:
    """422 with a `message` for an id that exists and for a cluster that does not; 404 for the stop
    of a job that is not there; an unknown id is left out."""
    job_id, release = str(uuid.uuid4()), str(_shared(service) / "release-twice")
    assert post(service, "/jobs/gcp", payload(job_id, release)).status_code == 200
    again = post(service, "/jobs/gcp", payload(job_id, release))
    assert (again.status_code, "already exists" in again.json()["message"]) == (422, True)
    nowhere = payload(str(uuid.uuid4()), release, gpu_type="abacus")
    refused = post(service, "/jobs/gcp", nowhere)
    assert (refused.status_code, bool(refused.json()["message"])) == (422, True)
    assert post(service, f"/jobs/gcp/stop/{uuid.uuid4()}/{USER}").status_code == 404
    body = {"user_id": USER, "job_ids": [str(uuid.uuid4())]}
    assert post(service, "/jobs/get_by_user_and_ids", body).json() == []
    assert post(service, f"/jobs/gcp/stop/{job_id}/{USER}").json() == {"status": "stopping"}
    wait_status(service, job_id, "STOPPED")


def test_provider_lum(service: Stack) -> None:
    """POST /jobs/lum with the same payload answers the same; the job runs here."""
    job_id, release = str(uuid.uuid4()), _shared(service) / "release-lum"
    release.touch()
    answer = post(service, "/jobs/lum", payload(job_id, str(release)))
    assert (answer.status_code, answer.json()) == (200, {"job_id": job_id, "status": "new"})
    ended = wait_status(service, job_id, "COMPLETED")
    assert (ended["provider"], ended["gcp"]) == ("LUM", None)
    assert ended["lum"] == {"tx_hash": None, "lum_id": None}
