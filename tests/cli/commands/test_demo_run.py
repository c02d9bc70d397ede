"""The demo's verdict: it fails when anything that it shows did not really happen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.commands.demo_run import CHANGES, SHORT_CLUSTER, SPOT_CLUSTER, TASKS, VICTIM, DemoSummary
from cli.paths import ROOT
from config.load import load_settings
from core.submission import parse_submission
from core.timers import Timers


@pytest.fixture
def good() -> DemoSummary:
    jobs: list[dict[str, Any]] = [
        {
            "job_id": task.job_id,
            "status": "SUCCEEDED",
            "cluster": task.cluster,
            "cost_usd": 0.5,
            "attempt": 1,
            "retries": {"preemptions": 1 if task.job_id == VICTIM else 0},
        }
        for task in TASKS
    ]
    attempts = {task.job_id: [{"region": "us-west1"}] for task in TASKS}
    return DemoSummary(jobs, attempts, "us-central1", "stockout", "vm-1", 12, 30.0)


def faults(summary: DemoSummary) -> str:
    summary.judge()
    return "; ".join(summary.faults)


def test_all_as_it_should_be(good: DemoSummary) -> None:
    """Nothing to complain of: the summary says so and adds up the cost."""
    assert faults(good) == ""
    assert good.ok
    assert good.cost_usd() == 0.5 * len(TASKS)
    assert any("resumed at step 12" in line for line in good.lines())
    assert good.as_json()["stockout"]["ran_in"] == ["us-west1"]


def test_every_lie_is_found(good: DemoSummary) -> None:
    """A failed job, a wrong region, no preemption, no resume: each fails it."""
    failed = [{**good.jobs[0], "status": "FAILED", "reason": "boom"}, *good.jobs[1:]]
    assert "boom" in faults(replace(good, jobs=failed, faults=[]))
    assert faults(replace(good, block="", faults=[])) == ""
    assert "was faster" in "\n".join(replace(good, block="").lines())
    assert "all the same" in faults(replace(good, stockout_region="us-west1", faults=[]))
    assert "no spot VM" in faults(replace(good, preempted_vm="", faults=[]))
    assert "began anew" in faults(replace(good, resumed_at=0, faults=[]))
    assert "7 jobs were found" in faults(replace(good, jobs=good.jobs[1:], faults=[]))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.job_id)
def test_its_jobs_are_valid_submissions_for_clusters_that_exist(task: Any) -> None:
    """The demo cannot fail for a field or a cluster that the product does not have."""
    spec = parse_submission(task.body(), Timers(), "x")
    assert load_settings(None, {}).cluster(task.cluster).gpus == spec.gpu_count


def test_the_preempted_cluster_is_spot() -> None:
    """Only spot VMs can be taken back, and the stocked-out cluster has somewhere else to go."""
    settings = load_settings(None, {}, CHANGES)
    assert settings.cluster(SPOT_CLUSTER).spot
    assert len(settings.cluster(SHORT_CLUSTER).regions) > 1


@pytest.mark.slow
def test_the_demo_runs_and_leaves_nothing(tmp_path: Path) -> None:
    """The whole of it, for real: exit code 0 within 90 s, and nothing stays behind."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", "demo", "--json"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["faults"] == []
    assert len(told["regions"]) > 1
    assert list(tmp_path.iterdir()) == []
    assert not _processes_that_mention(str(tmp_path))


def _processes_that_mention(text: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = file.read_bytes() + file.with_name("cmdline").read_bytes()
        except OSError:  # it ended while we looked, or it is somebody else's
            continue
        if text.encode() in words:
            found.append(file.parent.name)
    return found
