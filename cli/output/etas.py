"""When waiting jobs will start, in the words of the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cli.output.durations import clock_time, moment, short

Json = dict[str, Any]


def eta_cell(job: Json, now: datetime) -> str:
    """4m-12m: as likely as not within four minutes, nine times of ten within twelve."""
    eta = job.get("eta") or {}
    p50, p90 = moment(eta.get("p50")), moment(eta.get("p90"))
    if p50 is None or p90 is None:
        return "?" if eta else ""
    if p90 <= now:
        return "late"
    early, late = rough((p50 - now).total_seconds()), rough((p90 - now).total_seconds())
    return early if early == late else f"{early}-{late}"


def eta_words(job: Json, now: datetime) -> str:
    """A line of its own."""
    eta = job.get("eta") or {}
    p50, p90 = moment(eta.get("p50")), moment(eta.get("p90"))
    if p50 is None or p90 is None:
        return str(eta.get("based_on") or "")
    if p90 <= now:
        when = f"later than was said ({_at(eta['p90'], now)})"
    else:
        early, late = _at(eta["p50"], now), _at(eta["p90"], now)
        when = f"{early} {_left(p50, now)}, 90 % likely by {late}"
    return f"{when} {_left(p90, now)}; {eta['based_on']}".replace("  ", " ")


def run_words(job: Json) -> str:
    """How long it will run."""
    eta = job.get("eta") or {}
    if eta.get("run_p50_s") is None:
        return str(eta.get("run_based_on") or "")
    p50, p90 = short(eta["run_p50_s"]), short(eta["run_p90_s"])
    return f"about {p50}, 90 % likely less than {p90}; {eta['run_based_on']}"


def rough(span_s: float) -> str:
    """The largest unit is enough: 40s, 4m, 3h, 2d."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if span_s >= 2 * size:
            return f"{span_s / size:.0f}{unit}"
    return f"{max(0.0, span_s):.0f}s"


def _left(at: datetime, now: datetime) -> str:
    return f"(in {rough((at - now).total_seconds())})" if at > now else ""


def _at(text: object, now: datetime) -> str:
    return clock_time(text, now).partition(".")[0]
