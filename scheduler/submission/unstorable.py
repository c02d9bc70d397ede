"""Values that no database text can hold. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from core.errors import BadInput, Fault
from core.submission import shown

DEPTH_MAX = 32
_TOO_DEEP = (f"more than {DEPTH_MAX} levels", f"at most {DEPTH_MAX} levels of nesting")


def refuse_unstorable(data: object) -> None:
    """BadInput for values that no database text can hold, wherever they hide.

    Walks without recursion: the depth of a body is the sender's choice.
    """
    if _unstorable_within(data) is None:
        return
    tops = data if isinstance(data, Mapping) else {"body": data}
    faults = []
    for name, top in tops.items():
        fault = _unstorable(name) or _unstorable_within(top)
        if fault is not None:
            faults.append(Fault(str(name)[:80].encode("ascii", "replace").decode(), *fault))
    raise BadInput(faults or [Fault("body", *_TOO_DEEP)])


def _unstorable_within(top: object) -> tuple[str, str] | None:
    """(what came, what was expected), level by level; this runs for every submission."""
    level = [top]
    for _ in range(DEPTH_MAX):
        below: list[object] = []
        for value in level:
            if isinstance(value, str | float):  # first: most values are text
                if (fault := _unstorable(value)) is not None:
                    return fault
            elif isinstance(value, list):
                below += value
            elif isinstance(value, Mapping):
                below += value.keys()
                below += value.values()
        if not below:
            return None
        level = below
    return _TOO_DEEP


def _unstorable(value: object) -> tuple[str, str] | None:
    if isinstance(value, str):
        if "\0" in value:
            return (shown(value), "text without NUL characters")
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            return ("text with half a character in it", "text that is valid Unicode")
    elif isinstance(value, float) and not math.isfinite(value):
        return (str(value), "a finite number")
    return None
