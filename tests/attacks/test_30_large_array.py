"""Arrays of 10,000 jobs with 10 kB of environment each, in one request."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import psutil
import psycopg
import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

JOBS = 10_000
LARGE = {f"LARGE_{number}": secrets.token_hex(500) for number in range(10)}
"""Of dice, so that no copy of it is compressed away."""
SHARE = 8000
"""Bytes of the database for each job of an array: far less than its environment."""


def size_of(up: Stack) -> int:
    """Of the whole database, in bytes."""
    with psycopg.connect(up.run["database"]) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])


def health_during(client: httpx.Client, work: Future[int]) -> Iterator[float]:
    """How long each answer took, until the work is done."""
    while not work.done():
        begun = time.perf_counter()
        assert client.get("/api/v1/health").status_code == 200
        yield time.perf_counter() - begun


def test_a_large_array_is_stored_once_and_freezes_nobody(up: Stack) -> None:
    """Its environment is in the database once, the scheduler does not grow by copies of it, others
    submit and health answers while it is written; each member has all of it in the end."""
    api = up.api
    scheduler = psutil.Process(up.run["processes"]["scheduler"])
    up.wait(up.submit("true"))  # from here on all that a leader needs is loaded
    bytes_before, memory_before = size_of(up), scheduler.memory_info().rss
    term = up.get("/status")["term"]
    array = {"command": ["true"], "job_id": "large", "array": f"1-{JOBS}", "environment": LARGE}

    def send() -> int:
        body = {**array, "gpu_type": "a100-40gb", "gpu_count": 2}
        return httpx.post(f"{api}/api/v1/jobs", json=body, timeout=60).status_code

    begun = time.perf_counter()
    with ThreadPoolExecutor(1) as sender, httpx.Client(base_url=api, timeout=10) as client:
        sent = sender.submit(send)
        took = sorted(health_during(client, sent))
        lasted = time.perf_counter() - begun
    assert sent.result() == 201
    grown = size_of(up) - bytes_before
    assert grown < JOBS * SHARE, f"{grown} bytes for {JOBS} jobs"
    memory = scheduler.memory_info().rss - memory_before
    assert memory < 50_000_000, f"the scheduler grew by {memory} bytes"
    assert up.get("/jobs", group="large", page_size=1)["total"] == JOBS
    last = up.job(f"large-{JOBS}")
    assert last["environment"] == LARGE | {
        "ZEN_ARRAY_ID": "large",
        "ZEN_ARRAY_INDEX": str(JOBS),
    }
    assert up.get("/status")["term"] == term, "the leader kept its lease"
    answer = httpx.post(f"{api}/api/v1/groups/large/stop", timeout=60)
    assert answer.status_code == 202, answer.text
    p99 = took[int(len(took) * 0.99)]
    print(
        f"{JOBS} jobs in {lasted:.1f} s, {grown / 1e6:.1f} MB of database, {memory / 1e6:.1f} MB "
        f"of memory; health: {len(took)} answers, p99 {p99 * 1000:.0f} ms, slowest "
        f"{took[-1] * 1000:.0f} ms"
    )
