"""Paths without parameters are found by one look-up, not by trying one pattern after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

Dispatch = Callable[[Request], Awaitable[Response]]


class DirectRoutes:
    """Before Starlette's router, which knows the same paths: it tells what is wrong with a method,
    answers HEAD, and has the paths with parameters. Errors are told by the layer around this."""

    def __init__(self, app: ASGIApp, *, paths: Mapping[tuple[str, str], Dispatch]) -> None:
        """`paths`: method and path → what answers there."""
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dispatch = None
        if scope["type"] == "http" and not scope.get("root_path"):
            dispatch = self._paths.get((scope["method"], scope["path"]))
        if dispatch is None:
            await self._app(scope, receive, send)
            return
        response = await dispatch(Request(scope, receive, send))
        await response(scope, receive, send)
