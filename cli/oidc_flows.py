"""How `zen login` gets an identity token: by a code for another device (RFC 8628), or by the
browser of this machine, which comes back to a port of loopback (RFC 8252, with PKCE)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from core.browser_checks import is_loopback
from core.errors import ZenError
from core.identity import is_answer_of
from core.ports import Clock, Ids

if TYPE_CHECKING:
    import httpx

SCOPE = "openid email profile offline_access"
BROWSER_S = 300.0
POLL_S = 5.0
ANSWER_S = 10.0
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_PAGE = "<!doctype html><meta charset=utf-8><title>zen</title><p>{}</p>"


class SignInFailed(ZenError):
    """The issuer gave no token: the text says why."""

    code = "sign_in_failed"


@dataclass(frozen=True, slots=True)
class LoginClient:
    """As whom we ask which issuer."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    """Of clients that have one; what is on people's machines is no secret."""

    def form(self, **words: str) -> dict[str, str]:
        secret = {} if self.client_secret is None else {"client_secret": self.client_secret}
        return {"client_id": self.client_id, **secret, **words}


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """What the issuer gave."""

    id_token: str
    expires_at: datetime
    refresh_token: str | None
    email: str


class IssuerClient:
    """One issuer, as its discovery document describes it."""

    def __init__(self, client: LoginClient, http: httpx.Client, clock: Clock) -> None:
        self.client = client
        self._http = http
        self._clock = clock
        url = f"{client.issuer.rstrip('/')}/.well-known/openid-configuration"
        status, self._found = self._read(lambda: http.get(url))
        if status != 200 or self._found.get("issuer") != client.issuer:
            raise SignInFailed(f"{url} does not describe the issuer {client.issuer}")

    def endpoint(self, name: str) -> str | None:
        """None: the issuer has none. Never one that is less safe than the issuer itself."""
        address = self._found.get(name)
        if not isinstance(address, str):
            return None
        local = is_loopback(urlsplit(address).hostname or "")
        if not address.startswith("https://") and not local:
            raise SignInFailed(f"the issuer's {name} is no https address: {address}")
        return address

    def required(self, name: str) -> str:
        address = self.endpoint(name)
        if address is None:
            raise SignInFailed(f"the issuer {self.client.issuer} has no {name}")
        return address

    def post(self, url: str, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        return self._read(lambda: self._http.post(url, data=dict(form)))

    def _read(self, call: Callable[[], httpx.Response]) -> tuple[int, dict[str, Any]]:
        import httpx

        try:
            answer = call()
            found = answer.json() if answer.content else {}
        except httpx.HTTPError as error:
            raise SignInFailed(f"the issuer {self.client.issuer} failed: {error}") from error
        except ValueError as error:
            raise SignInFailed(f"the issuer {self.client.issuer} answered no JSON") from error
        return answer.status_code, found if isinstance(found, dict) else {}

    # --- the ways to a token ---

    def tokens(self, form: Mapping[str, str]) -> IssuedTokens:
        """At the token endpoint; SignInFailed with the issuer's own word."""
        status, found = self.post(self.required("token_endpoint"), form)
        if status != 200:
            raise SignInFailed(f"the issuer refused: {_error(found)}")
        return self._issued(found)

    def _issued(self, found: Mapping[str, Any]) -> IssuedTokens:
        token = found.get("id_token")
        claims = claims_in(token) if isinstance(token, str) else {}
        seconds = claims.get("exp")
        if not isinstance(token, str) or not isinstance(seconds, int | float):
            raise SignInFailed("the issuer gave no identity token: does the client have openid?")
        expires_at = datetime.fromtimestamp(seconds, self._clock.now().tzinfo)
        refresh = found.get("refresh_token")
        email = str(claims.get("email", claims.get("sub", "")))
        return IssuedTokens(token, expires_at, refresh or None, email)

    def by_refresh(self, refresh_token: str) -> IssuedTokens:
        """A new token for an old one; issuers that rotate give a new refresh token too."""
        form = self.client.form(grant_type="refresh_token", refresh_token=refresh_token)
        fresh = self.tokens(form)
        kept = fresh.refresh_token or refresh_token
        return IssuedTokens(fresh.id_token, fresh.expires_at, kept, fresh.email)

    def by_device(
        self, tell: Callable[[str, str], None], sleep: Callable[[float], None]
    ) -> IssuedTokens:
        """`tell` gets the address and the code that the person types there."""
        url = self.required("device_authorization_endpoint")
        status, asked = self.post(url, self.client.form(scope=SCOPE))
        if status != 200 or not all(
            isinstance(asked.get(word), str) for word in ("device_code", "verification_uri")
        ):
            raise SignInFailed(f"the issuer refused: {_error(asked)}")
        tell(
            str(asked.get("verification_uri_complete") or asked["verification_uri"]),
            str(asked.get("user_code", "")),
        )
        pause = float(asked.get("interval") or POLL_S)
        until = self._clock.now() + timedelta(seconds=float(asked.get("expires_in", 600)))
        form = self.client.form(grant_type=_DEVICE_GRANT, device_code=asked["device_code"])
        while self._clock.now() < until:
            sleep(pause)
            status, found = self.post(self.required("token_endpoint"), form)
            if status == 200:
                return self._issued(found)
            match found.get("error"):
                case "authorization_pending":
                    continue
                case "slow_down":
                    pause += POLL_S
                case _:
                    raise SignInFailed(f"the issuer refused: {_error(found)}")
        raise SignInFailed("nobody signed in before the code expired: try again")

    def by_browser(
        self, ids: Ids, show: Callable[[str], None], wait_s: float = BROWSER_S
    ) -> IssuedTokens:
        """`show` gets the address to open; the browser comes back to a port of ours."""
        verifier, state, nonce = (ids.secret().hex() for _ in range(3))
        with _CallBack(state, wait_s) as back:
            query = {
                "response_type": "code",
                "client_id": self.client.client_id,
                "redirect_uri": back.address,
                "scope": SCOPE,
                "state": state,
                "nonce": nonce,
                "code_challenge": challenge_of(verifier),
                "code_challenge_method": "S256",
            }
            show(f"{self.required('authorization_endpoint')}?{urlencode(query)}")
            code = back.wait(self._clock)
        if not is_answer_of(self.client.issuer, back.answer.get("iss"), self._found):
            raise SignInFailed("the answer is not of the issuer that was asked: begin again")
        form = self.client.form(
            grant_type="authorization_code",
            code=code,
            code_verifier=verifier,
            redirect_uri=back.address,
        )
        issued = self.tokens(form)
        if claims_in(issued.id_token).get("nonce") != nonce:
            raise SignInFailed("the issuer's token answers another sign-in")
        return issued

    def revoke(self, refresh_token: str) -> None:
        """RFC 7009, where the issuer offers it."""
        if (url := self.endpoint("revocation_endpoint")) is not None:
            self.post(url, self.client.form(token=refresh_token))


def challenge_of(verifier: str) -> str:
    """S256 of RFC 7636."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def claims_in(token: str) -> dict[str, Any]:
    """What a token says. Unchecked: the issuer gave it to us over TLS, and the API checks it."""
    try:
        body = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _error(found: Mapping[str, Any]) -> str:
    words = found.get("error_description") or found.get("error") or "it does not say why"
    return str(words)[:200]


class _CallBack:
    """A port of loopback that waits for one browser to come back."""

    def __init__(self, state: str, wait_s: float) -> None:
        self._state = state
        self._wait_s = wait_s
        self.answer: dict[str, str] = {}
        call_back = self

        class Handler(BaseHTTPRequestHandler):
            timeout = ANSWER_S

            def do_GET(self) -> None:
                words = call_back.take(self.path)
                raw = _PAGE.format(words or "There is nothing here.").encode()
                self.send_response(200 if words else 404)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-security-policy", "default-src 'none'")
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                """Says nothing: the address holds the code."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/callback"

    def take(self, path: str) -> str:
        """What the browser shows; empty for a request that is not the awaited one."""
        parts = urlsplit(path)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != "/callback" or not hmac.compare_digest(
            given.get("state", "").encode(), self._state.encode()
        ):
            return ""
        self.answer = given
        return (
            "You are signed in: close this page." if "code" in given else "You are not signed in."
        )

    def wait(self, clock: Clock) -> str:
        """The code; SignInFailed says why there is none."""
        until = clock.monotonic() + self._wait_s
        while not self.answer and (left := until - clock.monotonic()) > 0:
            self._server.timeout = min(left, 1.0)
            self._server.handle_request()
        if not self.answer:
            raise SignInFailed("nobody signed in in time: try again, or use --device")
        if "code" not in self.answer:
            raise SignInFailed(f"the issuer refused: {_error(self.answer)}")
        return self.answer["code"]

    def __enter__(self) -> _CallBack:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()
