"""The sign-in page: with a key, or with an issuer by authorization code and PKCE (RFC 7636)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from http import HTTPStatus
from urllib.parse import parse_qs, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from core.access import PUBLIC, Principal
from core.api_keys import parse_key
from core.audit_log import Actor
from core.identity import BadToken
from core.sessions import csrf_matches, csrf_token
from scheduler.access.authenticator import Credentials, NotAllowed, Unauthenticated
from scheduler.api.http.endpoint import ResponseDoc, Routes, reply, route
from scheduler.api.http.problems import TooLarge, WrongMediaType
from scheduler.api.http.rate_limit import client_address
from scheduler.api.http.session_cookie import Cookies
from scheduler.api.http.sign_in_page import (
    SIGN_IN_POLICY,
    SignedInAs,
    signed_in_page,
    signed_out_page,
)
from scheduler.api.http.way_back import SIGN_IN, WAY_BACK, safe_way_back, wants_page

FORM = "application/x-www-form-urlencoded"
FORM_BYTES_MAX = 4096
SCOPE = "openid email profile"
NO_KEY = "this is no API key: expected zen_ and more"
_PAGE = {"Content-Security-Policy": SIGN_IN_POLICY}


class OfferedIssuerOut(msgspec.Struct, frozen=True):
    """An issuer with which `zen login` signs in."""

    name: str
    issuer: str
    client_id: str


class SignInOut(msgspec.Struct, frozen=True):
    """How programs sign in: for callers that want no page."""

    issuers: tuple[OfferedIssuerOut, ...]


class _Pending(msgspec.Struct, frozen=True):
    """A sign-in that is under way, in the browser alone: any replica may see its end."""

    issuer: str
    state: str
    nonce: str
    verifier: str
    way_back: str = SIGN_IN


_HTML = ResponseDoc("A page.", content_type="text/html", text="<!doctype html>…")
_AWAY = ResponseDoc("Go there.", content_type="text/html", text="(empty)")


class SignInRoutes(Routes):
    """For browsers."""

    tag = "sign-in"
    lenient = True

    @route("GET /sign-in", PUBLIC, ResponseDoc("The page, or JSON for programs.", SignInOut))
    async def page(self, request: Request) -> Response:
        """The sign-in page; with a session: who you are. Programs get the issuers of zen login."""
        rules = self._services.settings.current.access
        if not wants_page(request):
            offered = [
                OfferedIssuerOut(one.name, one.issuer, one.cli_client_id)
                for one in rules.issuers.values()
                if one.cli_client_id is not None
            ]
            return reply(SignInOut(tuple(offered)))
        cookie = self._cookies.session(request)
        if cookie is None:
            return self._signed_out()
        try:
            principal = await self._principal(request, Credentials(session=cookie))
        except Unauthenticated as error:
            answer = self._signed_out(str(error))
            self._cookies.clear(answer, session=True)
            return answer
        who = SignedInAs(principal, csrf_token(cookie))
        return HTMLResponse(signed_in_page(who), headers=_PAGE)

    @route("POST /sign-in", PUBLIC, {303: _AWAY, 401: _HTML}, errors=(413, 415, 429, 503))
    async def by_key(self, request: Request) -> Response:
        """Sign in with an API key."""
        form = await _form(request)
        key, way_back = form.get("key", "").strip(), safe_way_back(form.get(WAY_BACK, ""))
        parsed = parse_key(key)
        try:
            # Also what is no key is counted as a guess.
            principal = await self._principal(request, Credentials(f"Bearer {key}"))
        except Unauthenticated as error:
            problem = str(error) if parsed else NO_KEY
            return self._signed_out(problem, HTTPStatus.UNAUTHORIZED, way_back)
        if parsed is None:
            return self._signed_out(NO_KEY, HTTPStatus.UNAUTHORIZED, way_back)
        sessions = self._services.access.sessions
        cookie = await sessions.open(principal, self._actor(request, principal.name), parsed[1])
        return self._signed_in(cookie, way_back)

    @route("GET /sign-in/start", PUBLIC, {303: _AWAY, 401: _HTML}, errors=(503,))
    async def start(self, request: Request) -> Response:
        """Go to an issuer to sign in there."""
        name = request.query_params.get("issuer", "")
        way_back = safe_way_back(request.query_params.get(WAY_BACK, ""))
        try:
            tokens = self._services.access.people.verifier.oidc(name)
            if tokens.issuer.client_id is None:
                raise BadToken("this issuer signs nobody in here")
            address = await tokens.endpoint("authorization_endpoint")
        except BadToken as error:
            return self._signed_out(str(error), HTTPStatus.UNAUTHORIZED, way_back)
        state, nonce, verifier = (self._services.ids.secret().hex() for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        query = {
            "response_type": "code",
            "client_id": tokens.issuer.client_id,
            "redirect_uri": self._call_back(request),
            "scope": SCOPE,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        answer = RedirectResponse(f"{address}?{urlencode(query)}", HTTPStatus.SEE_OTHER)
        pending = msgspec.json.encode(_Pending(name, state, nonce, verifier, way_back))
        self._cookies.set_state(answer, base64.urlsafe_b64encode(pending).decode())
        return answer

    @route("GET /sign-in/callback", PUBLIC, {303: _AWAY, 401: _HTML}, errors=(429, 503))
    async def call_back(self, request: Request) -> Response:
        """Where the issuer sends the browser back to."""
        pending = _pending(self._cookies.state(request))
        way_back = safe_way_back(pending.way_back) if pending is not None else SIGN_IN
        try:
            cookie = await self._completed(request, pending)
        except (BadToken, Unauthenticated) as error:
            answer = self._signed_out(str(error), HTTPStatus.UNAUTHORIZED, way_back)
            self._cookies.clear(answer)
            return answer
        return self._signed_in(cookie, way_back)

    @route("POST /sign-out", PUBLIC, {303: _AWAY}, errors=(403, 413, 415, 503))
    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        cookie = self._cookies.session(request)
        given = (await _form(request)).get("csrf", "")
        if cookie is not None:
            if not csrf_matches(cookie, given):
                raise NotAllowed("csrf: expected the token of this session's page")
            await self._end(request, cookie)
        answer = RedirectResponse(SIGN_IN, HTTPStatus.SEE_OTHER)
        self._cookies.clear(answer, session=True)
        return answer

    # --- parts ---

    @property
    def _cookies(self) -> Cookies:
        return Cookies(self._services.api)

    async def _completed(self, request: Request, pending: _Pending | None) -> str:
        """The cookie of the new session; BadToken says why there is none."""
        given = request.query_params
        if pending is None or not hmac.compare_digest(
            pending.state.encode(), given.get("state", "").encode()
        ):
            raise BadToken("state: this sign-in was not begun in this browser: begin again")
        access = self._services.access
        tokens = access.people.verifier.oidc(pending.issuer)
        await tokens.check_answer(given.get("iss"))
        if "code" not in given:
            raise BadToken(f"the issuer refused: {given.get('error', 'no code')[:80]}")
        if tokens.issuer.client_id is None:
            raise BadToken("this issuer signs nobody in here")
        person = await tokens.redeem(
            given["code"], pending.verifier, self._call_back(request), pending.nonce
        )
        principal = await access.people.principal(person)
        return await access.sessions.open(principal, self._actor(request, principal.name), person)

    async def _principal(self, request: Request, given: Credentials) -> Principal:
        return await self._services.access.authenticator.principal(given, self._address(request))

    async def _end(self, request: Request, cookie: str) -> None:
        sessions = self._services.access.sessions
        try:
            session = await sessions.find(cookie)
        except Unauthenticated:
            return  # it has ended already
        await sessions.end(session, self._actor(request, session.principal))

    def _actor(self, request: Request, principal: str) -> Actor:
        return Actor(principal, "", self._address(request), str(request.state.request_id))

    def _address(self, request: Request) -> str:
        return client_address(request.scope, self._services.api.forwarded_hops)

    def _call_back(self, request: Request) -> str:
        """Where browsers reach us: the Host header was checked before."""
        scheme = "https" if self._cookies.secure else "http"
        return f"{scheme}://{request.headers['host']}/sign-in/callback"

    def _signed_in(self, cookie: str, way_back: str) -> Response:
        answer = RedirectResponse(way_back, HTTPStatus.SEE_OTHER)
        self._cookies.clear(answer)
        self._cookies.set_session(answer, cookie)
        return answer

    def _signed_out(
        self, problem: str = "", status: HTTPStatus = HTTPStatus.OK, way_back: str = SIGN_IN
    ) -> Response:
        issuers = self._services.settings.current.access.issuers.values()
        return HTMLResponse(signed_out_page(issuers, problem, way_back), status, headers=_PAGE)


def _pending(cookie: str) -> _Pending | None:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cookie), type=_Pending)
    except (ValueError, msgspec.MsgspecError):
        return None


async def _form(request: Request) -> dict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != FORM:
        raise WrongMediaType(f"Content-Type: expected {FORM}")
    raw = (await request.body())[: FORM_BYTES_MAX + 1]
    if len(raw) > FORM_BYTES_MAX:
        raise TooLarge(f"the form is larger than {FORM_BYTES_MAX} bytes")
    try:
        found = parse_qs(raw.decode("latin-1"), max_num_fields=10)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items()}
