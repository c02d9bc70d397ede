"""Who stops a job and why. Who it is comes from the caller's credentials, never from the body."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from core.access import Scope
from core.errors import BadInput, Fault
from core.submission import shown
from scheduler.api.caller import Stop, caller_of
from scheduler.api.http.endpoint import Body

REASON_CHARS_MAX = 500
BY_CHARS_MAX = 128
FIELDS = ("reason", "by")
STOP_BODY = Body(
    schema={
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "reason": {"type": ["string", "null"], "maxLength": REASON_CHARS_MAX},
            "by": {
                "type": ["string", "null"],
                "maxLength": BY_CHARS_MAX,
                "description": "For whom, if the key has the scope on-behalf-of; else ignored.",
            },
        },
    },
    examples="stop",
    required=False,
)


def stop_of(
    request: Request,
    body: Mapping[str, object],
    *,
    user_id: str | None = None,
    verb: str = "stopped",
) -> Stop:
    """From the caller's credentials, what the body says, and the User-Agent; BadInput if the body
    says nonsense. Only a key with the scope for it speaks for somebody else."""
    caller = caller_of(request)
    other = _text(body, "by", BY_CHARS_MAX) or user_id or ""
    speaks = Scope.ON_BEHALF_OF in caller.principal.scopes and other != caller.principal.user_id
    said = {
        "principal": caller.principal.name,
        "name": caller.principal.label,
        "on_behalf_of": other if speaks else "",
        "client": _printable(request.headers.get("user-agent", ""), BY_CHARS_MAX),
    }
    by = {field: value for field, value in said.items() if value}
    words = f"{verb} by {caller.principal.label}"
    if "on_behalf_of" in by:
        words += f" on behalf of {other}"
    reason = _text(body, "reason", REASON_CHARS_MAX)
    return Stop(f"{words}: {reason}" if reason else words, by, caller)


def _text(body: Mapping[str, object], field: str, chars_max: int) -> str:
    given = body.get(field)
    if given is None:
        return ""
    if not isinstance(given, str) or len(given) > chars_max:
        expected = f"a string of at most {chars_max} characters"
        raise BadInput([Fault(field, shown(given), expected)])
    return _printable(given, chars_max)


def _printable(text: str, chars_max: int) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:chars_max]).strip()
