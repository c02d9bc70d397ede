"""Which issuer's keys check a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from core.access_rules import AccessRules
from core.clock import SystemClock
from core.identity import BadToken
from identity.verifier import TokenVerifier
from tests.issuer import Issuer, serving


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving() as made:
        yield made


class Rules:
    """The configuration, as the test says."""

    def __init__(self, current: AccessRules) -> None:
        self.current = current

    def __call__(self) -> AccessRules:
        return self.current


async def test_tokens_of_unknown_issuers_do_not_count(issuer: Issuer) -> None:
    """Also of an issuer that was taken out of the configuration a moment ago."""
    rules = Rules(AccessRules({"local": issuer.settings()}))
    verifier = TokenVerifier(rules, SystemClock())
    assert (await verifier.identity(issuer.token())).email == "ada@example.com"
    rules.current = AccessRules()
    with pytest.raises(BadToken, match="iss"):
        await verifier.identity(issuer.token())


async def test_a_change_of_an_issuer_counts_at_once(issuer: Issuer) -> None:
    """Its audience, for example; what was known of its keys is fetched anew."""
    rules = Rules(AccessRules({"local": issuer.settings()}))
    verifier = TokenVerifier(rules, SystemClock())
    await verifier.identity(issuer.token())
    rules.current = AccessRules({"local": replace(issuer.settings(), audiences=("other",))})
    with pytest.raises(BadToken, match="aud"):
        await verifier.identity(issuer.token())


async def test_keys_are_kept_while_nothing_changes(issuer: Issuer) -> None:
    """Two tokens, one fetch."""
    verifier = TokenVerifier(Rules(AccessRules({"local": issuer.settings()})), SystemClock())
    await verifier.identity(issuer.token())
    await verifier.identity(issuer.token(email="eve@example.com"))
    assert issuer.fetches == 1


async def test_assertions_count_only_where_they_are_configured(issuer: Issuer) -> None:
    """A client could send the header itself."""
    verifier = TokenVerifier(Rules(AccessRules()), SystemClock())
    with pytest.raises(BadToken, match=r"access\.iap_audience"):
        await verifier.iap_identity(issuer.token())


async def test_google_is_trusted_only_where_it_is_configured(issuer: Issuer) -> None:
    """Everybody has a Google account."""
    verifier = TokenVerifier(Rules(AccessRules()), SystemClock())
    with pytest.raises(BadToken, match="iss"):
        await verifier.identity(issuer.token(iss="https://accounts.google.com"))
