"""Google's identity tokens and Identity-Aware Proxy, with keys of our own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from core.clock import SystemClock
from core.identity import BadToken
from identity.google_tokens import IAP_ISSUER, GoogleTokens, google_people, iap_people
from tests.issuer import PrivateKey

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
BACKEND = "/projects/1/global/backendServices/2"


def pem(key: PrivateKey) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


@pytest.fixture(scope="module")
def keys_url() -> Iterator[str]:
    """Keys as Google publishes them: PEM by id."""
    body = json.dumps({"r1": pem(RSA), "e1": pem(CURVE)}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def google_token(key: PrivateKey = RSA, kid: str = "r1", **claims: object) -> str:
    now = int(time.time())
    body = {
        "iss": "https://accounts.google.com",
        "aud": "zen",
        "sub": "1",
        "email": "ci@project.iam.gserviceaccount.com",
        "email_verified": True,
        "iat": now,
        "exp": now + 3600,
        **claims,
    }
    algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
    return jwt.encode(body, key, algorithm, headers={"kid": kid})


def iap_token(key: PrivateKey = CURVE, kid: str = "e1", **claims: object) -> str:
    given = {"iss": IAP_ISSUER, "aud": BACKEND, "email": "ada@example.com", **claims}
    return google_token(key, kid, **{"email_verified": None, **given})


@pytest.fixture
def google(keys_url: str) -> GoogleTokens:
    return google_people(("zen",), (), SystemClock(), keys_url)


@pytest.fixture
def iap(keys_url: str) -> GoogleTokens:
    return iap_people(BACKEND, SystemClock(), keys_url)


async def test_a_service_account_is_somebody(google: GoogleTokens) -> None:
    """By its e-mail address."""
    identity = await google.identity(google_token())
    assert identity.user == "user:ci@project.iam.gserviceaccount.com"


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another"},
        {"iss": "https://evil.example"},
        {"iss": IAP_ISSUER},
        {"email_verified": False},
        {"email_verified": None},
        {"exp": int(time.time()) - 3600, "iat": int(time.time()) - 7200},
    ],
)
async def test_wrong_claims_do_not_count(google: GoogleTokens, claims: dict[str, Any]) -> None:
    """Signed by Google's key, all of them."""
    with pytest.raises(BadToken):
        await google.identity(google_token(**claims))


async def test_wrong_keys_do_not_count(google: GoogleTokens) -> None:
    """An unknown one, one of another kind, and a stranger's under a known name."""
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    for token in (google_token(kid="r9"), google_token(CURVE, "e1"), google_token(stranger)):
        with pytest.raises(BadToken):
            await google.identity(token)


async def test_identity_aware_proxy_vouches_for_people(iap: GoogleTokens) -> None:
    """Its assertions do not say that the address is verified: it knows no other."""
    assert (await iap.identity(iap_token())).user == "user:ada@example.com"


@pytest.mark.parametrize(
    "claims", [{"aud": "/projects/1/global/backendServices/3"}, {"iss": "accounts.google.com"}]
)
async def test_other_assertions_do_not_count(iap: GoogleTokens, claims: dict[str, Any]) -> None:
    """Those for another back end, and Google's other tokens."""
    with pytest.raises(BadToken):
        await iap.identity(iap_token(**claims))


async def test_an_assertion_is_signed_by_a_curve(iap: GoogleTokens) -> None:
    """RS256 does not count there."""
    with pytest.raises(BadToken, match="alg"):
        await iap.identity(iap_token(RSA, "r1"))
