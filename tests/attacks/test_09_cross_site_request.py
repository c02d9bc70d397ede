"""A web page makes the browser of somebody who may submit send a job."""

from __future__ import annotations

import httpx
import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

JOB = b'{"command": ["touch", "/tmp/owned"], "job_id": "csrf"}'


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "https://evil.example", "Content-Type": "text/plain"},
        {"Origin": "https://evil.example", "Content-Type": "application/json"},
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/json"},
        {"Origin": "null", "Content-Type": "application/x-www-form-urlencoded"},
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/jobs", "/jobs/gcp", "/jobs"])
def test_a_page_submits_nothing(up: Stack, path: str, headers: dict[str, str]) -> None:
    """Neither a simple request without a type nor one that says what it is makes a job."""
    answer = httpx.post(f"{up.api}{path}", content=JOB, headers=headers, timeout=10)
    assert answer.status_code in (403, 415)
    assert up.zen("show", "csrf", check=False).returncode != 0


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}])
def test_a_page_reaches_neither_bus_nor_cloud(up: Stack, headers: dict[str, str]) -> None:
    """A message on the bus would be a job, and VMs of the pretend cloud are processes."""
    publish = f"{up.run['bus_rest']}/v1/projects/p/topics/t:publish"
    for url in (publish, f"{up.run['sim']}/sim/v1/state"):
        sent = {**headers, "Content-Type": "text/plain"}
        assert httpx.post(url, content=b"{}", headers=sent, timeout=10).status_code == 403
