"""Bounds on connections: how large a request's head may be, how long each part of an exchange may
take, and how many connections there are.

uvicorn bounds none of these by itself. Its parser keeps a header of any length in memory, and a
connection that never ends its request is never closed.
"""

from __future__ import annotations

from asyncio import Protocol, TimerHandle, Transport
from dataclasses import dataclass
from typing import Any

import structlog
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from core.ids import RandomIds
from scheduler.api.http.problems import Problem, render
from scheduler.api.http.security_headers import secured

_log = structlog.get_logger(__name__)
_ids = RandomIds()


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one server allows its clients."""

    connections: int = 4096
    """With more, the connection that has waited longest without a request is closed."""
    head_bytes: int = 32 * 1024
    """Request line and headers."""
    headers: int = 100
    head_s: float = 10.0
    body_s: float = 60.0
    stall_s: float = 60.0
    """A client that reads nothing of its answer for so long is cut off."""


class _HeadRefused(Exception):
    """Raised through the parser, which stops there."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Subclasses made by `bounded` carry the limits of one server."""

    limits = ConnectionLimits()
    waiting: dict[BoundedProtocol, None]
    """The server's connections without a request in progress, oldest first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._heads = 0
        self._head_bytes = 0
        self._body_parts = 0
        self._in_body = False
        self._deadline: TimerHandle | None = None
        self._stalled: TimerHandle | None = None
        self._refusal: Problem | None = None

    # --- the life of a connection ---

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections and not self._make_room():
            self._refuse(Problem(503, "busy", "too many connections", headers={"Retry-After": "1"}))
            return
        self.waiting[self] = None
        self._arm(self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.pop(self, None)
        self._disarm()
        self._unstall()
        super().connection_lost(exc)

    def _make_room(self) -> bool:
        oldest = next(iter(self.waiting), None)
        if oldest is None:
            return False
        del self.waiting[oldest]
        oldest.transport.abort()
        return True

    # --- what comes in ---

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            if self._in_body:
                self._receive_body(data)
                break
            room = self.limits.head_bytes - self._head_bytes
            heads, part, data = self._heads, data[:room], data[room:]
            super().data_received(part)
            if self._heads > heads:
                self._head_bytes = 0
                continue
            self._head_bytes += len(part)
            if self._head_bytes >= self.limits.head_bytes and not self.transport.is_closing():
                self._refuse(_too_large(self.limits))
                return
        if self._deadline is None and not self.transport.is_closing():
            if self._in_body:
                self._arm(self.limits.body_s)
            elif self._is_idle():
                self._arm(self.limits.head_s)

    def _receive_body(self, data: bytes) -> None:
        """Trailers are headers too: what is no body is bounded like a head."""
        before = self._body_parts
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if self._body_parts == before else 0
        if self._in_body and self._head_bytes > self.limits.head_bytes:
            self._refuse(_too_large(self.limits))
        elif not self._in_body:
            self._head_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._body_parts += 1
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if len(self.headers) > self.limits.headers:
            self._refusal = _too_large(self.limits)
            raise _HeadRefused
        self._heads += 1
        self._in_body = True
        self._disarm()
        self.waiting.pop(self, None)
        super().on_headers_complete()
        self.headers = []  # trailers must not join the headers that routes see

    def on_message_complete(self) -> None:
        self._in_body = False
        self._disarm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_idle() and not self.transport.is_closing():
            self.waiting[self] = None

    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    # --- time ---

    def _arm(self, seconds: float) -> None:
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self._heads == 0 and self._head_bytes == 0:
            self.transport.close()  # nothing was asked, so nothing is answered
        else:
            part = "body" if self._in_body else "head"
            self._refuse(Problem(408, "too_slow", f"the request's {part} took too long to arrive"))

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._unstall()
        super().resume_writing()

    def _unstall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # --- refusals that no route sees ---

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what its parser cannot read."""
        self._refuse(self._refusal or Problem(400, "bad_request", msg))

    def _refuse(self, problem: Problem) -> None:
        self.waiting.pop(self, None)
        self._disarm()
        if not self._is_idle() and (self.cycle.response_started or not self._in_body):
            self.transport.abort()  # another answer is on its way: this one cannot be told
            return
        response = render(problem, _ids.token())
        lines = [STATUS_LINE[problem.status]]
        for name, value in (*self.server_state.default_headers, *secured(response.raw_headers)):
            lines.append(b"%s: %s\r\n" % (name, value))
        lines.append(b"connection: close\r\n\r\n")
        self.transport.write(b"".join(lines) + bytes(response.body))
        self.transport.close()


def bounded(limits: ConnectionLimits) -> type[Protocol]:
    """The protocol of one server: its limits, and its own list of waiting connections."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits, "waiting": {}})


def _too_large(limits: ConnectionLimits) -> Problem:
    text = (
        f"the request's head is too large: at most {limits.head_bytes} bytes and "
        f"{limits.headers} headers"
    )
    return Problem(431, "headers_too_large", text)
