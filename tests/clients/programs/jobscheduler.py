"""emgeee/jobscheduler: its end-to-end suite and its command line, both from its checkout.

Its own server, Redis and Docker daemon are not started: ours listens where its clients look, and
podman runs the containers, of a stand-in for the image that they name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

from tests.clients.programs.containers import address, podman, why_not
from tests.clients.programs.frame import (
    ClientCheck,
    ClientProgram,
    ClientSetup,
    Done,
    judged,
    pytest_checks,
)

PORT = 8000
IMAGE = "alpine:latest"
PACKAGES = (
    *("pytest", "pytest-asyncio", "httpx", "pydantic", "pydantic-settings", "click", "rich"),
    *("loguru", "redis"),
)
"""Of the many that it names, what its suite and its command line import."""
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RUN_CONTAINERS = (
    "test_job_assignment",
    "test_job_success",
    "test_job_failure",
    "test_job_abort_running",
    "test_job_list_filtering",
)
"""Tests that wait for a container to run or to end."""
_SKIPPED = {"test_resource_recovery": "its own suite skips it always"}


def checks(setup: ClientSetup) -> Iterator[ClientCheck]:
    """The suite first: it expects executors that nobody uses."""
    why = why_not()
    python = setup.python(*PACKAGES)
    with nullcontext() if why else podman(setup.scratch, {IMAGE: {}}):
        yield from pytest_checks(
            setup,
            python,
            ("tests/e2e", "-p", "no:cacheprovider"),
            prefix="e2e: ",
            not_run={**_SKIPPED, **(dict.fromkeys(_RUN_CONTAINERS, why) if why else {})},
        )
        yield from _commands(setup, python, runs_containers=not why)


def _commands(setup: ClientSetup, python: str, *, runs_containers: bool) -> Iterator[ClientCheck]:
    """Every command that its help shows, but for the one that it does not have itself."""

    def cli(*words: str) -> Done:
        return setup.call(python, "-m", "src.cli", *words, environ={"COLUMNS": "200"})

    yield judged("cli: health", cli("health"), "Scheduler is healthy")
    yield judged("cli: status", cli("status"), "Is Leader", "✓", "Succeeded")
    yield judged("cli: status --json", cli("status", "--json"), '"redis_connected": true')
    job = _job("hello-world", '["sleep", "60"]', "--env", "DEBUG=true")
    submitted = cli("jobs", "submit", *job)
    yield judged("cli: jobs submit", submitted, "Job submitted successfully", '"gpu_count": 0')
    found = UUID.search(submitted.output)
    job_id = found[0] if found else "none"
    yield judged("cli: jobs get", cli("jobs", "get", job_id), '"DEBUG": "true"', job_id)
    yield judged("cli: jobs list", cli("jobs", "list"), job_id)
    table = cli("jobs", "list", "--table")
    yield judged("cli: jobs list --table", table, "hello-world", job_id[:8])
    if runs_containers:
        yield judged("cli: jobs abort", cli("jobs", "abort", job_id), "aborted successfully")
    gpus = _job("ml", '["true"]', "--gpu-type", "nvidia-t4", "--gpu-count", "1")
    yield judged("cli: jobs submit with a GPU", cli("jobs", "submit", *gpus), '"nvidia-t4"')
    pending = cli("jobs", "list", "--status", "aborted", "--table")
    yield judged("cli: jobs list --status", pending, "Jobs" if runs_containers else "")
    yield judged("cli: executors list", cli("executors", "list"), '"available_resources"')
    yield judged("cli: executors list --table", cli("executors", "list", "--table"), "0xcpu")
    yield judged("cli: a bad id", cli("jobs", "get", "j-1"), "Invalid job ID format")


def _job(name: str, command: str, *more: str) -> tuple[str, ...]:
    sizes = ("--cpu-cores", "0.5", "--memory-mb", "256")
    return ("--name", name, "--image", IMAGE, "--command", command, *sizes, *more)


def _environ(_: Path, scratch: Path) -> Mapping[str, str]:
    return {"DOCKER_HOST": address(scratch)}


PROGRAM = ClientProgram(
    name="emgeee/jobscheduler",
    marks=("src/cli/__main__.py", "src/shared/executor_manager.py", "tests/e2e/conftest.py"),
    checks=checks,
    port=PORT,
    # Its suite looks for executors with room, several at once, and for one with a GPU.
    changes={"clusters": {"0xcpu": {"vm_min": 3}, "1xt4": {"vm_min": 1}}},
    environ=_environ,
    differences=(
        (
            "An executor is a VM that one job has to itself: while it runs, nothing is left of it "
            "(there: its CPUs and memory are shared)."
        ),
        (
            "GPU types that no cluster has (`nvidia-k80`, `nvidia-rtx-3090`, …) are refused with "
            "422 (there: the job waits 15 s and fails)."
        ),
        "`container_status` has no `container_id` and no `logs`: `zen logs ID` has them.",
        (
            "`GET /jobs` tells the first 100 jobs, newest first, and those of the tenant `default` "
            "alone; `limit` and `page_token` go on."
        ),
        "`executors set-eligible`, which its help shows, is in neither program.",
    ),
)
