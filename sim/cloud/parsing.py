"""Parsing at the door: read a JSON object field by field and report every problem at once."""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
_MISSING: Final = object()


class InvalidInput(ValueError):
    """Input that was refused. ``problems`` has one line for each thing that is wrong."""

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        self.what = what
        self.problems = tuple(problems)
        super().__init__(f"{what}: " + "; ".join(self.problems))


def nearest(word: str, known: Iterable[str], limit: int = 5) -> str:
    """Names what exists: the closest matches first, or a sample of everything."""
    names = sorted(set(known))
    close = difflib.get_close_matches(word, names, n=limit, cutoff=0.6)
    if close:
        return "nearest: " + ", ".join(close)
    if not names:
        return "none exist"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return "known: " + ", ".join(names[:limit]) + more


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _is_number(value: object, low: float = 0.0, high: float = math.inf) -> bool:
    # Python reads NaN and Infinity as JSON numbers; no field of ours can mean them.
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) < 1e15 and low <= value <= high


def _is_text(value: object, pattern: str = r"(?s).+") -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


class Fields:
    """One JSON object being read. A wrong value is noted and a harmless one returned instead, so
    that reading goes on and the caller sees all problems; the result is thrown away then."""

    def __init__(self, raw: object, at: str, problems: list[str]) -> None:
        self.at = at
        self.problems = problems
        self._seen: set[str] = set()
        self._raw: dict[str, object] = {}
        if isinstance(raw, dict):
            self._raw = {str(key): value for key, value in raw.items()}
        else:
            problems.append(f"{at or 'value'}: expected an object, got {_shown(raw)}")

    def path(self, key: str) -> str:
        return f"{self.at}.{key}" if self.at else key

    def problem(self, key: str, expected: str) -> None:
        value = self._raw.get(key, _MISSING)
        came = "nothing" if value is _MISSING else _shown(value)
        self.problems.append(f"{self.path(key)}: expected {expected}, got {came}")

    def has(self, key: str) -> bool:
        return self._raw.get(key) is not None

    def _read(
        self, key: str, default: object, expected: str, good: Callable[[Any], bool], instead: T
    ) -> T:
        """The value if it is good, or the default; else a problem is noted and `instead` given."""
        self._seen.add(key)
        value = self._raw.get(key, default)
        if value is not _MISSING and (value is default or good(value)):
            return cast("T", value)
        self.problem(key, expected)
        return instead

    def given(self, key: str) -> bool:
        """Whether an optional field has a value."""
        self._seen.add(key)
        return self.has(key)

    def text(self, key: str, default: object = _MISSING, pattern: str = r".+") -> str:
        expected = "text" if pattern == r".+" else f"text that matches {pattern}"
        return self._read(key, default, expected, lambda v: _is_text(v, pattern), "")

    def number(
        self, key: str, default: object = _MISSING, low: float = 0.0, high: float = math.inf
    ) -> float:
        bounds = f"from {low:g} to {high:g}" if high < math.inf else f"≥ {low:g}"
        expected = f"a number {bounds}"
        return float(self._read(key, default, expected, lambda v: _is_number(v, low, high), low))

    def whole(self, key: str, default: object = _MISSING, low: int = 0, high: int = 2**53) -> int:
        def good(value: object) -> bool:
            return isinstance(value, int) and _is_number(value, low, high)

        return self._read(key, default, f"a whole number from {low} to {high}", good, low)

    def flag(self, key: str, default: bool) -> bool:
        return self._read(key, default, "true or false", lambda v: isinstance(v, bool), default)

    def choice(self, key: str, options: Sequence[str], default: object = _MISSING) -> str:
        expected = "one of " + ", ".join(options)
        return self._read(key, default, expected, lambda v: v in options, options[0])

    def known(self, key: str, known: Iterable[str], noun: str, default: object = _MISSING) -> str:
        """Text that must name something that exists; a miss lists the nearest names."""
        names = tuple(known)
        near = f"a known {noun} ({nearest(str(self._raw.get(key)), names)})"
        expected = near if key in self._raw else f"a {noun}"
        return self._read(key, default, expected, lambda v: v in names, "")

    def span(self, key: str, default: tuple[float, float]) -> tuple[float, float]:
        def good(value: object) -> bool:
            pair = value if isinstance(value, list) and len(value) == 2 else (1, 0)
            return all(map(_is_number, pair)) and 0 <= pair[0] <= pair[1]

        low, high = self._read(key, default, "[min, max] in seconds, 0 ≤ min ≤ max", good, default)
        return float(low), float(high)

    def texts(self, key: str, default: object = _MISSING) -> tuple[str, ...]:
        def good(value: object) -> bool:
            return isinstance(value, list) and bool(value) and all(map(_is_text, value))

        return tuple(self._read(key, default, "a list of one or more texts", good, ()))

    def mapping(self, key: str) -> tuple[tuple[str, str], ...]:
        def good(value: object) -> bool:
            return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())

        empty: dict[str, str] = {}
        found = self._read(key, empty, "an object whose values are texts", good, empty)
        return tuple((str(k), v) for k, v in found.items())

    def objects(self, key: str) -> list["Fields"]:
        found = self.raw_items(key, "a list of objects")
        return [Fields(v, f"{self.path(key)}[{i}]", self.problems) for i, v in enumerate(found)]

    def values(self, key: str) -> list["Fields"]:
        """The objects in an object whose keys are anybody's choice."""
        empty: dict[str, object] = {}
        expected = "an object of objects"
        found = self._read(key, empty, expected, lambda v: isinstance(v, dict), empty)
        return [Fields(v, f"{self.path(key)}.{k}", self.problems) for k, v in found.items()]

    def raw_items(self, key: str, expected: str = "a list") -> list[object]:
        empty: list[object] = []
        return self._read(key, empty, expected, lambda v: isinstance(v, list), empty)

    def inner(self, key: str) -> "Fields":
        self._seen.add(key)
        return Fields(self._raw.get(key, {}), self.path(key), self.problems)

    def done(self) -> None:
        """Refuses what nobody asked for: a misspelt field must not be ignored."""
        for key in self._raw:
            if key not in self._seen:
                self.problems.append(
                    f"{self.path(key)}: unknown field ({nearest(key, self._seen)})"
                )
