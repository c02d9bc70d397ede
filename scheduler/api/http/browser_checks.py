"""The checks of core/browser_checks on ASGI requests: Host for all, Origin and Content-Type for
requests that may change something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from config.settings import ApiSettings
from core.browser_checks import SAFE_METHODS, AllowedHosts, is_cross_site
from core.ports import Ids
from scheduler.api.http.problems import REQUEST_ID, CrossSite, Problem, WrongMediaType, render
from scheduler.api.http.security_headers import secured

_KNOWN_MAX = 64


class Front:
    """The outermost layer, around preflights as well: a request for another host is not served,
    and every answer has the security headers."""

    def __init__(self, app: ASGIApp, *, api: ApiSettings, ids: Ids) -> None:
        self._app = app
        self._ids = ids
        self._hosts = AllowedHosts.of(api.host, api.allowed_hosts)
        self._known: set[tuple[bytes, object]] = set()
        """Headers that were allowed, so that most requests cost one look-up."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": secured(message.get("headers", ()))}
            await send(message)

        if scope["type"] == "http" and (problem := self._judge(scope)) is not None:
            request_id = self._ids.token()
            named = replace(problem, headers={REQUEST_ID: request_id})
            await render(named, request_id)(scope, receive, secured_send)
            return
        await self._app(scope, receive, secured_send)

    def _judge(self, scope: Scope) -> Problem | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if not hosts and scope["http_version"] == "1.0":
            return None  # health checks of old proxies; no browser speaks this
        if len(hosts) != 1:
            return Problem(400, "bad_host", f"Host: got {len(hosts)} headers, expected one")
        server = scope.get("server")
        arrived_at = server[0] if server else None
        if (hosts[0], arrived_at) in self._known:
            return None
        header = hosts[0].decode("latin-1")
        if not self._hosts.allow(header, arrived_at):
            name = f"Host: got {header[:80]!r}, which is no name of this service"
            return Problem(421, "wrong_host", f"{name}; list it in api.allowed_hosts if it is one")
        if len(self._known) < _KNOWN_MAX:
            self._known.add((hosts[0], arrived_at))
        return None


def refuse_unsafe_write(
    method: str, headers: Mapping[bytes, bytes], cors_origins: tuple[str, ...]
) -> None:
    """CrossSite or WrongMediaType for a write that a page of another site could have sent. Pages
    may send these headers once; the last of several is as good as the first."""
    if method in SAFE_METHODS:
        return
    origin, fetch_site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
    if origin is not None or fetch_site is not None:
        sent = None if origin is None else origin.decode("latin-1")
        site = None if fetch_site is None else fetch_site.decode("latin-1")
        host = headers.get(b"host", b"").decode("latin-1")
        if is_cross_site(method, host, sent, site, cors_origins):
            page = f"a page of {sent[:80]!r}" if sent else "a page of another site"
            raise CrossSite(
                f"{page} may not change anything here; list its origin in api.cors_origins if it "
                "is yours"
            )
    if b"content-type" not in headers and _has_body(headers):
        raise WrongMediaType("Content-Type: got none, expected application/json")


def _has_body(headers: Mapping[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
