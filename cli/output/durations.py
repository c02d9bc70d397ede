"""Spans of time as people write and read them: 90s, 10m, 2h, 1d."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from typer import BadParameter

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_EXPECTED = "a span of time such as 90s, 10m, 2h, 1d or 1h30m"


def seconds(text: str, option: str) -> float:
    """Parses the span that an option was given. A bare number is refused: of the minutes that one
    system counts and the seconds of another, nobody can tell which were meant."""
    word = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", word):
        raise BadParameter(f"{option} {word}: say the unit, e.g. {word}s, 15m or 2h")
    if not is_span(word):
        raise BadParameter(f"{option}: got {text!r}, expected {_EXPECTED}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(word))


def is_span(text: str) -> bool:
    """Whether it is written as a span: 90s, 1h30m."""
    return re.fullmatch(rf"(?:{_PART.pattern})+", text.strip().lower()) is not None


def short(span_s: float) -> str:
    """The two largest units: 4s, 2m05s, 3h10m, 2d4h."""
    whole = max(0, int(span_s))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def moment(text: object) -> datetime | None:
    """An API time, or None if there is none."""
    if not isinstance(text, str) or not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def between(start: object, end: datetime) -> str:
    """How long since `start` (an API time); "-" if there is none."""
    since = moment(start)
    return "-" if since is None else short((end - since).total_seconds())


def clock_time(text: object, now: datetime) -> str:
    """An API time as the reader's own: to the tenth of a second today, with its date otherwise."""
    at = moment(text)
    if at is None:
        return "-"
    local = at.astimezone()
    if local.date() != now.astimezone().date():
        return f"{local:%Y-%m-%d %H:%M:%S}"
    return f"{local:%H:%M:%S}.{local.microsecond // 100_000}"
