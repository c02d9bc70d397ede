"""Starting, stopping, dying: what is left, and what is found again.

The tests share a stack, which is started again by a test that needs it and does not find it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.e2e.stack import ROOT, Stack, processes_about, stack, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def up() -> Iterator[Stack]:
    with stack(replicas=2) as made:
        yield made


def test_second_replica_takes_over(up: Stack) -> None:
    """Two replicas serve; the death of the leader changes the term, not the jobs."""
    up.up(replicas=2)
    assert len([n for n in up.run["processes"] if n.startswith("scheduler")]) == 2
    first = up.get("/status")
    leader_pid = int(str(first["leader"]).rsplit("-", 2)[-2])
    job_id, release = up.submit_held(gpu_type="l4")
    up.wait(job_id, "RUNNING")
    os.kill(leader_pid, signal.SIGKILL)
    up.wait_for_term_after(first["term"])
    release.touch()
    job = up.wait_through_restart(job_id)
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 1)


def test_jobs_are_found_again_after_a_restart(up: Stack) -> None:
    """A job that ran when the stack went down goes on, one attempt older."""
    done = up.submit("true", gpu_type="l4")
    up.wait(done)
    job_id = up.submit("sh", "-c", "[ $ZEN_ATTEMPT -gt 1 ] || sleep 600", gpu_type="l4")
    up.wait(job_id, "RUNNING")
    up.zen("down")
    assert up.processes() == []
    up.up()
    assert up.job(done)["status"] == "SUCCEEDED"
    assert up.wait(job_id)["status"] == "SUCCEEDED"


def test_no_job_is_placed_on_a_vm_of_the_last_run(up: Stack) -> None:
    """The VMs ended with the stack: a job that comes right after the next start gets a new one."""
    up.up()
    up.wait(up.submit("true", gpu_type="l4"))
    up.zen("down")
    up.up()
    job = up.wait(up.submit("true", gpu_type="l4"))
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 1)


def test_ctrl_c_stops_cleanly(up: Stack) -> None:
    """In the foreground, with a job running: exit code 0 or 130, nothing left; a stack beside it
    does not notice."""
    up.up()
    home = up.home.parent / "second"
    second = Stack(home, up.home.parent / "zen.yaml")
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", *second.words],
        cwd=ROOT,
        env=second.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_for("it is up", lambda: (home / "run.json").exists() or None)
    job_id = second.submit("sleep", "600", gpu_type="l4")
    second.wait(job_id, "RUNNING")
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode in (0, 130), output
    assert "Traceback" not in output
    assert processes_about(str(home)) == []
    assert up.get("/health") == {"status": "ok"}


def test_death_of_a_part_is_repaired(up: Stack) -> None:
    """A killed scheduler is started again and takes the lead; its jobs never notice."""
    up.up()
    job_id, release = up.submit_held(gpu_type="l4")
    up.wait(job_id, "RUNNING")
    term = up.get("/status")["term"]
    psutil.Process(up.run["processes"]["scheduler"]).kill()
    up.wait_for_term_after(term)
    release.touch()
    job = up.wait_through_restart(job_id)
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 1)


def test_kill_9_of_zen_up_leaves_nothing(up: Stack) -> None:
    """Database, bus, cloud, scheduler, agents and the user's own process: all gone."""
    up.up()
    job_id = up.submit("sh", "-c", "sleep 600 & sleep 600", gpu_type="l4")
    up.wait(job_id, "RUNNING")
    assert len(up.processes()) > 6
    os.kill(up.run["pid"], signal.SIGKILL)
    wait_for("nothing left", lambda: not up.processes() or None, 30)
