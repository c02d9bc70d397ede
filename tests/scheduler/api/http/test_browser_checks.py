"""What a web page can make a browser send is refused."""

from __future__ import annotations

import httpx
import pytest

from scheduler.api.http.app import create_metrics_app
from tests.scheduler.api.fakes import House, assert_error

JOBS = "/api/v1/jobs"
JOB = b'{"command": ["true"]}'
AS_JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_rebound_host_is_not_served(method: str) -> None:
    """A page whose DNS name was rebound to our address is told the setting, and nothing else."""
    house = House(cors_origins=("*",))
    headers = {
        "host": "evil.example",
        "access-control-request-method": "POST",
        "origin": "http://e",
    }
    async with house.client() as client:
        answer = await client.request(method, JOBS, headers=headers)
    assert "api.allowed_hosts" in str(assert_error(answer, 421, "wrong_host")["error"])
    metrics = httpx.ASGITransport(create_metrics_app(house.services()))
    async with httpx.AsyncClient(transport=metrics, base_url="http://zen") as client:
        assert (await client.get("/metrics", headers=headers)).status_code == 421


async def test_two_hosts_are_refused() -> None:
    """Nobody can tell which of two Host headers counts."""
    async with House().client() as client:
        answer = await client.get(JOBS, headers=[("host", "zen"), ("host", "evil.example")])
    assert_error(answer, 400, "bad_host")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://zen:81"},
    ],
)
async def test_pages_of_other_sites_submit_and_stop_nothing(headers: dict[str, str]) -> None:
    """Whatever the method and the path."""
    house = House()
    async with house.client() as client:
        for method, path in (("POST", JOBS), ("DELETE", f"{JOBS}/a"), ("POST", "/jobs/a/stop")):
            body = {"content": JOB, "headers": headers | AS_JSON}
            answer = await client.request(method, path, **body)  # type: ignore[arg-type]
            assert "api.cors_origins" in str(assert_error(answer, 403, "cross_site")["error"])
    assert not house.jobs


async def test_own_and_named_pages_submit() -> None:
    """The service's own pages and those of a named origin, which also can read refusals."""
    house = House(cors_origins=("https://dash.example",))
    named = {"origin": "https://dash.example", "sec-fetch-site": "cross-site"}
    async with house.client() as client:
        for headers in ({"origin": "http://zen"}, {"sec-fetch-site": "same-origin"}, named):
            answer = await client.post(JOBS, content=JOB, headers=headers | AS_JSON)
            assert answer.status_code == 201, answer.text
        refused = await client.post(JOBS, content=JOB, headers=named)
    assert assert_error(refused, 415, "unsupported_media_type")
    assert refused.headers["access-control-allow-origin"] == "https://dash.example"


async def test_body_without_a_type_is_refused() -> None:
    """A page can send such a body to any site without asking; an empty one needs no type."""
    house = House()

    async def chunks() -> object:
        yield JOB

    async with house.client() as client:
        for content in (JOB, chunks()):
            answer = await client.post(JOBS, content=content)  # type: ignore[arg-type]
            assert_error(answer, 415, "unsupported_media_type")
        assert not house.jobs
        await client.post(JOBS, json={"command": ["true"], "job_id": "a"})
        assert (await client.post(f"{JOBS}/a/stop")).status_code == 202
