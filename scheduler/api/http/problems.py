"""Errors as callers see them: one shape, whatever went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from starlette.responses import Response

from core.errors import (
    Ambiguous,
    BadInput,
    BusDown,
    Conflict,
    Fault,
    IllegalTransition,
    IssuerDown,
    NotFound,
    PriceNotConfirmed,
    QuotaExceeded,
    StoreDown,
    TermPassed,
    TooManyRequests,
    ZenError,
)
from scheduler.access.authenticator import NotAllowed, Unauthenticated
from stores.base import StoreUnavailable

JSON = "application/json"
REQUEST_ID = "X-Request-Id"


class BadJson(ZenError):
    """The body is not JSON; the text says where."""

    code = "bad_json"


class BadYaml(ZenError):
    """The body is not YAML; the text says where."""

    code = "bad_yaml"


class TooBusy(ZenError):
    """Too much of a costly kind is under way: try again."""

    code = "busy"


class TooLarge(ZenError):
    """The body is larger than we take."""

    code = "too_large"


class WrongMediaType(ZenError):
    """The body is something other than JSON."""

    code = "unsupported_media_type"


class CrossSite(ZenError):
    """A page of another site may not change anything."""

    code = "cross_site"


class BadRange(ZenError):
    """The file has no such bytes."""

    code = "bad_range"

    def __init__(self, words: str, size: int) -> None:
        self.size = size
        super().__init__(words)


class NotReady(ZenError):
    """A check fails; try another replica, or later."""

    code = "not_ready"

    def __init__(self, checks: Mapping[str, str], failing: Mapping[str, str]) -> None:
        self.checks = checks
        super().__init__("not ready: " + "; ".join(f"{k}: {v}" for k, v in failing.items()))


class NothingToAbort(ZenError):
    """There is no such job. Clients with a `definition` are used to a 500 for it."""

    code = "not_found"


STATUS: tuple[tuple[type[ZenError], int], ...] = (
    (Unauthenticated, 401),
    (NotAllowed, 403),
    (QuotaExceeded, 403),
    (BadInput, 422),
    (BadJson, 400),
    (BadYaml, 400),
    (NotFound, 404),
    (NothingToAbort, 500),
    (Ambiguous, 409),
    (Conflict, 409),
    (PriceNotConfirmed, 409),
    (IllegalTransition, 409),
    (CrossSite, 403),
    (TooLarge, 413),
    (WrongMediaType, 415),
    (BadRange, 416),
    (TooManyRequests, 429),
    (TooBusy, 503),
    (StoreDown, 503),
    (IssuerDown, 503),
    (StoreUnavailable, 503),
    (BusDown, 503),
    (TermPassed, 503),
    (NotReady, 503),
)
"""First match wins; a ZenError that is not here is our own fault: 500."""

_HEADERS: Mapping[int, Mapping[str, str]] = {
    # Browsers ask for a password then: the key.
    401: {"WWW-Authenticate": 'Bearer realm="zen", Basic realm="zen", charset="UTF-8"'},
    429: {"Retry-After": "60"},
    503: {"Retry-After": "1"},
}
CODES = {404: "not_found", 405: "method_not_allowed", 500: "internal"}


class FaultOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing wrong with the input."""

    field: str
    got: str
    expected: str
    message: str = ""
    """A sentence that says it better, if there is one."""

    @staticmethod
    def of(fault: Fault) -> FaultOut:
        return FaultOut(fault.field, fault.got, fault.expected, fault.words)


class ErrorOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every answer with a status of 400 or more."""

    error: str
    message: str
    detail: str
    code: str
    request_id: str
    faults: tuple[FaultOut, ...]
    status: str | None = None
    checks: Mapping[str, str] | None = None
    total_usd_per_hour: float | None = None
    """Of `price_not_confirmed`: what must be confirmed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error on its way out."""

    status: int
    code: str
    text: str
    faults: tuple[Fault, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    checks: Mapping[str, str] | None = None
    usd_per_hour: float | None = None


def problem_of(error: ZenError) -> Problem | None:
    """How the error is told; None if callers can do nothing about it."""
    status = next((status for kind, status in STATUS if isinstance(error, kind)), None)
    if status is None:
        return None
    headers = dict(_HEADERS.get(status, {}))
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, BadRange):
        headers["Content-Range"] = f"bytes */{error.size}"
    return Problem(
        status=status,
        code=error.code,
        text=str(error),
        faults=error.faults if isinstance(error, BadInput) else (),
        headers=headers,
        checks=error.checks if isinstance(error, NotReady) else None,
        usd_per_hour=error.usd_per_hour if isinstance(error, PriceNotConfirmed) else None,
    )


def internal(request_id: str) -> Problem:
    """What callers learn of an unexpected exception: how to ask about it, nothing else."""
    text = f"an unexpected error; the service's log has it under request id {request_id}"
    return Problem(500, CODES[500], text)


def render(problem: Problem, request_id: str) -> Response:
    """The one shape."""
    body = ErrorOut(
        error=problem.text,
        message=problem.text,
        detail=problem.text,
        code=problem.code,
        request_id=request_id,
        faults=tuple(map(FaultOut.of, problem.faults)),
        status="not_ready" if problem.checks is not None else None,
        checks=problem.checks,
        total_usd_per_hour=problem.usd_per_hour,
    )
    return Response(msgspec.json.encode(body), problem.status, dict(problem.headers), JSON)
