"""luminolabs/pipeline-zen: its start-up and listener scripts on pretend VMs, with real `gcloud`.

The scripts run as they are. What a VM would have besides stands in: its host name, the image that
`docker run` starts (a small program that trains nothing), and Secret Manager. The 30 s that the
scripts wait twice are waited.
"""

from __future__ import annotations

import base64
import json
import shlex
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from config.load import DEFAULT_PATH
from core.vm import VmState
from tests.clients.programs.frame import WORDS_MAX, ClientCheck, ClientProgram, ClientSetup

PROJECT, CLUSTER, BUCKET = "eng-ai-dev", "1xa100-40gb", "lum-dev-pipeline-zen-jobs"
END_S = 240.0
"""From a submission to its end: two waits of 30 s, and `gcloud` on a busy machine."""
Json = dict[str, Any]

WORKER = """#!/bin/bash
# The VM as its image would be: the program below the working directory, and what is on PATH.
export PATH={bin}:$PATH VM_SCRATCH={scratch}
cp -r {checkout}/scripts {checkout}/VERSION . && touch .gcp
echo "connect-to = \\"metadata.google.internal:80:$GCE_METADATA_HOST\\"" > "$HOME/.curlrc"
exec ./scripts/mig-runtime/startup-script.sh
"""
UNAME = """#!/bin/bash
[ "$1" = -n ] || exec /bin/uname "$@"
exec curl -s -H "Metadata-Flavor: Google" \\
  http://metadata.google.internal/computeMetadata/v1/instance/name
"""
DOCKER = """#!/bin/bash
# docker run <options> IMAGE python pipeline/<workflow>_wf.py <arguments>
while [ $# -gt 0 ] && [ "$1" != python ]; do shift; done
exec {python} -P {workflow} "$@"
"""
WORKFLOW = '''"""Writes what a workflow writes: job-meta.json, and .finished if it went well."""
import json, os, pathlib, sys, time

words = dict(zip(sys.argv[3::2], sys.argv[4::2]))
job, user = words["--job_id"], words["--user_id"]
steps, ends = int(words.get("--steps", 3)), words.get("--ends", "well")
bucket = pathlib.Path(os.environ["VM_SCRATCH"], "results", "lum-dev-pipeline-zen-jobs-us")
here, there = pathlib.Path(".results", user, job), bucket / user / job
for directory in (here, there):
    directory.mkdir(parents=True, exist_ok=True)
rows = []

def log(operation, **data):
    rows.append({"job_id": job, "user_id": user, "operation": operation, "data": data})
    for directory in (here, there):
        new = directory / "new.json"
        new.write_text(json.dumps({"job_logger": rows}))
        new.rename(directory / "job-meta.json")

with pathlib.Path(os.environ["VM_SCRATCH"], f"{job}.ran").open("a") as begun:
    begun.write(os.environ["ZEN_VM_DIR"] + "\\n")
for step in range(1, steps + 1):
    log("step", step_num=step, step_len=steps, epoch_num=1, epoch_len=1)
    time.sleep(1)
if ends == "badly":
    sys.exit("the workflow fails, as it was told to")
log("weights", base_url=f"https://storage.googleapis.com/{bucket.name}/{user}/{job}",
    weight_files=["epoch_0/model.safetensors"], other_files=["epoch_0/config.json"])
(here / ".finished").touch()
'''


class _Secrets(BaseHTTPRequestHandler):
    """Secret Manager, as far as `gcloud secrets versions access` asks."""

    def do_GET(self) -> None:
        secret = base64.b64encode(b"PZ_DEVICE=cpu").decode()
        body = json.dumps({"name": self.path[4:], "payload": {"data": secret}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def _environ(checkout: Path, scratch: Path) -> Mapping[str, str]:
    """What pretend VMs are made of, and where the scripts find Google."""
    programs = scratch / "bin"
    programs.mkdir()
    workflow = scratch / "workflow.py"
    workflow.write_text(WORKFLOW, encoding="utf-8")
    python, quoted = shlex.quote(sys.executable), shlex.quote(str(workflow))
    _program(programs / "uname", UNAME)
    _program(programs / "docker", DOCKER.format(python=python, workflow=quoted))
    worker = scratch / "worker.sh"
    places = {"bin": programs, "scratch": scratch, "checkout": checkout}
    words = {name: shlex.quote(str(path)) for name, path in places.items()}
    _program(worker, WORKER.format(**words))
    secrets = ThreadingHTTPServer(("127.0.0.1", 0), _Secrets)
    threading.Thread(target=secrets.serve_forever, daemon=True).start()
    return {
        "ZEN_V1_WORKER": str(worker),
        "ZEN_V1_METADATA": "PZ_ENV=dev",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER": (
            f"http://127.0.0.1:{secrets.server_port}/"
        ),
    }


def _program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _config(scratch: Path) -> Path:
    """One cluster with v1 workers, in the project that the scripts name."""
    target = scratch / "v1.yaml"
    words = yaml.safe_load(DEFAULT_PATH.read_text(encoding="utf-8"))
    del words["timers"]
    place = {"worker": "v1", "trusted_tenants_only": True, "vm_max": 4, "regions": ["us-central1"]}
    words["project"] = PROJECT
    words["v1_results_url"] = f"file://{scratch}/results/{BUCKET}-{{multi_region}}"
    words["clusters"] = {CLUSTER: {**words["clusters"][CLUSTER], **place}}
    target.write_text(yaml.safe_dump(words), encoding="utf-8")
    return target


@dataclass(frozen=True, slots=True)
class _LuminoClient:
    """Talks to the stack as lumino-api does."""

    setup: ClientSetup

    def submit(self, job_id: str, keep_alive: bool = False, **args: object) -> None:
        body = {
            "job_id": job_id,
            "user_id": "ada",
            "workflow": "torchtunewrapper",
            "args": {"job_config_name": "llm_dummy", **args},
            "gpu_type": CLUSTER.partition("x")[2],
            "num_gpus": 1,
            "keep_alive": keep_alive,
        }
        httpx.post(f"{self.setup.api}/jobs/gcp", json=body, timeout=10).raise_for_status()

    def job(self, job_id: str) -> Json:
        body = {"user_id": "ada", "job_ids": [job_id]}
        answer = httpx.post(f"{self.setup.api}/jobs/get_by_user_and_ids", json=body, timeout=10)
        return dict(answer.raise_for_status().json()[0])

    def stop(self, job_id: str) -> None:
        url = f"{self.setup.api}/jobs/gcp/stop/{job_id}/ada"
        httpx.post(url, timeout=10).raise_for_status()

    def events(self, job_id: str) -> list[str]:
        url = f"{self.setup.api}/api/v1/jobs/{job_id}/events"
        answer = httpx.get(url, params={"user_id": "ada", "page_size": 500}, timeout=10)
        return [str(event["event"]) for event in answer.raise_for_status().json()["events"]]

    def vms(self) -> list[Json]:
        answer = httpx.get(f"{self.setup.api}/api/v1/vms", timeout=10)
        return list(answer.raise_for_status().json()["vms"])

    def ran(self, job_id: str) -> int:
        """How often its workflow was begun."""
        path = self.setup.scratch / f"{job_id}.ran"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def wait(self, what: str, look: Callable[[], object]) -> str:
        """Empty once it is so; else what never came."""
        for _ in range(int(END_S)):
            if look():
                return ""
            time.sleep(1)
        return f"not within {END_S:g} s: {what}"


def checks(setup: ClientSetup) -> Iterator[ClientCheck]:
    """Jobs that end well, badly, by a stop, with their VM kept, and after their VM has died."""
    client = _LuminoClient(setup)
    client.submit("well", steps=25)
    client.submit("badly", ends="badly")
    client.submit("stopped", steps=600)
    client.submit("kept", keep_alive=True)
    yield _ends(client, "completes", "well", "COMPLETED")
    yield _progress(client)
    yield _ends(client, "fails", "badly", "FAILED")
    yield _stops(client)
    yield _keeps(client)
    yield _dies(client)
    yield _leaves_nothing(client)


def _ends(client: _LuminoClient, name: str, job_id: str, status: str) -> ClientCheck:
    late = client.wait(
        f"{job_id} ended",
        lambda: client.job(job_id)["status"] in ("COMPLETED", "FAILED", "STOPPED"),
    )
    seen, events, ran = client.job(job_id)["status"], client.events(job_id), client.ran(job_id)
    good = not late and seen == status and ran == 1 and events.count("found_by_v1") == 1
    words = f"{late} {seen}, begun {ran} times, {' '.join(events)}"
    return ClientCheck(name, "passed" if good else "failed", "" if good else words)


def _progress(client: _LuminoClient) -> ClientCheck:
    """What the workflow wrote is what lumino-api reads."""
    logged = client.job("well")["artifacts"].get("job_logger", [])
    said = [row["operation"] for row in logged]
    good = said == ["step"] * 25 + ["weights"]
    name = "artifacts hold job-meta.json"
    return ClientCheck(name, "passed" if good else "failed", "" if good else str(said)[:WORDS_MAX])


def _stops(client: _LuminoClient) -> ClientCheck:
    late = client.wait("stopped runs", lambda: client.job("stopped")["status"] == "RUNNING")
    if not late:
        client.stop("stopped")
    return _ends(client, "stops", "stopped", "STOPPED")


def _keeps(client: _LuminoClient) -> ClientCheck:
    ended = _ends(client, "keep_alive keeps the VM", "kept", "COMPLETED")
    name = client.job("kept")["gcp"]["vm_name"]
    # Longer than a VM without keep_alive has to delete itself.
    time.sleep(75)
    kept = [vm for vm in client.vms() if vm["name"] == name and VmState(vm["state"]).draining]
    if ended.outcome == "passed" and not kept:
        return ClientCheck(ended.name, "failed", f"{name} is gone: {client.vms()}")
    return ended


def _dies(client: _LuminoClient) -> ClientCheck:
    """The VM crashes while the workflow runs: the job begins again elsewhere."""
    name = "begins again when its VM crashes"
    client.submit("again", steps=60)
    late = client.wait("again runs", lambda: client.job("again")["status"] == "RUNNING")
    vm = client.job("again")["gcp"]["vm_name"]
    done = client.setup.zen("sim", "crash", str(vm))
    if late or done.code:
        return ClientCheck(name, "failed", late or done.output)
    late = client.wait("again ended", lambda: client.job("again")["status"] == "COMPLETED")
    events = client.events("again")
    good = not late and client.ran("again") == 2 and events.count("vm_lost") == 1
    words = "" if good else f"{late} {' '.join(events)}"
    return ClientCheck(name, "passed" if good else "failed", words)


def _leaves_nothing(client: _LuminoClient) -> ClientCheck:
    """Every VM that was not kept has deleted itself by `gcloud compute instances delete`."""
    kept = client.job("kept")["gcp"]["vm_name"]
    late = client.wait("only the kept VM", lambda: {vm["name"] for vm in client.vms()} <= {kept})
    return ClientCheck("VMs delete themselves", "failed" if late else "passed", late)


PROGRAM = ClientProgram(
    name="luminolabs/pipeline-zen",
    marks=("scripts/mig-runtime/pubsub-listener.sh", "scripts/mig-runtime/startup-script.sh"),
    checks=checks,
    config=_config,
    environ=_environ,
    needs=("gcloud", "jq", "curl", "bash"),
    differences=(
        "There is no DETACHED_VM: a VM with a job is never deleted by its group and stays in it.",
        "A VM with `keep_alive` is deleted after `timers.keep_alive_s` (24 h).",
    ),
)
