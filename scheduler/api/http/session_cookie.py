"""Cookies of browsers that have signed in, and what a write of theirs must carry."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from config.settings import ApiSettings
from core.browser_checks import SAFE_METHODS
from core.sessions import csrf_matches
from scheduler.access.authenticator import Credentials, NotAllowed

CSRF_HEADER = "x-csrf-token"
IAP_HEADER = "x-goog-iap-jwt-assertion"
STATE_S = 600


class Cookies:
    """As one API sets and reads them. `__Host-` keeps other hosts of the domain from setting
    them; browsers take it over TLS alone."""

    def __init__(self, api: ApiSettings) -> None:
        self.secure = api.tls is not None or api.behind_proxy
        before = "__Host-" if self.secure else ""
        self._session = f"{before}zen-session"
        self._state = f"{before}zen-sign-in"

    def credentials(self, request: Request) -> Credentials:
        """What the request brings."""
        headers = request.headers
        authorization = headers.get("authorization")
        if authorization is not None:
            return Credentials(authorization)
        return Credentials(None, self.session(request), headers.get(IAP_HEADER))

    def session(self, request: Request) -> str | None:
        """The cookie of the session."""
        return request.cookies.get(self._session) if "cookie" in request.headers else None

    def state(self, request: Request) -> str:
        """What a sign-in that is under way left in the browser."""
        return request.cookies.get(self._state, "")

    def set_session(self, answer: Response, cookie: str) -> None:
        """Until the browser closes; the server knows when it ends before that."""
        self._set(answer, self._session, cookie, None)

    def set_state(self, answer: Response, state: str) -> None:
        self._set(answer, self._state, state, STATE_S)

    def clear(self, answer: Response, *, session: bool = False) -> None:
        """The state, and the session if it has ended."""
        for name in (self._state, *((self._session,) if session else ())):
            self._set(answer, name, "", 0)

    def _set(self, answer: Response, name: str, value: str, seconds: int | None) -> None:
        # Lax: a link from elsewhere finds the person signed in, a form from elsewhere does not.
        answer.set_cookie(
            name, value, max_age=seconds, httponly=True, samesite="lax", secure=self.secure
        )


def refuse_forged(request: Request, given: Credentials) -> None:
    """NotAllowed for a write that has the browser's cookie and not the token of its pages."""
    if given.session is None or request.method in SAFE_METHODS:
        return
    if not csrf_matches(given.session, request.headers.get(CSRF_HEADER, "")):
        raise NotAllowed("X-CSRF-Token: expected the token of this session's pages")
