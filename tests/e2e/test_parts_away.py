"""A part is away for a while, and nobody's work is lost. One stack for all: it must recover."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.stack import QUICK, Json, Stack, away, stack, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def up() -> Iterator[Stack]:
    with stack() as made:
        yield made


def timed(call: str, url: str, **words: object) -> tuple[int, float]:
    began = time.monotonic()
    answer = httpx.request(call, url, timeout=10, **words)  # type: ignore[arg-type]
    return answer.status_code, time.monotonic() - began


def ticking(up: Stack) -> tuple[str, Path]:
    """A running job that counts, ten times a second, until the file is there."""
    wait_for("the API is back", lambda: up.try_get("/jobs"))
    job_id = up.submit("sh", "-c", TICK, gpu_type="l4")
    up.wait(job_id, "RUNNING")
    return up.held(job_id)


TICK = """
i=0
until [ -e "$ZEN_CHECKPOINT_DIR/release" ]; do
    i=$((i + 1)); echo $i >> "$ZEN_CHECKPOINT_DIR/ticks"; sleep 0.1
done
"""


def ticks(up: Stack, job_id: str) -> list[str]:
    """How far the job is, by its own lines in its checkpoint directory."""
    found = sorted((up.home / "store").rglob(f"*{job_id}*/**/ticks"))
    return found[0].read_text().splitlines() if found else []


def counted(up: Stack, job_id: str) -> int:
    return len(ticks(up, job_id))


def test_database_away(up: Stack) -> None:
    """Callers hear 503 within two seconds; the running job does not notice; the queue drains."""
    running, release = ticking(up)
    waiting = [up.submit("sleep", "0.2", gpu_type="a100-40gb", gpu_count=2) for _ in range(3)]
    api = up.api
    with away(up, "postgres"):
        submission = {"command": ["true"], "gpu_type": "l4", "job_id": "later"}
        wait_for(
            "the outage is noticed",
            lambda: timed("GET", f"{api}/api/v1/jobs")[0] == 503 or None,
        )
        before = counted(up, running)
        for call, path, body in (
            ("GET", "/api/v1/jobs", None),
            ("GET", "/api/v1/ready", None),
            ("POST", "/api/v1/jobs", submission),
        ):
            status, took_s = timed(call, api + path, json=body)
            assert (status, took_s < 2.0) == (503, True), (call, path, took_s)
        assert timed("GET", f"{api}/api/v1/health")[0] == 200
        wait_for("the job computes on", lambda: counted(up, running) > before or None)
    for job_id in waiting:
        job = up.wait_through_restart(job_id)
        assert (job["status"], job["attempt"]) == ("SUCCEEDED", 1)
    release.touch()
    job = up.wait_through_restart(running)
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 1)


def test_bus_away(up: Stack) -> None:
    """The worker freezes its job, nobody is declared lost, and it goes on when the bus is back."""
    job_id, release = ticking(up)
    with away(up, "bus"):
        began = time.monotonic()
        frozen = wait_for("the job is frozen", lambda: stands_still(up, job_id), 20)
        # Longer than a VM may be silent: with a bus that flows it would be lost by now.
        silent_s = QUICK["timers"]["lost_after_s"] + 2
        wait_for("long enough", lambda: time.monotonic() - began > silent_s or None)
        assert counted(up, job_id) == frozen
        assert up.job(job_id)["status"] == "RUNNING"
    wait_for("it runs again", lambda: counted(up, job_id) > frozen or None, 30)
    release.touch()
    job: Json = up.wait(job_id, seconds=60)
    assert (job["status"], job["attempt"], job["retries"]["losses"]) == ("SUCCEEDED", 1, 0)
    # One process counted all along: nothing twice, nothing left out, none begun anew.
    assert ticks(up, job_id) == [str(n + 1) for n in range(counted(up, job_id))]


def stands_still(up: Stack, job_id: str) -> int | None:
    """Its count, once it has not moved for a second."""
    first = counted(up, job_id)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        if counted(up, job_id) != first:
            return None
        time.sleep(0.05)
    return first
