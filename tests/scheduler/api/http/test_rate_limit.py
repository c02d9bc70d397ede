"""Callers that ask too often are told when to come back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from config.settings import ApiSettings
from scheduler.api.http.app import create_app
from scheduler.api.http.rate_limit import client_address
from tests.scheduler.api.fakes import House, assert_error

HEALTH = "/api/v1/health"


def client_of(house: House, api: ApiSettings, address: str = "10.0.0.1") -> httpx.AsyncClient:
    app = create_app(replace(house.services(), api=api))
    transport = httpx.ASGITransport(app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://zen")


async def test_429_says_when() -> None:
    """A caller beyond its burst waits, then is served again; by default nobody meets the limit."""
    house = House()
    async with client_of(house, ApiSettings(requests_per_s=0.5, requests_burst=3)) as client:
        assert [(await client.get(HEALTH)).status_code for _ in range(3)] == [200] * 3
        refused = await client.get(HEALTH)
        assert_error(refused, 429, "too_many_requests")
        assert refused.headers["retry-after"] == "2"
        house.clock.at += timedelta(seconds=2)
        assert (await client.get(HEALTH)).status_code == 200
    async with client_of(house, ApiSettings()) as client:
        assert [(await client.get(HEALTH)).status_code for _ in range(50)] == [200] * 50


async def test_without_a_limit() -> None:
    """Null is no limit."""
    async with client_of(House(), ApiSettings(requests_per_s=None, requests_burst=1)) as client:
        assert [(await client.get(HEALTH)).status_code for _ in range(5)] == [200] * 5


async def test_addresses_behind_a_proxy_are_told_apart() -> None:
    """By what the proxy has appended; a client without a proxy cannot name another address."""
    api = ApiSettings(requests_per_s=1, requests_burst=1)
    async with client_of(House(), replace(api, behind_proxy=True)) as client:
        for said, status in (("1.1.1.1", 200), ("2.2.2.2", 200), ("9.9.9.9, 1.1.1.1", 429)):
            answer = await client.get(HEALTH, headers={"x-forwarded-for": said})
            assert answer.status_code == status
    async with client_of(House(), api) as client:
        for said, status in (("1.1.1.1", 200), ("2.2.2.2", 429)):
            answer = await client.get(HEALTH, headers={"x-forwarded-for": said})
            assert answer.status_code == status


@pytest.mark.parametrize(
    ("said", "address"),
    [([], "10.0.0.1"), ([b"a, b"], "b"), ([b"a", b"b , c "], "c"), ([b"x" * 999], "x" * 64)],
)
def test_address_of_a_client(said: list[bytes], address: str) -> None:
    """The last one that was appended."""
    headers = [(b"x-forwarded-for", value) for value in said]
    scope = {"headers": headers, "client": ("10.0.0.1", 1)}
    assert client_address(scope, 1) == address
    assert client_address(scope, 0) == "10.0.0.1"
    assert client_address(scope, 4) == "10.0.0.1"
    assert client_address({"headers": [], "client": None}, 0) == "unknown"


async def test_a_header_for_credentials_does_not_lift_the_limit_of_public_endpoints() -> None:
    """Nobody looks at it there."""
    with_header = {"authorization": "x"}
    async with client_of(House(), ApiSettings(requests_per_s=1, requests_burst=2)) as client:
        answers = [(await client.get(HEALTH, headers=with_header)).status_code for _ in range(4)]
    assert answers == [200, 200, 429, 429]


def test_load_balancers_that_append_their_own_address() -> None:
    """The caller's is the one before."""
    scope = {
        "headers": [(b"x-forwarded-for", b"evil, 1.1.1.1, 9.9.9.9")],
        "client": ("10.0.0.1", 1),
    }
    assert client_address(scope, 2) == "1.1.1.1"
