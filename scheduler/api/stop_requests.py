"""Who stops a job and why. There is no authentication yet: who it was is what the caller says, and
the timeline says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from core.errors import BadInput, Fault
from core.submission import shown
from scheduler.api.http.endpoint import Body

REASON_CHARS_MAX = 500
BY_CHARS_MAX = 128
FIELDS = ("reason", "by")
STOP_BODY = Body(
    schema={
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "reason": {"type": "string", "maxLength": REASON_CHARS_MAX},
            "by": {
                "type": "string",
                "maxLength": BY_CHARS_MAX,
                "description": "Who stops it, for the timeline. Not verified.",
            },
        },
    },
    examples="stop",
    required=False,
)


@dataclass(frozen=True, slots=True)
class Stop:
    """For the timeline: a sentence, and the same as fields."""

    reason: str
    by: Mapping[str, str]


def stop_of(
    request: Request,
    body: Mapping[str, object],
    *,
    user_id: str | None = None,
    tenant_id: str | None = None,
    verb: str = "stopped",
) -> Stop:
    """From what the body says, the user and tenant that the request names, and its User-Agent;
    BadInput if the body says nonsense."""
    said = {
        "name": _text(body, "by", BY_CHARS_MAX),
        "user_id": user_id or "",
        "tenant_id": tenant_id or "",
        "client": _printable(request.headers.get("user-agent", ""), BY_CHARS_MAX),
    }
    by = {field: value for field, value in said.items() if value}
    words = f"{verb} by {_who(by)}"
    reason = _text(body, "reason", REASON_CHARS_MAX)
    return Stop(f"{words}: {reason}" if reason else words, by)


def _who(by: Mapping[str, str]) -> str:
    person = by.get("name") or (f"user {by['user_id']}" if "user_id" in by else "")
    tenant = f"tenant {by['tenant_id']}" if "tenant_id" in by else ""
    named = " of ".join(filter(None, (person, tenant)))
    if named:
        return f"{named} (as the caller says)"
    return f"an API client ({by['client']})" if "client" in by else "an API client"


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
