"""`zen node`: this machine as the whole cluster, with real processes and no cloud."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def node() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="zen-e2e-") as directory:
        made = Stack(Path(directory) / "home", Path("unused"))
        try:
            made.zen("node", "--gpus", "3", "--detach", "--quiet", "--port", "0")
            yield made
        finally:
            made.zen("down", check=False)
            left = made.processes()
            for process in left:
                process.kill()
            assert left == []


def test_jobs_share_the_machine_and_survive_its_worker(node: Stack) -> None:
    """Each has GPUs of its own, who finds none waits in line; a worker that is killed is replaced
    and its jobs run again; nothing is left behind."""
    one, end_one = node.submit_held(gpu_count=2)
    two, end_two = node.submit_held(gpu_count=1)
    node.wait(one, "RUNNING")
    node.wait(two, "RUNNING")
    three = node.submit("sh", "-c", "echo on $CUDA_VISIBLE_DEVICES", gpu_count=3)
    held = [node.job(job)["vm"]["slots"] for job in (one, two)]
    assert sorted(index for indices in held for index in indices) == [0, 1, 2]
    (worker,) = (p for p in node.processes() if p.cmdline()[-2:] == ["-m", "agent"])
    os.kill(worker.pid, signal.SIGKILL)
    for job in (one, two):
        wait_for(
            f"{job} runs again",
            lambda job=job: node.job(job)["attempt"] == 2 or None,  # type: ignore[misc]
            60,
        )
    end_one.touch()
    end_two.touch()
    for job in (one, two, three):
        assert node.wait(job, seconds=60)["status"] == "SUCCEEDED"
    assert node.log(three) == "on 0,1,2\n"
