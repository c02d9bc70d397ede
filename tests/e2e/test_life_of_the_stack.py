"""Starting, stopping, dying: what is left, and what is found again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.e2e.stack import ROOT, Stack, processes_about, stack, wait_for

pytestmark = pytest.mark.slow


def test_jobs_are_found_again_after_a_restart() -> None:
    """A job that ran when the stack went down goes on, one attempt older."""
    with stack() as up:
        done = up.submit("true", gpu_type="l4")
        up.wait(done)
        job_id = up.submit("sh", "-c", "[ $ZEN_ATTEMPT -gt 1 ] || sleep 600", gpu_type="l4")
        up.wait(job_id, "RUNNING")
        up.zen("down")
        assert up.processes() == []
        up.zen("up", "-d", "-q", "--port", "0", "--config", str(up.home.parent / "zen.yaml"))
        assert up.job(done)["status"] == "SUCCEEDED"
        assert up.wait(job_id)["status"] == "SUCCEEDED"


def test_kill_9_of_zen_up_leaves_nothing() -> None:
    """Database, bus, cloud, scheduler, agents and the user's own process: all gone."""
    with stack() as up:
        job_id = up.submit("sh", "-c", "sleep 600 & sleep 600", gpu_type="l4")
        up.wait(job_id, "RUNNING")
        assert len(up.processes()) > 6
        os.kill(up.run["pid"], signal.SIGKILL)
        wait_for("nothing left", lambda: not up.processes() or None, 30)


def test_ctrl_c_stops_cleanly() -> None:
    """In the foreground, with a job running: exit code 0 or 130, nothing left."""
    with stack() as other:
        home = other.home.parent / "second"
        second = Stack(home)
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "cli",
                "up",
                "--port",
                "0",
                "--config",
                str(other.home.parent / "zen.yaml"),
            ],
            cwd=ROOT,
            env=second.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        wait_for("it is up", lambda: (home / "run.json").exists() or None)
        second.zen("submit", "--quiet", "--gpu-type", "l4", "--", "sleep", "600")
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        assert process.returncode in (0, 130), output
        assert "Traceback" not in output
        assert processes_about(str(home)) == []
        assert other.get("/health") == {"status": "ok"}


def test_death_of_a_part_is_repaired() -> None:
    """A killed scheduler is started again and takes the lead; its jobs never notice."""
    with stack() as up:
        job_id = up.submit("sleep", "6", gpu_type="l4")
        up.wait(job_id, "RUNNING")
        psutil.Process(up.run["processes"]["scheduler"]).kill()
        job = up.wait_through_restart(job_id)
        assert (job["status"], job["attempt"]) == ("SUCCEEDED", 1)


def test_second_replica_takes_over() -> None:
    """Two replicas serve; the death of the leader changes the term, not the jobs."""
    with stack(replicas=2) as up:
        first = up.get("/status")
        assert len([n for n in up.run["processes"] if n.startswith("scheduler")]) == 2
        leader_pid = int(str(first["leader"]).rsplit("-", 2)[-2])
        job_id = up.submit("sleep", "4", gpu_type="l4")
        up.wait(job_id, "RUNNING")
        os.kill(leader_pid, signal.SIGKILL)
        job = up.wait_through_restart(job_id)
        assert (job["status"], job["attempt"]) == ("SUCCEEDED", 1)
        assert up.get("/status")["term"] > first["term"]
