"""zen login and zen logout, at a real issuer; the API answers from a table."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.issuer import Issuer, serving

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

ME = {
    "principal": "user:ada@example.com",
    "name": "ada@example.com",
    "user_id": "ada",
    "scopes": [],
}


@pytest.fixture
def issuer(api: Api) -> Iterator[Issuer]:
    """The issuer that the API offers; the API itself is a table."""
    with serving() as made:
        offered = {"name": "corp", "issuer": made.url, "client_id": "zen-cli"}
        api.on("GET", "/sign-in", {"issuers": [offered]})
        api.on("GET", "/api/v1/whoami", {**ME, "rights": []})
        yield made


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """The person at the browser agrees at once."""

    def opened(address: str) -> bool:
        def visit() -> None:
            httpx.get(address, follow_redirects=True, trust_env=False)

        threading.Thread(target=visit, daemon=True).start()
        return True

    monkeypatch.setattr(webbrowser, "open", opened)


@pytest.mark.usefixtures("browser")
def test_a_person_signs_in_by_browser(zen: Callable[..., Ended], api: Api, issuer: Issuer) -> None:
    """Commands then call with the token, until they sign out."""
    done = zen("login")
    assert (done.code, done.out.strip()) == (
        0,
        "signed in at http://127.0.0.1:8080 as ada@example.com",
    )
    assert "no role here yet" in done.err
    assert zen("whoami").code == 0
    assert api.requests[-1].headers["authorization"].count(".") == 2
    assert zen("logout").out.strip() == "ada@example.com is signed out of http://127.0.0.1:8080"
    assert issuer.revoked
    zen("whoami")
    assert "authorization" not in api.requests[-1].headers
    assert zen("logout").out.strip() == "nobody is signed in at http://127.0.0.1:8080"


def test_a_person_signs_in_on_another_device(
    zen: Callable[..., Ended], issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code and the address are printed."""
    issuer.pending = 1
    monkeypatch.setattr("time.sleep", lambda _: None)
    done = zen("login", "--device", "--json")
    assert done.json["email"] == "ada@example.com"
    assert "WDJB-MJHT" in done.err
    assert f"{issuer.url}/activate" in done.err


@pytest.mark.usefixtures("browser")
def test_an_issuer_can_be_named(zen: Callable[..., Ended], api: Api, issuer: Issuer) -> None:
    """Where the API offers none."""
    api.on("GET", "/sign-in", {"issuers": []})
    refused = zen("login")
    assert refused.code == 1
    assert "--issuer and --client-id" in refused.err
    assert zen("login", "--issuer", issuer.url, "--client-id", "zen-cli").code == 0


@pytest.mark.usefixtures("browser")
def test_several_issuers_need_a_choice(zen: Callable[..., Ended], api: Api, issuer: Issuer) -> None:
    """By their addresses."""
    both = [
        {"name": "corp", "issuer": issuer.url, "client_id": "zen-cli"},
        {"name": "lab", "issuer": "https://lab.example", "client_id": "zen"},
    ]
    api.on("GET", "/sign-in", {"issuers": both})
    refused = zen("login")
    assert "choose one" in refused.err
    assert zen("login", "--issuer", issuer.url).code == 0


def test_an_api_that_does_not_say_how_is_told(zen: Callable[..., Ended], api: Api) -> None:
    """In one line."""
    refused = zen("login")
    assert refused.code == 1
    assert "does not say how to sign in" in refused.err
