"""Certificates of an issuer: how often they are fetched, and what happens when they cannot be."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from core.worker_identity import IdentityUnsure
from migs.issuer_keys import (
    BYTES_MAX,
    KEPT_LEAST_S,
    KEPT_MOST_S,
    KEYS_MAX,
    REFETCH_S,
    STALE_MAX_S,
    Fetched,
    IssuerKeys,
    fetch_certificates,
    read_certificates,
)
from tests.builders import HandClock

PEM = "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n"


class Issuer:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.keys = {"one"}
        self.kept_s = 300.0
        self.asked = 0
        self.away = False

    def __call__(self, _: str) -> Fetched:
        self.asked += 1
        if self.away:
            raise OSError("no route to host")
        return Fetched(",".join(sorted(self.keys)).encode(), frozenset(self.keys), self.kept_s)


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def keys(issuer: Issuer, clock: HandClock) -> IssuerKeys:
    return IssuerKeys("http://issuer", clock, issuer)


async def test_they_are_fetched_once_for_many_tokens(keys: IssuerKeys, issuer: Issuer) -> None:
    """A thousand VMs that boot cost one call."""
    assert [await keys.having("one") for _ in range(1000)] == [b"one"] * 1000
    assert issuer.asked == 1


async def test_they_are_fetched_again_when_they_are_old(
    keys: IssuerKeys, issuer: Issuer, clock: HandClock
) -> None:
    """As old as the issuer's Cache-Control allows."""
    await keys.having("one")
    clock.passed_s += issuer.kept_s + 1
    await keys.having("one")
    assert issuer.asked == 2


async def test_a_new_key_is_found(keys: IssuerKeys, issuer: Issuer, clock: HandClock) -> None:
    """An issuer that has another key now is asked once more."""
    await keys.having("one")
    issuer.keys = {"two"}
    clock.passed_s += REFETCH_S
    assert await keys.having("two") == b"two"


async def test_keys_that_nobody_has_do_not_make_us_ask(
    keys: IssuerKeys, issuer: Issuer, clock: HandClock
) -> None:
    """Anybody can send a token with any key id: one call in a while, however many come."""
    for number in range(1000):
        assert await keys.having(f"none-{number}") is None
        clock.passed_s += 0.01
    assert issuer.asked <= 10 / REFETCH_S + 1


async def test_an_issuer_that_is_away_stops_nobody_at_first(
    keys: IssuerKeys, issuer: Issuer, clock: HandClock
) -> None:
    """Known keys are believed for a day more; unknown ones cannot be judged."""
    await keys.having("one")
    issuer.away = True
    clock.passed_s += issuer.kept_s + STALE_MAX_S - 1
    assert await keys.having("one") == b"one"
    with pytest.raises(IdentityUnsure, match="no route to host"):
        await keys.having("two")
    clock.passed_s += 2
    with pytest.raises(IdentityUnsure):
        await keys.having("one")


async def test_a_first_call_that_fails_is_repeated(
    keys: IssuerKeys, issuer: Issuer, clock: HandClock
) -> None:
    """Without certificates nothing is believed, and nothing refused."""
    issuer.away = True
    for _ in range(2):
        with pytest.raises(IdentityUnsure):
            await keys.having("one")
    assert issuer.asked == 1
    issuer.away = False
    clock.passed_s += REFETCH_S
    assert await keys.having("one") == b"one"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"a": 1}',
        b'{"keys": []}',
        b'{"a": "no certificate"}',
        json.dumps({str(n): PEM for n in range(KEYS_MAX + 1)}).encode(),
        b" " * (BYTES_MAX + 1),
    ],
    ids=range(9),
)
def test_other_answers_are_not_certificates(body: bytes) -> None:
    """What is not {key id: certificate}, or too much of it, is no answer."""
    with pytest.raises(ValueError, match=r"."):
        read_certificates(body, {})


@pytest.mark.parametrize(
    ("said", "kept_s"),
    [
        ("", KEPT_LEAST_S),
        ("public, max-age=1234, must-revalidate", 1234.0),
        ("max-age=0", KEPT_LEAST_S),
        ("max-age=999999999", KEPT_MOST_S),
    ],
)
def test_the_issuer_says_how_long_they_are_kept(said: str, kept_s: float) -> None:
    """Between a minute and a day."""
    answer = read_certificates(json.dumps({"a": PEM}).encode(), {"Cache-Control": said})
    assert (answer.keys, answer.kept_s) == (frozenset({"a"}), kept_s)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/moved":
            raise web.HTTPFound("/certs")
        status = 503 if request.path == "/broken" else 200
        return web.json_response({"a": PEM}, status=status)

    app = web.Application()
    app.router.add_get("/{path}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.slow
async def test_a_real_call(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy is asked for an address near by, no redirect is followed, no error is an answer."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    clock = HandClock()
    assert await IssuerKeys(f"{url}/certs", clock, fetch_certificates).having("a")
    for path in ("moved", "broken"):
        with pytest.raises(IdentityUnsure, match="HTTP status"):
            await IssuerKeys(f"{url}/{path}", clock).having("a")
