"""Every answer tells browsers what not to do with it."""

from __future__ import annotations

import httpx
import pytest

from scheduler.api.http.app import create_metrics_app
from scheduler.api.http.security_headers import ALWAYS, secured
from tests.scheduler.api.fakes import House

CALLS = [
    ("GET", "/api/v1/jobs", {}),
    ("GET", "/api/v1/jobs/nobody", {}),
    ("GET", "/nothing", {}),
    ("PUT", "/api/v1/jobs", {}),
    ("POST", "/api/v1/jobs", {"content-length": "99999999"}),
    ("GET", "/openapi.json", {}),
    ("GET", "/docs", {}),
    ("GET", "/health", {"host": "evil.example"}),
    ("OPTIONS", "/api/v1/jobs", {"origin": "https://a.b", "access-control-request-method": "POST"}),
]


@pytest.mark.parametrize(("method", "path", "headers"), CALLS)
async def test_on_all_answers(method: str, path: str, headers: dict[str, str]) -> None:
    """Successes, refusals of routes and of the layers around them, pages and preflights."""
    async with House(cors_origins=("*",)).client() as client:
        answer = await client.request(method, path, headers=headers)
    for name, value in ALWAYS:
        assert answer.headers[name.decode()] == value.decode()
    assert answer.headers["cache-control"] == "no-store"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert ("sandbox" in policy) is (path != "/docs")


async def test_metrics_on_their_own_port_too() -> None:
    """Also where nothing else is served."""
    metrics = httpx.ASGITransport(create_metrics_app(House().services()))
    async with httpx.AsyncClient(transport=metrics, base_url="http://zen") as client:
        answer = await client.get("/nothing")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_routes_know_better() -> None:
    """What a route says of caching and of its page stands."""
    said = [(b"cache-control", b"max-age=60"), (b"content-security-policy", b"default-src 'self'")]
    assert secured(said) == [*said, *ALWAYS]
