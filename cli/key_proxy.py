"""An HTTP proxy on loopback that adds a key: for clients that know an address and nothing else.

Who reaches the port has the key's rights for one tenant. Web pages reach ports of loopback too, so
that requests of browsers are served only if no page of another site sent them.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from yarl import URL

from core.access import TENANT_HEADER
from core.browser_checks import AllowedHosts, is_cross_site
from core.errors import ZenError

CONNECT_S = 10.0
CONNECTIONS_MAX = 256
DRAIN_S = 1.0
_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
        *("trailer", "transfer-encoding", "upgrade", "proxy-connection"),
    }
)
"""Of one connection (RFC 9110, 7.6.1)."""
_NOT_PASSED = frozenset(
    {
        *("host", "authorization", "cookie", "origin", "referer", "x-goog-iap-jwt-assertion"),
        *("x-forwarded-for", "forwarded", TENANT_HEADER),
    }
)
"""Who calls is the key, and nobody else."""
_NOT_RETURNED = frozenset({"set-cookie", "strict-transport-security", "www-authenticate"})


class CannotListen(ZenError):
    """The address is taken, or is not ours to listen on."""

    code = "cannot_listen"


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """Where requests go, and as whom."""

    api: str
    key: str
    tenant_id: str


class KeyProxy:
    """One upstream, one key, one tenant."""

    def __init__(self, target: ProxyTarget, listening_on: str) -> None:
        self._target = target
        self._hosts = AllowedHosts.of(listening_on, ())
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        # Follows of logs and long polls take as long as they take: only connecting is bounded.
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request, piece by piece in both directions."""
        if (refusal := self._refusal(request)) is not None:
            return refusal
        assert self._session is not None
        try:
            async with self._session.request(
                request.method,
                URL(f"{self._target.api}{request.rel_url.raw_path_qs}", encoded=True),
                headers=self._sent(request.headers.items()),
                data=request.content if request.body_exists else None,
                allow_redirects=False,
            ) as answer:
                return await _passed_on(request, answer)
        except aiohttp.ClientConnectionError as error:
            return _problem(502, "unreachable", f"the API at {self._target.api} failed: {error}")

    def _refusal(self, request: web.Request) -> web.Response | None:
        headers = request.headers
        host = headers.get("host", "")
        if not self._hosts.allow(host, None):
            return _problem(421, "wrong_host", f"Host: got {host[:80]!r}, expected this proxy's")
        # A page of another site may not even read: the answers are for those at this machine.
        site = headers.get("sec-fetch-site")
        if is_cross_site("POST", host, headers.get("origin"), site, ()):
            return _problem(403, "cross_site", "pages of other sites may not use this proxy")
        if not request.rel_url.raw_path_qs.startswith("/"):
            return _problem(400, "bad_request", "expected a path")
        return None

    def _sent(self, headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        kept = [
            (name, value)
            for name, value in headers
            if name.lower() not in _HOP | _NOT_PASSED and not name.lower().startswith("sec-")
        ]
        own = [("Authorization", f"Bearer {self._target.key}")]
        return [*kept, *own, (TENANT_HEADER, self._target.tenant_id)]


async def _passed_on(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    told = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in answer.headers.items():
        word = name.lower()
        if word not in _HOP | _NOT_RETURNED and not word.startswith("access-control-"):
            told.headers.add(name, value)
    await told.prepare(request)
    async for part in answer.content.iter_any():
        await told.write(part)
    await told.write_eof()
    return told


def _problem(status: int, code: str, text: str) -> web.Response:
    body = {"error": text, "message": text, "detail": text, "code": code, "faults": []}
    return web.json_response(body, status=status)


async def serve_proxy(
    target: ProxyTarget, host: str, port: int, on_ready: Callable[[str], None]
) -> None:
    """Until SIGINT or SIGTERM. CannotListen names the address."""
    proxy = KeyProxy(target, host)
    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=DRAIN_S
    )
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await proxy.open()
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        at = runner.addresses[0]
        on_ready(f"http://{at[0]}:{at[1]}")
        await stop.wait()
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from error
    finally:
        await runner.cleanup()
        await proxy.close()


def tenant_for(me: Mapping[str, object], asked: str | None) -> str:
    """The one tenant of the proxy: what was asked for, else the only one that the key has."""
    rights = me.get("rights", ())
    assert isinstance(rights, list)
    tenants = sorted({tenant for right in rights for tenant in right["tenants"]})
    if asked is not None:
        if asked not in tenants and "*" not in tenants:
            raise ZenError(f"--tenant: the key has no role for {asked}, only for {_list(tenants)}")
        return asked
    if len(tenants) != 1 or tenants == ["*"]:
        every = "every tenant" if "*" in tenants else _list(tenants)
        raise ZenError(f"the key has roles for {every}: choose one tenant with --tenant")
    return str(tenants[0])


def _list(words: Iterable[str]) -> str:
    return ", ".join(words) or "none"
