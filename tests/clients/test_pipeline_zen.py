"""luminolabs/pipeline-zen: what its start-up and listener scripts say and do, call by call.

The test plays the worker: it pulls with auto-ack, speaks and deletes the VM with the calls that
`gcloud` makes for the scripts. The scripts themselves are run by `zen clients verify`.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.stack import Stack, project_of, small_config, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
CLUSTER = "1xl4"
START, STOP = f"pipeline-zen-jobs-start-runner-{CLUSTER}", "pipeline-zen-jobs-stop-runner"
HEARTBEATS = "pipeline-zen-jobs-heartbeats"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One cluster with v1 workers; nobody but the test works on its VMs."""
    with tempfile.TemporaryDirectory(prefix="zen-e2e-") as directory:
        config = small_config(Path(directory) / "zen.yaml")
        words = yaml.safe_load(config.read_text())
        v1 = {
            **words["clusters"][CLUSTER],
            "worker": "v1",
            "trusted_tenants_only": True,
            "regions": ["us-central1"],
        }
        words["clusters"] = {CLUSTER: v1}
        words["v1_results_url"] = f"file://{directory}/results-{{multi_region}}"
        config.write_text(yaml.safe_dump(words))
        made = Stack(Path(directory) / "home", config)
        try:
            made.up()
            yield made
        finally:
            made.zen("down", check=False)
            for process in made.processes():
                process.kill()


@dataclass(frozen=True, slots=True)
class Worker:
    """The calls of one VM's scripts."""

    stack: Stack
    job_id: str
    vm_name: str
    message: Json

    @classmethod
    def takes(cls, stack: Stack, job_id: str) -> Worker:
        """Boots, pulls one start message with auto-ack."""
        message = wait_for(f"a start message for {job_id}", lambda: pulled(stack, START))
        acked(stack, START, message)
        body = json.loads(base64.b64decode(message["message"]["data"]))
        assert body["job_id"] == job_id
        booting = (vm for vm in stack.get("/vms")["vms"] if vm["state"] == "BOOTING")
        return cls(stack, job_id, next(booting)["name"], {**message, "body": body})

    def says(self, status: str) -> None:
        words = {"job_id": self.job_id, "user_id": "ada", "status": status}
        data = base64.b64encode(json.dumps({**words, "vm_name": self.vm_name}).encode()).decode()
        bus(self.stack, f"topics/{HEARTBEATS}:publish", {"messages": [{"data": data}]})

    def deletes_its_vm(self) -> None:
        """gcloud compute instances delete NAME --zone ZONE --quiet"""
        (vm,) = [vm for vm in self.stack.get("/vms")["vms"] if vm["name"] == self.vm_name]
        project = project_of(self.stack)
        path = f"/compute/v1/projects/{project}/zones/{vm['zone']}/instances/{self.vm_name}"
        answer = httpx.delete(f"{self.stack.run['sim']}{path}", timeout=10)
        assert answer.status_code == 200, answer.text


def bus(stack: Stack, path: str, body: Json) -> Json:
    url = f"{stack.run['bus_rest']}/v1/projects/{project_of(stack)}/{path}"
    answer = httpx.post(url, json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def pulled(stack: Stack, subscription: str) -> Json | None:
    found = bus(stack, f"subscriptions/{subscription}:pull", {"maxMessages": 1})
    messages = found.get("receivedMessages", [])
    return dict(messages[0]) if messages else None


def acked(stack: Stack, subscription: str, message: Json) -> None:
    bus(stack, f"subscriptions/{subscription}:acknowledge", {"ackIds": [message["ackId"]]})


def submit(stack: Stack, job_id: str, **fields: object) -> None:
    body = {
        "job_id": job_id,
        "user_id": "ada",
        "workflow": "torchtunewrapper",
        "args": {"batch_size": 2, "num_gpus": 9, "override_env": "dev"},
        "gpu_type": "l4",
        **fields,
    }
    answer = httpx.post(f"{stack.api}/jobs/gcp", json=body, timeout=10)
    assert answer.status_code == 200, answer.text


def job_of(stack: Stack, job_id: str) -> Json:
    body = {"user_id": "ada", "job_ids": [job_id]}
    url = f"{stack.api}/jobs/get_by_user_and_ids"
    return dict(httpx.post(url, json=body, timeout=10).json()[0])


def wait_status(stack: Stack, job_id: str, status: str) -> Json:
    def look() -> Json | None:
        seen = job_of(stack, job_id)
        return seen if seen["status"] == status else None

    return wait_for(f"{job_id} {status}", look)


def test_road_of_a_job(stack: Stack) -> None:
    """The start message says what the scripts read; FOUND_VM, RUNNING and COMPLETED are the job's
    statuses; what the workflow stored in its bucket is its `artifacts`; the VM deletes itself."""
    submit(stack, "well")
    worker = Worker.takes(stack, "well")
    body = worker.message["body"]
    assert body["gcp"] == {"keep_alive": False, "cluster": CLUSTER}
    assert (body["user_id"], body["workflow"]) == ("ada", "torchtunewrapper")
    whose = {"job_id": "well", "user_id": "ada", "num_gpus": "1"}
    assert body["args"] == {"batch_size": 2, **whose}
    assert (body["override_env"], worker.message["message"]["attributes"]) == (
        "dev",
        {"cluster": CLUSTER},
    )
    worker.says("FOUND_VM")
    assert wait_status(stack, "well", "FOUND_VM")["gcp"]["vm_name"] == worker.vm_name
    worker.says("RUNNING")
    wait_status(stack, "well", "RUNNING")
    assert pulled(stack, STOP) is None
    stored = stack.home.parent / "results-us" / "ada" / "well" / "job-meta.json"
    stored.parent.mkdir(parents=True)
    meta = {"job_logger": [{"operation": "step", "data": {"step_num": 1}}]}
    stored.write_text(json.dumps(meta))
    wait_for("artifacts", lambda: job_of(stack, "well")["artifacts"] == meta or None)
    worker.says("COMPLETED")
    wait_status(stack, "well", "COMPLETED")
    worker.deletes_its_vm()
    wait_for("no VM", lambda: not stack.get("/vms")["vms"] or None)


def test_failure(stack: Stack) -> None:
    """FAILED ends the job."""
    submit(stack, "badly")
    worker = Worker.takes(stack, "badly")
    worker.says("FOUND_VM")
    worker.says("FAILED")
    wait_status(stack, "badly", "FAILED")
    worker.deletes_its_vm()


def test_stop(stack: Stack) -> None:
    """The stop message is in the subscription that all VMs share; a VM that got another's gives it
    back (an ack deadline of 0), its own says STOPPED."""
    submit(stack, "stopped")
    worker = Worker.takes(stack, "stopped")
    worker.says("FOUND_VM")
    worker.says("RUNNING")
    wait_status(stack, "stopped", "RUNNING")
    url = f"{stack.api}/jobs/gcp/stop/stopped/ada"
    assert httpx.post(url, timeout=10).json() == {"status": "stopping"}
    stop = wait_for("a stop message", lambda: pulled(stack, STOP))
    words = {"ackIds": [stop["ackId"]], "ackDeadlineSeconds": 0}
    bus(stack, f"subscriptions/{STOP}:modifyAckDeadline", words)
    stop = wait_for("the stop message again", lambda: pulled(stack, STOP))
    body = json.loads(base64.b64decode(stop["message"]["data"]))
    assert body == {"action": "stop", "job_id": "stopped"}
    acked(stack, STOP, stop)
    worker.says("STOPPED")
    wait_status(stack, "stopped", "STOPPED")
    worker.deletes_its_vm()


def test_keep_alive(stack: Stack) -> None:
    """The start message says so, and the VM is its owner's afterwards."""
    submit(stack, "kept", keep_alive=True)
    worker = Worker.takes(stack, "kept")
    assert worker.message["body"]["gcp"]["keep_alive"] is True
    worker.says("FOUND_VM")
    worker.says("COMPLETED")
    wait_status(stack, "kept", "COMPLETED")
    (vm,) = [vm for vm in stack.get("/vms")["vms"] if vm["name"] == worker.vm_name]
    assert (vm["state"], vm["reason"].startswith("kept for ada until ")) == ("DRAINING", True)
