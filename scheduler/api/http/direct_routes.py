"""Paths without parameters are found by one look-up, not by trying one pattern after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from scheduler.api.http.known_headers import KnownHeaders

Dispatch = Callable[[Request], Awaitable[Response]]
OnError = Callable[[Request, Exception], Awaitable[Response]]


class DirectRoutes:
    """Before Starlette's router, which knows the same paths: it tells what is wrong with a method,
    answers HEAD, and has the paths with parameters."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        paths: Mapping[tuple[str, str], Dispatch],
        on_error: Mapping[type[Exception], OnError],
    ) -> None:
        """`paths`: method and path → what answers there; `on_error`: who tells of errors that the
        layer around this does not tell in its own words."""
        self._app = app
        self._paths = paths
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dispatch = None
        if scope["type"] == "http" and not scope.get("root_path"):
            dispatch = self._paths.get((scope["method"], scope["path"]))
        if dispatch is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        request._headers = KnownHeaders(scope)  # noqa: SLF001  # where Starlette keeps its own
        try:
            response = await dispatch(request)
        except tuple(self._on_error) as error:
            tell = next(tell for kind, tell in self._on_error.items() if isinstance(error, kind))
            response = await tell(request, error)
        await response(scope, receive, send)
