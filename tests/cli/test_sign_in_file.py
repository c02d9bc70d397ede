"""The file with the tokens of `zen login`."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cli.oidc_flows import IssuerClient, LoginClient, SignInFailed
from cli.sign_in_file import BadSignInFile, SignIn, SignInFile, sign_in_file
from core.clock import SystemClock
from tests.issuer import Issuer, serving

API = "https://zen.example.com"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving() as made:
        yield made


def sign_in(issuer: Issuer) -> SignIn:
    client = LoginClient(issuer.url, "zen-cli")
    with httpx.Client(trust_env=False) as http:
        asked = IssuerClient(client, http, SystemClock())
        return SignIn.of(client, asked.by_device(lambda *_: None, lambda _: None))


def test_it_is_its_owners_alone(issuer: Issuer, tmp_path: Path) -> None:
    """0600 in a directory of 0700, and refused when others may read it."""
    file = SignInFile(tmp_path / "zen" / "sign-in.json")
    file.put(API, sign_in(issuer))
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    file.path.chmod(0o644)
    with pytest.raises(BadSignInFile, match="chmod 600"):
        file.find(API)


def test_a_token_is_for_one_api(issuer: Issuer, tmp_path: Path) -> None:
    """Another address does not get it."""
    file = SignInFile(tmp_path / "sign-in.json")
    made = sign_in(issuer)
    assert file.token(API, SystemClock()) is None
    file.put(API, made)
    assert file.token(API, SystemClock()) == made.id_token
    assert file.token("https://evil.example", SystemClock()) is None
    assert file.forget(API) == made
    assert file.token(API, SystemClock()) is None


def test_a_token_that_ends_is_refreshed(issuer: Issuer, tmp_path: Path) -> None:
    """And the new one is kept."""
    file = SignInFile(tmp_path / "sign-in.json")
    issuer.seconds = 30
    old = sign_in(issuer)
    issuer.seconds = 3600
    file.put(API, old)
    fresh = file.token(API, SystemClock())
    assert fresh not in (None, old.id_token)
    kept = file.find(API)
    assert kept is not None
    assert (kept.id_token, kept.refresh_token == old.refresh_token) == (fresh, False)
    assert file.token(API, SystemClock()) == fresh


def test_a_person_who_is_signed_out_elsewhere_is_told(issuer: Issuer, tmp_path: Path) -> None:
    """To sign in again."""
    file = SignInFile(tmp_path / "sign-in.json")
    issuer.seconds = 30
    file.put(API, sign_in(issuer))
    issuer.refresh_tokens.clear()
    with pytest.raises(SignInFailed, match="zen login"):
        file.token(API, SystemClock())


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    """With what to do."""
    file = SignInFile(tmp_path / "sign-in.json")
    for text in ("{", "[]", '{"a": 5}', '{"a": {"b": 1}}'):
        file.path.write_text(text)
        file.path.chmod(0o600)
        with pytest.raises(BadSignInFile, match="delete it"):
            file.find(API)


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ZEN_HOME beside the rest, else with the person's other settings."""
    monkeypatch.setenv("ZEN_HOME", "/srv/zen")
    assert sign_in_file().path == Path("/srv/zen/sign-in.json")
    monkeypatch.delenv("ZEN_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/ada/.config")
    assert sign_in_file().path == Path("/home/ada/.config/zen/sign-in.json")
