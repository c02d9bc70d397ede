"""AzizBahloul/gpu-scheduler: its README, its demos and its Go command line, all from its checkout.

Its own server is not started: ours listens where its clients look. Of the README every block runs
that calls the API, in order; the ids that a reader is told to replace are replaced. The image that
its command line names is a stand-in.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx

from tests.clients.programs.containers import address, podman, why_not
from tests.clients.programs.frame import (
    ClientCheck,
    ClientProgram,
    ClientSetup,
    Done,
    judged,
    last_words,
)

PORT, METRICS_PORT = 8080, 9091
GOCODE = "/usr/share/gocode"
"""Where Debian keeps the sources of Go libraries."""
PACKAGE = "github.com/azizbahloul/gpu-scheduler"
IMAGE = "nvidia/cuda:12.0-base"
END_S = 120.0
_SMI = '#!/bin/busybox sh\necho "a stand-in for nvidia-smi"\n'
_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NOT_CLIENT = ("docker", "git clone", "make ", "go test", "pkill", "lsof", "bin/scheduler", "tail ")
"""Words of blocks that build or start their own server."""
_METRICS = (
    "gpu_scheduler_jobs_total",
    "gpu_scheduler_queue_size",
    "gpu_scheduler_gpu_utilization",
    "gpu_scheduler_scheduling_latency",
    "gpu_scheduler_preemptions_total",
)


def checks(setup: ClientSetup) -> Iterator[ClientCheck]:
    """In the order of its README."""
    built = _build(setup)
    yield judged("the command line is built from source", built)
    yield from _readme(setup)
    for script in ("demo.sh", "scripts/test.sh"):
        yield _script(setup, script)
    if built.code == 0:
        yield _script(setup, "scripts/demo.sh")
        yield from _commands(setup)
    yield from _edges(setup)


def _build(setup: ClientSetup) -> Done:
    """As Debian builds Go programs: without modules, with the libraries that it packages."""
    gopath = setup.scratch / "gopath"
    source = gopath / "src" / PACKAGE
    source.parent.mkdir(parents=True)
    source.symlink_to(setup.checkout)
    environ = {
        "GO111MODULE": "off",
        "GOPATH": f"{gopath}:{GOCODE}",
        "GOCACHE": str(setup.scratch / "gocache"),
        "GOFLAGS": "",
    }
    return setup.call(
        *("go", "build", "-o", str(setup.checkout / "bin" / "gpu-cli"), f"{PACKAGE}/cmd/cli"),
        cwd=source,
        environ=environ,
    )


def blocks(text: str) -> list[str]:
    """The blocks of the README that call the API or its command line. One with notes inside its
    JSON is no command."""
    calls = re.compile(r"localhost:8080|bin/gpu-cli|demo\.sh")
    return [
        block
        for block in _BLOCK.findall(text)
        if calls.search(block)
        and not any(word in block for word in _NOT_CLIENT)
        and not re.search(r",\s+# ", block)
    ]


def _readme(setup: ClientSetup) -> Iterator[ClientCheck]:
    """Ids that the README makes up are the ones that the calls before gave, as it tells its
    reader."""
    known = {"tenant-1234567890": "", "job-1234567890": "", "tenant-123": ""}
    for number, block in enumerate(blocks((setup.checkout / "README.md").read_text()), 1):
        script = block
        for word, real in known.items():
            script = re.sub(rf"{word}\b", real or word, script)
        done = setup.call("bash", "-o", "pipefail", "-ec", script)
        yield _answered(f"README {number}: {_title(block)}", done)
        if found := re.search(r"tenant-[0-9a-z]{10}\b", done.output):
            known["tenant-1234567890"] = known["tenant-123"] = found.group()
        if found := re.search(r"\bj-[0-9a-z]{10}\b", done.output):
            known["job-1234567890"] = found.group()


def _title(block: str) -> str:
    calls = (re.search(r"(curl|gpu-cli|demo\.sh).*", line) for line in block.splitlines())
    first = next((found.group() for found in calls if found), "").rstrip(" \\")
    return first.replace("http://localhost:8080", "")[:60].rstrip()


def _answered(name: str, done: Done) -> ClientCheck:
    """A refusal has a request id; `null` is what jq makes of an id that did not come, and
    `%!s(<nil>)` what Go does."""
    refused = re.search(
        r'"request_id"|✅ [^\n]*: null$|ID: %!s\(<nil>\)', done.output, re.MULTILINE
    )
    if done.code == 0 and refused:
        return ClientCheck(name, "failed", last_words(done.output))
    return judged(name, done)


def _script(setup: ClientSetup, script: str) -> ClientCheck:
    if script == "scripts/demo.sh":
        # Its last step asks for a job called "Total:", the last line of its own list.
        return judged(script, setup.call("bash", script), "Demo Complete!")
    return _answered(script, setup.call("bash", script))


def _commands(setup: ClientSetup) -> Iterator[ClientCheck]:
    """Every command of its command line, with a job that runs to its end where containers can."""
    cli = str(setup.checkout / "bin" / "gpu-cli")
    made = setup.call(cli, "create-tenant", "--name", "a team", "--max-gpus", "4")
    yield judged("gpu-cli create-tenant", made, "Tenant ID: tenant-")
    tenant = ("--tenant-id", made.output.split()[-1])
    job = ("--name", "short", "--image", IMAGE, "--script", "nvidia-smi && echo done")
    done = setup.call(cli, "submit", *tenant, *job)
    yield _answered("gpu-cli submit", done)
    job_id = next(iter(re.findall(r"Job ID: (\S+)", done.output)), "")
    yield judged("gpu-cli list", setup.call(cli, "list", *tenant), job_id, "Total: 1 jobs")
    yield judged("gpu-cli get", setup.call(cli, "get", job_id), f"Job ID: {job_id}", "State: ")
    yield judged("gpu-cli status", setup.call(cli, "status"), "GPUs: ", "Jobs: ")
    yield _to_its_end(setup, job_id)
    last = setup.call(cli, "list", "--state", "pending", *tenant)
    yield judged("gpu-cli list --state", last, "Total: ")
    held = setup.call(cli, "submit", *tenant, "--script", "sleep 600")
    job_id = next(iter(re.findall(r"Job ID: (\S+)", held.output)), "")
    yield judged("gpu-cli cancel", setup.call(cli, "cancel", job_id), "cancelled successfully")


def _to_its_end(setup: ClientSetup, job_id: str) -> ClientCheck:
    name = "a job of gpu-cli submit runs to its end"
    if why := why_not():
        return ClientCheck(name, "not run", why)
    job: dict[str, object] = {"state": "", "reason": ""}
    with podman(setup.scratch, {IMAGE: {"/usr/bin/nvidia-smi": _SMI}}):
        for _ in range(int(END_S * 2)):
            job = httpx.get(f"{setup.api}/api/v1/jobs/{job_id}", timeout=10).json()
            if job["state"] in ("completed", "failed", "cancelled"):
                break
            time.sleep(0.5)
    well = job["state"] == "completed"
    return (
        ClientCheck(name, "passed")
        if well
        else ClientCheck(name, "failed", f"{job['state']}: {job}"[:400])
    )


def _edges(setup: ClientSetup) -> Iterator[ClientCheck]:
    """What monitors and browsers ask."""
    health = setup.call("curl", "-sf", f"{setup.api}/health")
    yield judged("GET /health", health, '"status":"healthy"')
    metrics = setup.call("curl", "-sf", f"http://127.0.0.1:{METRICS_PORT}/metrics")
    yield judged(f"metrics on port {METRICS_PORT}", metrics, *_METRICS)
    asks = ("-H", "Origin: https://dash.example", "-H", "Access-Control-Request-Method: POST")
    page = setup.call("curl", "-sif", "-X", "OPTIONS", *asks, f"{setup.api}/api/v1/jobs")
    yield judged("a browser's question", page, "access-control-allow-origin: *")


def _environ(_: Path, scratch: Path) -> Mapping[str, str]:
    return {"DOCKER_HOST": address(scratch)}


PROGRAM = ClientProgram(
    name="AzizBahloul/gpu-scheduler",
    marks=("cmd/cli/main.go", "demo.sh", "pkg/models/tenant.go"),
    checks=checks,
    port=PORT,
    changes={"api": {"cors_origins": ["*"], "metrics_port": METRICS_PORT}},
    environ=_environ,
    needs=("go", "bash", "curl", "jq"),
    differences=(
        (
            "A quota that is not set is no limit (there: 0). A job waits while its tenant's quota "
            "is in use, and is refused only if it could never fit."
        ),
        "`priority_tier` caps the priority of the tenant's jobs; a higher one is refused.",
        (
            "A job that states no `gpu_memory_mb`, `cpu_cores` or `memory_mb` counts for its GPUs' "
            "part of the machine (there: for nothing)."
        ),
        (
            "`scripts/demo.sh` ends with a `get` of a job called `Total:`; it prints empty fields "
            "here and fails there."
        ),
        "CORS and metrics on port 9091 are settings: `api.cors_origins`, `api.metrics_port`.",
    ),
)
