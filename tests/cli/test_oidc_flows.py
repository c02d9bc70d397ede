"""Both ways to a token, at a real issuer on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from cli.oidc_flows import IssuerClient, LoginClient, SignInFailed, claims_in
from core.clock import SystemClock
from core.ids import RandomIds
from tests.issuer import Issuer, serving


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving() as made:
        yield made


@pytest.fixture
def asked(issuer: Issuer) -> Iterator[IssuerClient]:
    with httpx.Client(trust_env=False) as http:
        yield IssuerClient(LoginClient(issuer.url, "zen-cli"), http, SystemClock())


class Browser:
    """Opens what it is shown, in a thread of its own, after what a test does to it."""

    def __init__(self, first: tuple[str, ...] = ()) -> None:
        self._first = first
        self.shown = ""
        self.answers: list[httpx.Response] = []

    def __call__(self, address: str) -> None:
        self.shown = address
        threading.Thread(target=self._open, daemon=True).start()

    def _open(self) -> None:
        back = parse_qs(urlsplit(self.shown).query)["redirect_uri"][0]
        with httpx.Client(trust_env=False, follow_redirects=True) as http:
            for query in self._first:
                self.answers.append(http.get(f"{back}?{query}"))
            self.answers.append(http.get(self.shown))


def test_the_browser_comes_back_with_a_code(asked: IssuerClient) -> None:
    """Which is worth a token for us alone: the verifier never leaves this machine."""
    browser = Browser()
    issued = asked.by_browser(RandomIds(), browser)
    assert issued.email == "ada@example.com"
    assert claims_in(issued.id_token)["aud"] == "zen-cli"
    query = parse_qs(urlsplit(browser.shown).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["redirect_uri"][0].startswith("http://127.0.0.1:")
    assert "openid" in query["scope"][0].split()


def test_a_code_with_another_state_is_not_taken(asked: IssuerClient) -> None:
    """A page that guesses the port cannot sign us in as somebody else."""
    forged = urlencode({"code": "evil", "state": "0" * 64})
    browser = Browser((forged, "code=evil", ""))
    assert asked.by_browser(RandomIds(), browser).email == "ada@example.com"
    assert [answer.status_code for answer in browser.answers[:3]] == [404, 404, 404]


def test_an_answer_of_another_issuer_is_not_taken(asked: IssuerClient, issuer: Issuer) -> None:
    """RFC 9207: its code would go to an issuer that did not make it."""
    issuer.named = "https://evil.example"
    with pytest.raises(SignInFailed, match="not of the issuer"):
        asked.by_browser(RandomIds(), Browser())


def test_a_refusal_is_told(asked: IssuerClient, issuer: Issuer) -> None:
    """In the issuer's words."""
    issuer.denied = True
    with pytest.raises(SignInFailed, match="access_denied"):
        asked.by_browser(RandomIds(), Browser())
    with pytest.raises(SignInFailed, match="access_denied"):
        asked.by_device(lambda *_: None, lambda _: None)


def test_nobody_signs_in_in_time(asked: IssuerClient) -> None:
    """The port is not open for ever."""
    with pytest.raises(SignInFailed, match="in time"):
        asked.by_browser(RandomIds(), lambda _: None, wait_s=0.0)


def test_a_device_waits_for_the_person(asked: IssuerClient, issuer: Issuer) -> None:
    """At the pace that the issuer asks for: slower when it says so."""
    issuer.pending, issuer.slow_down = 2, True
    told: list[tuple[str, str]] = []
    slept: list[float] = []
    issued = asked.by_device(lambda *words: told.append((words[0], words[1])), slept.append)
    assert issued.email == "ada@example.com"
    assert told == [(f"{issuer.url}/activate", "WDJB-MJHT")]
    assert slept == [1.0, 6.0, 6.0, 6.0]


def test_a_token_is_refreshed(asked: IssuerClient, issuer: Issuer) -> None:
    """Each refresh token once, if the issuer rotates them."""
    first = asked.by_device(lambda *_: None, lambda _: None)
    assert first.refresh_token is not None
    second = asked.by_refresh(first.refresh_token)
    assert second.refresh_token != first.refresh_token
    with pytest.raises(SignInFailed, match="invalid_grant"):
        asked.by_refresh(first.refresh_token)


def test_a_token_is_revoked(asked: IssuerClient, issuer: Issuer) -> None:
    """RFC 7009."""
    issued = asked.by_device(lambda *_: None, lambda _: None)
    assert issued.refresh_token is not None
    asked.revoke(issued.refresh_token)
    assert issued.refresh_token in issuer.revoked


def test_an_issuer_that_is_another_is_refused(issuer: Issuer) -> None:
    """Its document must speak for the address that we asked."""
    other = issuer.url.replace("127.0.0.1", "localhost")
    with httpx.Client(trust_env=False) as http, pytest.raises(SignInFailed, match="describe"):
        IssuerClient(LoginClient(other, "zen-cli"), http, SystemClock())


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "a.W10.c", "a.e30.c"])
def test_what_is_no_token_has_no_claims(token: str) -> None:
    """Nothing breaks."""
    assert claims_in(token) == {}
