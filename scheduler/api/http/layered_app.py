"""FastAPI behind layers of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send


class LayeredApp(FastAPI):
    """Of FastAPI's own layers only the one that answers errors by handlers is there: the others
    (telemetry, pages for crashes, stacks of dependencies) would be paid for by every request, and
    serve none of ours."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._layers: ASGIApp | None = None

    def put_around(self, layer: Callable[[ASGIApp], ASGIApp]) -> None:
        """The layer sees every request before all that were put around so far. Handlers of errors
        come first."""
        inner = self._layers or ExceptionMiddleware(self.router, dict(self.exception_handlers))
        self._layers = layer(inner)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._layers is not None, "nothing was put around"
        scope["app"] = self
        await self._layers(scope, receive, send)
