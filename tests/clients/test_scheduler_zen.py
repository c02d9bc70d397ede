"""luminolabs/scheduler-zen: the calls that its USAGE.md tells its users to make, in both of its
ages. The commands themselves are run by `zen clients verify`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.stack import Stack, stack, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
ARGS = {"job_config_name": "llm_llama3_8b", "batch_size": 2, "shuffle": True, "num_epochs": 1}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """On the VMs the workflow runs until it is stopped."""
    programs = tmp_path_factory.mktemp("bin")
    workflow = programs / "torchtunewrapper"
    workflow.write_text("#!/bin/sh\nexec sleep 3600\n")
    workflow.chmod(0o755)
    programs.chmod(0o755)
    with stack(environ={"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}) as up:
        yield up


def call(service: Stack, method: str, path: str, body: Json | None = None) -> Json:
    answer = httpx.request(method, f"{service.api}{path}", json=body, timeout=10)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize(
    ("job_id", "place"),
    [
        ("of-today", {"gpu_type": "a100-40gb", "num_gpus": 2}),
        ("of-old", {"cluster": "2xa100-40gb"}),
    ],
)
def test_schedule_look_and_stop(service: Stack, job_id: str, place: Json) -> None:
    """By type and number, or by the name of the cluster: the job runs there, /status counts it in
    the words of both ages, and the stop that names only the job finds it."""
    body = {"job_id": job_id, "workflow": "torchtunewrapper", "args": ARGS, "keep_alive": False}
    assert call(service, "POST", "/jobs", {**body, **place}) == {"job_id": job_id, "status": "new"}

    def running() -> Json | None:
        seen = call(service, "GET", "/status")
        return seen if seen["running_jobs"] else None

    status = wait_for(f"{job_id} runs", running, 60)
    overall = status["overall_summary"]
    assert (status["running_jobs"], status["pending_jobs"]) == (1, overall["pending_jobs"])
    (cluster,) = [c for c in status["clusters"] if c["name"] == "2xa100-40gb"]
    assert cluster["cluster_summary"]["jobs"]["running"] == 1
    regions = {r["region"]: [r["target_size"], r["current_size"]] for r in cluster["regions"]}
    assert status["cluster_status"]["2xa100-40gb"] == regions
    assert call(service, "POST", f"/jobs/{job_id}/stop") == {"status": "stopping"}
    wait_for(f"{job_id} ends", lambda: running() is None or None, 60)
