"""Refusals, named after the status codes that Google's clients understand."""

from __future__ import annotations

from core.errors import ZenError


class BusError(ZenError):
    """Base of every refusal; `status` is Google's canonical name, `http` its REST number."""

    status = "INTERNAL"
    http = 500


class InvalidArgument(BusError):
    """The request can never succeed as it is."""

    code = "invalid_argument"
    status = "INVALID_ARGUMENT"
    http = 400


class Missing(BusError):
    """The topic or subscription does not exist."""

    code = "not_found"
    status = "NOT_FOUND"
    http = 404


class Exists(BusError):
    """A topic or subscription of that name is there already."""

    code = "already_exists"
    status = "ALREADY_EXISTS"
    http = 409


class FailedPrecondition(BusError):
    """Not as things are now: the subscription is detached."""

    code = "failed_precondition"
    status = "FAILED_PRECONDITION"
    http = 400


class Aborted(BusError):
    """Somebody else changed it in between: read it again."""

    code = "aborted"
    status = "ABORTED"
    http = 409


class Full(BusError):
    """The bus holds as much as it may; read or drop something first."""

    code = "resource_exhausted"
    status = "RESOURCE_EXHAUSTED"
    http = 429


class Unavailable(BusError):
    """The disk did not take the write, or the bus is stopping; try again."""

    code = "unavailable"
    status = "UNAVAILABLE"
    http = 503


def invalid(field: str, got: object, expected: str) -> InvalidArgument:
    """The one form of all refusals of bad input: field, what came, what was expected."""
    shown = repr(got)
    if len(shown) > 120:
        shown = shown[:117] + "..."
    return InvalidArgument(f"{field}: got {shown}, expected {expected}")
