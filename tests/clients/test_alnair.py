"""CentaurusInfra/alnair: UnifiedJob manifests such as its samples, run to their end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.stack import Stack, stack

pytestmark = pytest.mark.slow
Json = dict[str, Any]

# Says what a torchrun is told, by its arguments and by what it reads in its environment. As the
# real one it waits for the second node: the first that ends ends the job.
TORCHRUN = """#!/bin/sh
echo "nodes=$PET_NNODES each=$PET_NPROC_PER_NODE by=$PET_RDZV_BACKEND id=$PET_RDZV_ID: $*"
: > "$ZEN_CHECKPOINT_DIR/joined.$$"
for _ in $(seq 200); do
    set -- "$ZEN_CHECKPOINT_DIR"/joined.*
    [ $# -ge 2 ] && exit 0
    sleep 0.1
done
exit 1
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    programs = tmp_path_factory.mktemp("programs")
    torchrun = programs / "torchrun"
    torchrun.write_text(TORCHRUN)
    torchrun.chmod(0o755)
    programs.chmod(0o755)
    with stack(environ={"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin"}) as made:
        yield made


def manifest(name: str, kind: str, *args: str, **job: object) -> Json:
    return {
        "apiVersion": "ai.centauruscloud.io/v1alpha1",
        "kind": "UnifiedJob",
        "metadata": {"name": name},
        "jobType": kind,
        "spec": {
            "jobSpec": {"unifiedArgs": list(args), "gpuType": "l4", **job},
            "replicaSpec": {"minReplicas": 2, "maxReplicas": 3},
            "reschedulable": True,
        },
    }


def run(up: Stack, document: Json) -> Json:
    answer = httpx.post(f"{up.api}/api/v1/jobs", json=document, timeout=10)
    assert answer.status_code == 201, answer.text
    return up.wait(answer.json()["job_id"], seconds=60)


def test_a_base_job_is_one_shell(up: Stack) -> None:
    """Its arguments are joined and read by /bin/sh, once, on one VM with minReplicas GPUs."""
    document = manifest("base", "BaseJob", 'echo "$CUDA_VISIBLE_DEVICES" &&', "sleep 0.1")
    document["spec"]["jobSpec"]["gpuType"] = "a100-40gb"
    job = run(up, document)
    assert (job["status"], job["cluster"], job["replicas"]) == ("SUCCEEDED", "2xa100-40gb", 1)
    assert up.log("base") == "0,1\n"


def test_an_elastic_pytorch_job_runs_torchrun_on_each_vm(up: Stack) -> None:
    """Each VM starts torchrun with the arguments; nodes, rendezvous and id are in its
    environment."""
    words = ("/workspace/main.py", "--arch=resnet18", "--epochs=20")
    job = run(up, manifest("elastic", "EPJob", *words))
    assert (job["status"], job["replicas_min"], job["replicas"]) == ("SUCCEEDED", 2, 3)
    said = f"nodes=2:3 each=1 by=c10d id=elastic: {' '.join(words)}\n"
    assert [up.log(name) for name in ("elastic", "elastic.1")] == [said, said]


def test_without_pytorch_the_reason_names_what_is_missing(up: Stack, tmp_path: Path) -> None:
    """Not an exit code alone."""
    job = run(up, manifest("none", "EPJob", "main.py", env={"PATH": str(tmp_path)}))
    assert (job["status"], job["exit_code"]) == ("FAILED", 127)
    assert "torchrun" in job["reason"]


def test_the_shipped_example(up: Stack) -> None:
    """The manifest in examples/ runs to its end from the command line."""
    root = Path(__file__).parents[2]
    done = up.zen("submit", "-f", str(root / "examples" / "unifiedjob.yaml"), "--wait")
    assert "job unified-hello has GPUs 0" in done.stdout
