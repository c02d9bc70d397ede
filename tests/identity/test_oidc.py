"""Tokens of a real issuer: which count, and which do not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from core.clock import SystemClock
from core.errors import IssuerDown
from core.identity import BadToken
from identity.oidc import OidcTokens
from tests.issuer import Issuer, serving


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving() as made:
        yield made


def tokens_of(issuer: Issuer) -> OidcTokens:
    return OidcTokens(issuer.settings(), SystemClock())


async def test_a_good_token_names_the_person(issuer: Issuer) -> None:
    """E-mail in small letters, and the groups."""
    token = issuer.token(email="Ada@Example.com", groups=["ml-team@example.com", "all"])
    identity = await tokens_of(issuer).identity(token)
    assert (identity.email, identity.groups) == ("ada@example.com", ("all", "ml-team@example.com"))
    assert identity.user == "user:ada@example.com"


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"aud": "another"}, "aud"),
        ({"aud": ["another", 5]}, "aud"),
        ({"aud": None}, "aud"),
        ({"iss": "https://evil.example"}, "iss"),
        ({"exp": int(time.time()) - 60}, "exp"),
        ({"exp": None}, "exp"),
        ({"exp": "tomorrow"}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"iat": int(time.time()) + 3600}, "iat"),
        ({"iat": None}, "iat"),
        ({"nbf": int(time.time()) + 3600}, "nbf"),
        ({"email_verified": False}, "email_verified"),
        ({"email_verified": None}, "email_verified"),
        ({"email": None}, "email"),
        ({"email": "no address"}, "email"),
        ({"email": "аda@example.com"}, "email"),  # Cyrillic, on purpose
        ({"groups": [str(n) for n in range(501)]}, "groups"),
    ],
)
async def test_wrong_claims_do_not_count(
    issuer: Issuer, claims: dict[str, Any], words: str
) -> None:
    """The refusal names the claim."""
    with pytest.raises(BadToken, match=rf"^{words}:"):
        await tokens_of(issuer).identity(issuer.token(**claims))


async def test_only_addresses_of_the_configured_domains_count(issuer: Issuer) -> None:
    """An issuer may know people who are not ours."""
    ours = OidcTokens(issuer.settings(email_domains=("example.com",)), SystemClock())
    assert (await ours.identity(issuer.token())).email == "ada@example.com"
    for other in ("ada@evil.example", "ada@sub.example.com", "ada@example.com.evil"):
        with pytest.raises(BadToken, match="email"):
            await ours.identity(issuer.token(email=other))


async def test_tokens_without_a_signature_do_not_count(issuer: Issuer) -> None:
    """`alg: none`, whatever the case of its letters."""
    plain = jwt.decode(issuer.token(), options={"verify_signature": False})
    unsigned = jwt.encode(plain, "", "none", headers={"kid": "first"})
    with pytest.raises(BadToken, match="alg"):
        await tokens_of(issuer).identity(unsigned)


async def test_the_public_key_cannot_sign(issuer: Issuer) -> None:
    """HS256 with the published key as secret: the oldest trick."""
    public = issuer.keys["first"].public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    plain = jwt.decode(issuer.token(), options={"verify_signature": False})
    forged = _signed_hs256(plain, pem)
    with pytest.raises(BadToken, match="alg"):
        await tokens_of(issuer).identity(forged)
    # Also where somebody configured every algorithm that can be configured.
    with pytest.raises(AssertionError):
        OidcTokens(issuer.settings(algorithms=("HS256",)), SystemClock())


async def test_a_foreign_signature_does_not_count(issuer: Issuer) -> None:
    """Another key under the name of the issuer's."""
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(BadToken, match="signature"):
        await tokens_of(issuer).identity(issuer.token(key=stranger))


async def test_an_algorithm_must_fit_the_key(issuer: Issuer) -> None:
    """PS256 by an RSA key that is published for RS256."""
    tokens = OidcTokens(issuer.settings(algorithms=("RS256", "PS256")), SystemClock())
    with pytest.raises(BadToken, match="signature"):
        await tokens.identity(issuer.token(algorithm="PS256"))


async def test_elliptic_curves_count(issuer: Issuer) -> None:
    """ES256."""
    issuer.keys["curve"] = ec.generate_private_key(ec.SECP256R1())
    identity = await tokens_of(issuer).identity(issuer.token("curve", "ES256"))
    assert identity.email == "ada@example.com"


@pytest.mark.parametrize("token", ["", "a.b.c", "..", "x" * 9000, "é.é.é"])
async def test_what_is_no_token_is_told(issuer: Issuer, token: str) -> None:
    """Without asking the issuer."""
    with pytest.raises(BadToken):
        await tokens_of(issuer).identity(token)
    assert issuer.fetches == 0


async def test_another_nonce_is_another_sign_in(issuer: Issuer) -> None:
    """A token that somebody else's browser got does not complete mine."""
    with pytest.raises(BadToken, match="nonce"):
        await tokens_of(issuer).identity(issuer.token(nonce="theirs"), nonce="mine")


async def test_an_issuer_that_is_down_lets_nobody_in(issuer: Issuer) -> None:
    """Neither a good token nor a bad one."""
    issuer.down = True
    with pytest.raises(IssuerDown):
        await tokens_of(issuer).identity(issuer.token())


async def test_an_issuer_speaks_for_itself_alone(issuer: Issuer) -> None:
    """A configuration that names another issuer is not believed."""
    settings = replace(issuer.settings(), issuer=issuer.url.replace("127.0.0.1", "localhost"))
    with pytest.raises(IssuerDown, match="another issuer"):
        await OidcTokens(settings, SystemClock()).endpoint("jwks_uri")


def _signed_hs256(claims: dict[str, object], secret: bytes) -> str:
    """PyJWT refuses to sign with a public key; attackers do it by hand."""

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    head = part({"alg": "HS256", "typ": "JWT", "kid": "first"}) + b"." + part(claims)
    seal = base64.urlsafe_b64encode(hmac.new(secret, head, hashlib.sha256).digest()).rstrip(b"=")
    return (head + b"." + seal).decode()
