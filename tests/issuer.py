"""A real OpenID Connect issuer on loopback: discovery, keys, and how people sign in."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from core.access_rules import OidcIssuer
from core.identity import NAMES_ITSELF

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
AUDIENCE = "zen"
SECONDS = 3600
_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
"""Making one takes a while; tests that need another make it."""


@dataclass
class Issuer:
    """Its keys, and what it remembers of sign-ins."""

    url: str = ""
    keys: dict[str, PrivateKey] = field(default_factory=lambda: {"first": _KEY})
    down: bool = False
    fetches: int = 0
    """Of its keys."""
    person: dict[str, object] = field(
        default_factory=lambda: {"email": "ada@example.com", "email_verified": True}
    )
    """Who sits at the browser."""
    denied: bool = False
    named: str | None = None
    """What its answers to sign-ins give as their issuer; None: nothing, as of old."""
    names_itself: bool = False
    """Its configuration says that its answers do (RFC 9207)."""
    pending: int = 0
    """So many polls of a device find that nobody has approved yet."""
    slow_down: bool = False
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refresh_tokens: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    now: Callable[[], float] = time.time
    seconds: int = SECONDS
    """How long its tokens last."""

    def token(
        self, kid: str = "first", algorithm: str = "RS256", key: Any = None, **claims: object
    ) -> str:
        """A token of the person's, with other claims where they are given; None leaves one out."""
        now = int(self.now())
        body = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "subject-1",
            "iat": now,
            "exp": now + self.seconds,
            **self.person,
            **claims,
        }
        body = {name: value for name, value in body.items() if value is not None}
        return jwt.encode(body, key or self.keys[kid], algorithm, headers={"kid": kid})

    def settings(self, **changes: Any) -> OidcIssuer:
        """As a configuration trusts it."""
        return OidcIssuer(name="local", issuer=self.url, audiences=(AUDIENCE,), **changes)

    # --- what it answers ---

    def get(self, path: str, query: Mapping[str, str]) -> tuple[int, object]:
        match path:
            case "/.well-known/openid-configuration":
                return 200, {
                    "issuer": self.url,
                    "jwks_uri": f"{self.url}/jwks",
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "device_authorization_endpoint": f"{self.url}/device",
                    "revocation_endpoint": f"{self.url}/revoke",
                    NAMES_ITSELF: self.names_itself,
                }
            case "/jwks":
                self.fetches += 1
                return 200, {"keys": [public_jwk(kid, key) for kid, key in self.keys.items()]}
            case "/authorize":
                return self._authorize(query)
        return 404, {}

    def _authorize(self, query: Mapping[str, str]) -> tuple[int, object]:
        if query.get("response_type") != "code" or query.get("code_challenge_method") != "S256":
            return 400, {"error": "invalid_request"}
        code = secrets.token_urlsafe(16)
        self.codes[code] = dict(query)
        answer = {"error": "access_denied"} if self.denied else {"code": code}
        answer |= {} if self.named is None else {"iss": self.named}
        back = f"{query['redirect_uri']}?{urlencode({**answer, 'state': query['state']})}"
        return 302, back

    def post(self, path: str, form: Mapping[str, str]) -> tuple[int, object]:
        match path:
            case "/device":
                code = secrets.token_urlsafe(16)
                self.codes[code] = dict(form)
                return 200, {
                    "device_code": code,
                    "user_code": "WDJB-MJHT",
                    "verification_uri": f"{self.url}/activate",
                    "expires_in": 600,
                    "interval": 1,
                }
            case "/revoke":
                self.revoked.add(form["token"])
                self.refresh_tokens.discard(form["token"])
                return 200, {}
            case "/token":
                return self._redeem(form)
        return 404, {}

    def _redeem(self, form: Mapping[str, str]) -> tuple[int, object]:
        match form.get("grant_type"):
            case "authorization_code":
                return self._redeem_code(form)
            case "urn:ietf:params:oauth:grant-type:device_code":
                return self._redeem_device(form)
            case "refresh_token":
                if form["refresh_token"] not in self.refresh_tokens:
                    return 400, {"error": "invalid_grant"}
                self.refresh_tokens.discard(form["refresh_token"])
                return self._tokens(form, None)
        return 400, {"error": "unsupported_grant_type"}

    def _redeem_code(self, form: Mapping[str, str]) -> tuple[int, object]:
        asked = self.codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(
            hashlib.sha256(form["code_verifier"].encode()).digest()
        )
        if (
            asked is None
            or asked["client_id"] != form["client_id"]
            or asked["redirect_uri"] != form["redirect_uri"]
            or asked["code_challenge"] != challenge.decode().rstrip("=")
        ):
            return 400, {"error": "invalid_grant"}
        return self._tokens(form, asked.get("nonce"))

    def _redeem_device(self, form: Mapping[str, str]) -> tuple[int, object]:
        if form["device_code"] not in self.codes:
            return 400, {"error": "expired_token"}
        if self.slow_down:
            self.slow_down = False
            return 400, {"error": "slow_down"}
        if self.pending:
            self.pending -= 1
            return 400, {"error": "authorization_pending"}
        if self.denied:
            return 400, {"error": "access_denied"}
        del self.codes[form["device_code"]]
        return self._tokens(form, None)

    def _tokens(self, form: Mapping[str, str], nonce: str | None) -> tuple[int, object]:
        refresh = secrets.token_urlsafe(16)
        self.refresh_tokens.add(refresh)
        return 200, {
            "id_token": self.token(aud=form["client_id"], nonce=nonce),
            "access_token": "opaque",
            "token_type": "Bearer",
            "expires_in": self.seconds,
            "refresh_token": refresh,
        }


def public_jwk(kid: str, key: PrivateKey) -> dict[str, object]:
    """As an issuer publishes a key."""
    if isinstance(key, rsa.RSAPrivateKey):
        made = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return {**made, "kid": kid, "use": "sig", "alg": "RS256"}
    made = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, "use": "sig", "alg": "ES256"}


@contextmanager
def serving(issuer: Issuer | None = None) -> Iterator[Issuer]:
    """The issuer at an address of its own."""
    issuer = issuer or Issuer()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.issuer = issuer
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    issuer: Issuer
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(lambda issuer, path, query: issuer.get(path, query))

    def do_POST(self) -> None:
        form = _single(self.rfile.read(int(self.headers["content-length"])).decode())
        self._answer(lambda issuer, path, _: issuer.post(path, form))

    def _answer(self, ask: Any) -> None:
        issuer = cast("_Server", self.server).issuer
        parts = urlsplit(self.path)
        status, body = (503, {}) if issuer.down else ask(issuer, parts.path, _single(parts.query))
        self.send_response(status)
        if status == 302:
            self.send_header("location", body)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        raw = json.dumps(body).encode()
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


def _single(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}
