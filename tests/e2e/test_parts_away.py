"""A part is away for a while, and nobody's work is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.e2e.stack import Json, Stack, stack, wait_for

pytestmark = pytest.mark.slow

# Everything that waits on purpose, short; the relations between the spans are the usual ones.
QUICK = {
    "timers": {
        "heartbeat_s": 1,
        "publish_timeout_s": 1,
        "self_stop_after_s": 4,
        "lost_after_s": 6,
        "canary_s": 1,
        "settling_s": 2,
    }
}


@contextmanager
def away(up: Stack, part: str) -> Iterator[None]:
    """The part is killed, and the supervisor held so that it stays away."""
    supervisor, victim = up.run["pid"], up.run["processes"][part]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(victim, signal.SIGKILL)
        yield
    finally:
        os.kill(supervisor, signal.SIGCONT)


def timed(call: str, url: str, **words: object) -> tuple[int, float]:
    began = time.monotonic()
    answer = httpx.request(call, url, timeout=10, **words)  # type: ignore[arg-type]
    return answer.status_code, time.monotonic() - began


def counted(up: Stack, job_id: str) -> int:
    """How far the job is, by its own lines in its checkpoint directory."""
    found = sorted((up.home / "store").rglob(f"*{job_id}*/**/ticks"))
    return len(found[0].read_text().splitlines()) if found else 0


TICK = 'for i in $(seq {n}); do echo $i >> "$ZEN_CHECKPOINT_DIR/ticks"; sleep 0.1; done'


def test_database_away() -> None:
    """Callers hear 503 within two seconds; the running job does not notice; the queue drains."""
    with stack() as up:
        running = up.submit("sh", "-c", TICK.format(n=80), gpu_type="l4")
        up.wait(running, "RUNNING")
        waiting = [up.submit("sleep", "0.2", gpu_type="a100-40gb", gpu_count=2) for _ in range(3)]
        api = up.run["api"]
        with away(up, "postgres"):
            wish = {"command": ["true"], "gpu_type": "l4", "job_id": "later"}
            wait_for(
                "the outage is noticed",
                lambda: timed("GET", f"{api}/api/v1/jobs")[0] == 503 or None,
            )
            before = counted(up, running)
            for call, path, body in (
                ("GET", "/api/v1/jobs", None),
                ("GET", "/api/v1/ready", None),
                ("POST", "/api/v1/jobs", wish),
            ):
                status, took_s = timed(call, api + path, json=body)
                assert (status, took_s < 2.0) == (503, True), (call, path, took_s)
            assert timed("GET", f"{api}/api/v1/health")[0] == 200
            wait_for("the job computes on", lambda: counted(up, running) > before or None)
        for job_id in (running, *waiting):
            job = up.wait_through_restart(job_id)
            assert (job["status"], job["attempt"]) == ("SUCCEEDED", 1)


def test_bus_away() -> None:
    """The worker freezes its job, nobody is declared lost, and it goes on when the bus is back."""
    with stack(changes=QUICK) as up:
        job_id = up.submit("sh", "-c", TICK.format(n=100), gpu_type="l4")
        up.wait(job_id, "RUNNING")
        with away(up, "bus"):
            frozen = wait_for("the job is frozen", lambda: stands_still(up, job_id), 20)
            # Longer than a VM may be silent: with a bus that flows it would be lost by now.
            began = time.monotonic()
            wait_for("long enough", lambda: time.monotonic() - began > 8 or None)
            assert counted(up, job_id) == frozen
            assert up.job(job_id)["status"] == "RUNNING"
        began = time.monotonic()
        wait_for("it runs again", lambda: counted(up, job_id) > frozen or None, 30)
        assert time.monotonic() - began < 30
        job: Json = up.wait(job_id, seconds=60)
        assert (job["status"], job["attempt"], job["retries"]["losses"]) == ("SUCCEEDED", 1, 0)
        assert counted(up, job_id) == 100


def stands_still(up: Stack, job_id: str) -> int | None:
    """Its count, once it has not moved for a second."""
    first = counted(up, job_id)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        if counted(up, job_id) != first:
            return None
        time.sleep(0.05)
    return first
