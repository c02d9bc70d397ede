"""Refusals, named after the status codes that Google's clients understand."""

from __future__ import annotations

from core.errors import ZenError


class BusError(ZenError):
    """Base of every refusal; `code` is Google's canonical name in lower case, `http` its REST
    number."""

    http = 500

    @property
    def status(self) -> str:
        return self.code.upper()


class InvalidArgument(BusError):
    """The request can never succeed as it is."""

    code = "invalid_argument"
    http = 400


class Missing(BusError):
    """The topic or subscription does not exist."""

    code = "not_found"
    http = 404


class Exists(BusError):
    """A topic or subscription of that name is there already."""

    code = "already_exists"
    http = 409


class FailedPrecondition(BusError):
    """Not as things are now: the subscription is detached."""

    code = "failed_precondition"
    http = 400


class Aborted(BusError):
    """Somebody else changed it in between: read it again."""

    code = "aborted"
    http = 409


class Denied(BusError):
    """Not for this caller."""

    code = "permission_denied"
    http = 403


class Full(BusError):
    """The bus holds as much as it may; read or drop something first."""

    code = "resource_exhausted"
    http = 429


class Unavailable(BusError):
    """The disk did not take the write, or the bus is stopping; try again."""

    code = "unavailable"
    http = 503


def invalid(field: str, got: object, expected: str) -> InvalidArgument:
    """The one form of all refusals of bad input: field, what came, what was expected."""
    shown = repr(got)
    if len(shown) > 120:
        shown = shown[:117] + "..."
    return InvalidArgument(f"{field}: got {shown}, expected {expected}")
