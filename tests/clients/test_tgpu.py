"""tgpu: its one command, in a directory with a train.py, on one machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow
TRAIN = "import os, pathlib\nprint(pathlib.Path.cwd(), os.environ['CUDA_VISIBLE_DEVICES'])\n"


@pytest.fixture(scope="module")
def node() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="zen-e2e-") as directory:
        made = Stack(Path(directory) / "home", Path("unused"))
        try:
            made.zen("node", "--gpus", "4", "--detach", "--quiet", "--port", "0")
            yield made
        finally:
            made.zen("down", check=False)


def tgpu(node: Stack, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.aliases", "tgpu", *words],
        env={**node.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_job_runs_where_it_was_submitted(node: Stack, tmp_path: Path) -> None:
    """In the directory of train.py, on GPUs 0 and 1; its state and its priority are told in tgpu's
    own words."""
    (tmp_path / "train.py").write_text(TRAIN)
    command = f"cmd={sys.executable} train.py"
    done = tgpu(node, tmp_path, "submit", "--gpus", "2", "--priority", "5", "--wait", "--", command)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path} 0,1\n"
    (job,) = json.loads(tgpu(node, tmp_path, "list", "--json").stdout)["jobs"]
    assert (job["state"], job["priority"], job["gpu_count"]) == ("finished", 5, 2)
    shown = tgpu(node, tmp_path, "show", job["job_id"]).stdout
    assert "finished" in shown
    assert "priority 5\n" in shown
    assert "SUCCEEDED" not in shown


def test_a_directory_that_is_gone_is_named(node: Stack, tmp_path: Path) -> None:
    """The job fails with its name, not with a riddle."""
    gone = tmp_path / "gone"
    done = tgpu(node, tmp_path, "submit", "--workdir", str(gone), "--wait", "--", "true")
    assert done.returncode == 126
    assert f"its directory {gone}: No such file or directory" in done.stderr
