"""CentaurusInfra/alnair: the UnifiedJob manifests of its samples, as they are.

Its controllers run only inside Kubernetes; what is tried is what they are given. The images that
the samples name are stand-ins: in them `/bin/sh` and `torchrun` say what they were told, and what
their environment says about the other VMs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.clients.programs.containers import address, podman, why_not
from tests.clients.programs.frame import ClientCheck, ClientProgram, ClientSetup, judged

SAMPLES = "unified-training/config/samples"
END_S = 120.0
_SAYS = '#!/bin/busybox sh\necho "{name} nodes=$PET_NNODES rank=$RANK $*"\n'
_FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
Json = dict[str, Any]


def checks(setup: ClientSetup) -> Iterator[ClientCheck]:
    """Every manifest is accepted, and runs to its end where containers can be run."""
    found = manifests(setup.checkout)
    why = why_not()
    if why:
        yield from (ClientCheck(f"{path.name} to its end", "not run", why) for path in found)
        return
    names = {"/bin/sh": "sh", "/usr/bin/torchrun": "torchrun"}
    scripts = {path: _SAYS.format(name=name) for path, name in names.items()}
    images = dict.fromkeys(sorted(filter(None, map(image_of, found))), scripts)
    with podman(setup.scratch, images):
        for path in found:
            yield from _run(setup, path)


def manifests(checkout: Path) -> list[Path]:
    """The files that are a UnifiedJob, wherever they lie."""
    paths = sorted((*checkout.rglob("*.yaml"), *checkout.rglob("*.yml")))
    kind = re.compile(r"^kind: UnifiedJob$", re.MULTILINE)
    return [path for path in paths if kind.search(path.read_text(errors="replace"))]


def image_of(path: Path) -> str:
    """As it stands in the manifest."""
    said = re.search(r"^\s+image:\s*(\S+)", path.read_text(errors="replace"), re.MULTILINE)
    return said.group(1) if said else ""


def _run(setup: ClientSetup, path: Path) -> Iterator[ClientCheck]:
    done = setup.zen("submit", "-f", str(path), "--json")
    yield judged(f"{path.name} is accepted", done)
    if done.code:
        return
    job_id = json.loads(done.output)["job_id"]
    job = _ended(setup, job_id)
    log = httpx.get(f"{setup.api}/api/v1/jobs/{job_id}/logs", timeout=10).text
    said = f"{job['command'][0]} nodes=" if not job["script"] else f"-c {job['script']}"
    well = job["status"] == "SUCCEEDED" and said in log
    words = f"{job['status']}: {job['reason']}; its log: {log[-200:]}"
    name = f"{path.name} runs to its end"
    yield ClientCheck(name, "passed") if well else ClientCheck(name, "failed", words)


def _ended(setup: ClientSetup, job_id: str) -> Json:
    job: Json = {}
    for _ in range(int(END_S * 2)):
        job = httpx.get(f"{setup.api}/api/v1/jobs/{job_id}", timeout=10).raise_for_status().json()
        if job["status"] in _FINAL:
            break
        time.sleep(0.5)
    return job


def _environ(_: Path, scratch: Path) -> Mapping[str, str]:
    return {"DOCKER_HOST": address(scratch)}


PROGRAM = ClientProgram(
    name="CentaurusInfra/alnair",
    marks=(f"{SAMPLES}/unifiedjob_basic.yaml",),
    checks=checks,
    environ=_environ,
    differences=(
        (
            "EPJob is started with `torchrun` and finds its peers by PyTorch's c10d rendezvous; "
            "alnair starts `python -m torchelastic.distributed.launch` with an etcd server. An "
            "image needs PyTorch 1.10 or newer."
        ),
        (
            "A BaseJob gets `minReplicas` GPUs; alnair gives it up to `maxReplicas` if a node has "
            "them."
        ),
        "Horovod types (HJob, EHJob) need a `command`.",
    ),
)
