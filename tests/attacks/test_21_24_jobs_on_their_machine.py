"""A hostile job, as a process and as a container, against a real stack that runs as root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.agent.podman import IMAGE, Podman
from tests.attacks.probes import PROBES, script
from tests.e2e.stack import Stack, processes_about, stack, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: else jobs run as you"),
]
MARK = Path("/tmp/zen-probe-mark")  # a file that jobs must not see


@pytest.fixture(scope="module")
def up(podman: Podman) -> Iterator[Stack]:
    """With a container runtime, which its VMs find."""
    with stack(environ={"DOCKER_HOST": podman.address}) as made:
        MARK.touch()
        yield made
        MARK.unlink()


def agent_of(up: Stack, job_id: str) -> psutil.Process:
    """The agent of the VM that the job is on."""
    name = up.job(job_id)["vm"]["name"]
    found = [
        process
        for process in processes_about(str(up.home))
        if process.cmdline()[-2:] == ["-m", "agent"] and name in process.environ()["ZEN_VM_DIR"]
    ]
    return found[0]


def child_of(agent: psutil.Process) -> int:
    """The job's first process: below the shim."""
    deep = [child for child in agent.children(recursive=True) if child.parent() != agent]
    return deep[0].pid


@pytest.mark.parametrize("image", [None, IMAGE], ids=["process", "container"])
def test_no_probe_works(up: Stack, podman: Podman, image: str | None) -> None:
    """Twelve and more: signals, environments, files, rights, devices, the metadata server."""
    token = {"environment": {"TOKEN": "hunter2"}}
    neighbour = up.submit("sleep", "600", gpu_type="l4", **token)
    up.wait(neighbour, "RUNNING", seconds=90)
    agent = agent_of(up, neighbour)
    facts = {
        "AGENT": str(agent.pid),
        "STATE": str(up.home),
        "NEIGHBOUR": str(wait_for("its process", lambda: child_of(agent))),
        "METADATA": agent.environ()["GCE_METADATA_HOST"],
        "RUNTIME": str(podman.socket),
    }
    words: dict[str, Any] = {"environment": facts, "gpu_type": "l4"}
    if image:
        words["image"] = image
    job_id = up.submit("/bin/sh", "-c", script(), **words)
    ended = up.wait(job_id, seconds=120)
    log = up.log(job_id)
    assert ended["status"] == "SUCCEEDED", (ended, log)
    assert log == "tried\n", f"worked, of {len(PROBES)}: {log}"
    assert agent.is_running()
    assert up.job(neighbour)["attempt"] == 1
    up.zen("stop", neighbour)


def test_the_probes_mean_something(up: Stack) -> None:
    """The same words work for a process that is not shut in: the agent's own user."""
    agent = next(p for p in processes_about(str(up.home)) if p.cmdline()[-2:] == ["-m", "agent"])
    facts = {
        "AGENT": str(agent.pid),
        "STATE": str(up.home),
        "NEIGHBOUR": str(os.getpid()),
        "METADATA": agent.environ()["GCE_METADATA_HOST"],
        "RUNTIME": "/etc/passwd",
        "TOKEN": "hunter2",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-c", script()],
        env=facts,
        capture_output=True,
        text=True,
        check=True,
    )
    worked = set(done.stdout.splitlines()) - {"tried"}
    assert len(worked) >= 12, sorted(set(PROBES) - worked)
