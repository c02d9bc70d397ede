"""Parsing at the door: read a JSON object field by field and report every problem at once."""

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeGuard, cast

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


def _is_number(value: object) -> TypeGuard[float]:
    # Python reads NaN and Infinity as JSON numbers; no field of ours can mean them.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(cast("float", value)) < 1e15


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

    def _take(self, key: str, default: object, expected: str) -> object:
        self._seen.add(key)
        value = self._raw.get(key, _MISSING)
        if value is _MISSING:
            if default is _MISSING:
                self.problem(key, expected)
                return None
            return default
        return value

    def text(self, key: str, default: object = _MISSING, pattern: str = r".+") -> str:
        expected = "text" if pattern == r".+" else f"text that matches {pattern}"
        value = self._take(key, default, expected)
        if value is default:
            return cast("str", value)
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        if key in self._raw:
            self.problem(key, expected)
        return ""

    def optional_text(self, key: str) -> str | None:
        self._seen.add(key)
        return self.text(key) if self.has(key) else None

    def number(
        self, key: str, default: object = _MISSING, low: float = 0.0, high: float = math.inf
    ) -> float:
        expected = (
            f"a number from {low:g} to {high:g}" if high < math.inf else f"a number ≥ {low:g}"
        )
        value = self._take(key, default, expected)
        if value is default:
            return cast("float", value)
        if _is_number(value) and low <= value <= high:
            return float(value)
        if key in self._raw:
            self.problem(key, expected)
        return low

    def optional_number(self, key: str, low: float = 0.0, high: float = math.inf) -> float | None:
        self._seen.add(key)
        return self.number(key, low=low, high=high) if self.has(key) else None

    def whole(self, key: str, default: object = _MISSING, low: int = 0, high: int = 2**53) -> int:
        expected = f"a whole number from {low} to {high}"
        value = self._take(key, default, expected)
        if value is default:
            return cast("int", value)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        if key in self._raw:
            self.problem(key, expected)
        return low

    def optional_whole(self, key: str, low: int = 0) -> int | None:
        self._seen.add(key)
        return self.whole(key, low=low) if self.has(key) else None

    def flag(self, key: str, default: bool) -> bool:
        value = self._take(key, default, "true or false")
        if isinstance(value, bool):
            return value
        self.problem(key, "true or false")
        return default

    def optional_flag(self, key: str) -> bool | None:
        self._seen.add(key)
        return self.flag(key, False) if self.has(key) else None

    def choice(self, key: str, options: Sequence[str], default: object = _MISSING) -> str:
        expected = "one of " + ", ".join(options)
        value = self._take(key, default, expected)
        if isinstance(value, str) and value in options:
            return value
        if key in self._raw:
            self.problem(key, expected)
        return options[0]

    def known(self, key: str, known: Iterable[str], noun: str, default: object = _MISSING) -> str:
        """Text that must name something that exists; a miss lists the nearest names."""
        names = frozenset(known)
        value = self._take(key, default, f"a {noun}")
        if value is default or (isinstance(value, str) and value in names):
            return cast("str", value)
        if key in self._raw:
            self.problem(key, f"a known {noun} ({nearest(str(value), names)})")
        return ""

    def optional_known(self, key: str, known: Iterable[str], noun: str) -> str | None:
        self._seen.add(key)
        return self.known(key, known, noun) if self.has(key) else None

    def span(self, key: str, default: tuple[float, float]) -> tuple[float, float]:
        expected = "[min, max] in seconds, 0 ≤ min ≤ max"
        value = self._take(key, default, expected)
        if value is default:
            return default
        if isinstance(value, list) and len(value) == 2:
            low, high = value
            if _is_number(low) and _is_number(high) and 0 <= low <= high:
                return float(low), float(high)
        self.problem(key, expected)
        return default

    def texts(self, key: str, default: object = _MISSING) -> tuple[str, ...]:
        expected = "a list of one or more texts"
        value = self._take(key, default, expected)
        if value is default:
            return cast("tuple[str, ...]", value)
        if isinstance(value, list) and value and all(isinstance(v, str) and v for v in value):
            return tuple(value)
        if key in self._raw:
            self.problem(key, expected)
        return ()

    def mapping(self, key: str) -> tuple[tuple[str, str], ...]:
        value = self._take(key, {}, "an object of texts")
        if isinstance(value, dict) and all(isinstance(v, str) for v in value.values()):
            return tuple((str(k), cast("str", v)) for k, v in value.items())
        self.problem(key, "an object whose values are texts")
        return ()

    def objects(self, key: str) -> list["Fields"]:
        value = self._take(key, [], "a list of objects")
        if not isinstance(value, list):
            self.problem(key, "a list of objects")
            return []
        return [Fields(v, f"{self.path(key)}[{i}]", self.problems) for i, v in enumerate(value)]

    def values(self, key: str) -> list["Fields"]:
        """The objects in an object whose keys are anybody's choice."""
        value = self._take(key, {}, "an object of objects")
        if not isinstance(value, dict):
            self.problem(key, "an object of objects")
            return []
        return [Fields(v, f"{self.path(key)}.{k}", self.problems) for k, v in value.items()]

    def raw_items(self, key: str) -> list[object]:
        value = self._take(key, [], "a list")
        if isinstance(value, list):
            return list(value)
        self.problem(key, "a list")
        return []

    def inner(self, key: str) -> "Fields":
        return Fields(self._take(key, {}, "an object"), self.path(key), self.problems)

    def done(self) -> None:
        """Refuses what nobody asked for: a misspelt field must not be ignored."""
        for key in self._raw:
            if key not in self._seen:
                self.problems.append(
                    f"{self.path(key)}: unknown field ({nearest(key, self._seen)})"
                )
