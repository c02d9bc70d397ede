"""Around every request: an id, a bound on the body, and no exception that escapes.

Plain ASGI: Starlette's BaseHTTPMiddleware costs a task and two queues per request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from config.settings import ApiSettings
from core.errors import ZenError
from core.ports import Clock, Ids
from scheduler.api.http.browser_checks import refuse_unsafe_write
from scheduler.api.http.problems import REQUEST_ID, Problem, TooLarge, internal, problem_of, render
from scheduler.api.http.rate_limit import RateLimit, client_address
from stores.code_trees import LIST_BODY_MAX, PACK_BODY_MAX

_log = structlog.get_logger(__name__)
CODE_PATHS = "/api/v1/code/"
"""Bodies there have bounds of their own."""
_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")
_REQUEST_ID_HEADER = REQUEST_ID.lower().encode()


class Edge:
    """The outermost layer of ours."""

    def __init__(self, app: ASGIApp, *, ids: Ids, api: ApiSettings, clock: Clock) -> None:
        self._app = app
        self._ids = ids
        self._max = api.max_body_bytes
        self._code_max = max(api.max_body_bytes, LIST_BODY_MAX, PACK_BODY_MAX)
        self._origins = api.cors_origins
        self._hops = api.forwarded_hops
        self._rate = RateLimit(api, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = self._request_id(headers)
        named = (_REQUEST_ID_HEADER, request_id.encode())
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def named_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message.get("headers", ()), named]}
            await send(message)

        try:
            if b"authorization" not in headers:
                # With credentials the gate counts by principal, and wrong ones by address.
                self._rate.check(client_address(scope, self._hops))
            most = self._code_max if scope["path"].startswith(CODE_PATHS) else self._max
            if (declared := _declared_length(headers)) is not None and declared > most:
                raise _too_large(most)
            refuse_unsafe_write(scope["method"], headers, self._origins)
            await self._app(scope, _bounded(receive, most), named_send)
        except ClientDisconnect:
            _log.debug("the client went away", request_id=request_id, path=scope["path"])
        except Exception as error:
            if started:
                # The head is out: only a broken connection can still tell that this failed.
                raise
            problem = self._judge(error, request_id, scope)
            await render(problem, request_id)(scope, receive, named_send)

    def _request_id(self, headers: Mapping[bytes, bytes]) -> str:
        """The caller's own id if it can stand in a log line, else a new one."""
        sent = headers.get(_REQUEST_ID_HEADER)
        return sent.decode() if sent and _ACCEPTED_ID.match(sent) else self._ids.token()

    def _judge(self, error: Exception, request_id: str, scope: Scope) -> Problem:
        if isinstance(error, ZenError) and (problem := problem_of(error)) is not None:
            return problem
        _log.error(
            "request failed",
            request_id=request_id,
            method=scope["method"],
            path=scope["path"],
            exc_info=error,
        )
        return internal(request_id)


def _bounded(receive: Receive, most: int) -> Receive:
    """Counts what really comes: a chunked body declares no length."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > most:
                raise _too_large(most)
        return message

    return counted


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is larger than {most} bytes, the most we take")


def _declared_length(headers: Mapping[bytes, bytes]) -> int | None:
    declared = headers.get(b"content-length", b"")
    return int(declared) if declared.isdigit() else None
