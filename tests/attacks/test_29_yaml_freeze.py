"""A list of 990 kB in YAML, and costly YAML of the size that is allowed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

AS_YAML = {"Content-Type": "application/yaml"}
HOSTILE = (b"- a\n" * 16_000, b"[" * 60_000, b"- " + b"1:" * 30_000 + b"1", b"- 1\n" * 4_990)


def test_yaml_freezes_nobody(up: Stack) -> None:
    """The large list is refused, and health answers while four clients send what costs most."""
    api = up.run["api"]
    answer = httpx.post(
        f"{api}/api/v1/jobs", content=b"- a\n" * 247_500, headers=AS_YAML, timeout=5
    )
    assert answer.status_code in (401, 413)

    def send(number: int) -> set[int]:
        with httpx.Client(base_url=api, timeout=30) as client:
            return {
                client.post("/api/v1/jobs", content=body, headers=AS_YAML).status_code
                for body in HOSTILE[number:] + HOSTILE[:number]
            }

    took = []
    with ThreadPoolExecutor(4) as clients, httpx.Client(base_url=api, timeout=5) as client:
        sent = [clients.submit(send, number) for number in range(4)]
        while not all(one.done() for one in sent):
            begun = time.perf_counter()
            assert client.get("/api/v1/health").status_code == 200
            took.append(time.perf_counter() - begun)
    assert all(one.result() <= {400, 401, 422, 429, 503} for one in sent)
    print(f"health: {len(took)} answers, slowest {max(took) * 1000:.0f} ms")
