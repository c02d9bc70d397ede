"""Pub/Sub's filter language: text in, a predicate over message attributes out.

    attributes:key    attributes.key = "v"    attributes.key != "v"
    hasPrefix(attributes.key, "v")    NOT x    -x    x AND y    x OR y    (x)

AND and OR may not be mixed without parentheses. `!=` is `NOT =`, so it is true as well when the
key is absent. Keys with other characters than letters, digits, `_` and `-` are written in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from localbus.errors import InvalidArgument

FILTER_BYTES_MAX = 256
# 256 bytes of "(" would otherwise be 256 Python frames deep, times the grammar's levels.
_DEPTH_MAX = 40

Attributes = Mapping[str, str]
Predicate = Callable[[Attributes], bool]


@dataclass(frozen=True, slots=True)
class Has:
    key: str


@dataclass(frozen=True, slots=True)
class Equals:
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class HasPrefix:
    key: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Not:
    inner: Expression


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Expression, ...]


Expression = Has | Equals | HasPrefix | Not | All | AnyOf


def matches(expression: Expression, attributes: Attributes) -> bool:
    """Whether a message with these attributes passes."""
    match expression:
        case Has(key):
            return key in attributes
        case Equals(key, value):
            return attributes.get(key) == value
        case HasPrefix(key, prefix):
            return attributes[key].startswith(prefix) if key in attributes else False
        case Not(inner):
            return not matches(inner, attributes)
        case All(parts):
            return all(matches(part, attributes) for part in parts)
        case AnyOf(parts):
            return any(matches(part, attributes) for part in parts)
        case _:
            assert_never(expression)


def required_equality(expression: Expression) -> Equals | None:
    """An equality that every passing message fulfils, if the filter shows one.

    The broker indexes subscriptions by it: with one subscription per VM on the control topic, a
    publish then looks one up instead of asking ten thousand filters.
    """
    match expression:
        case Equals():
            return expression
        case All(parts):
            return next((found for part in parts if (found := required_equality(part))), None)
        case _:
            return None


def parse(text: str) -> Expression:
    """The expression, or InvalidArgument that says where the text stops making sense."""
    size = len(text.encode())
    if size > FILTER_BYTES_MAX:
        raise InvalidArgument(f"filter: got {size} bytes, expected at most {FILTER_BYTES_MAX}")
    return _Parser(text).whole()


_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>[A-Za-z0-9_][A-Za-z0-9_-]*)|(?P<mark>!=|[=:().,-]))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", re.DOTALL)
_PLAIN_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", '"': '"', "'": "'", "?": "?", "`": "`",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent; one method per rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._next = 0
        self._depth = 0

    def whole(self) -> Expression:
        result = self._expression()
        if self._peek().kind != "end":
            raise self._fault("AND, OR or the end of the filter")
        return result

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        end = len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                rest = text[at:].lstrip()[:20]
                raise InvalidArgument(
                    f"filter: got {rest!r} at position {at}, expected attributes, hasPrefix, NOT,"
                    " a quoted string or a parenthesis"
                )
            kind = found.lastgroup or "mark"
            tokens.append(_Token(kind, found.group(kind), found.start(kind)))
            at = found.end()
        tokens.append(_Token("end", "", len(text)))
        return tokens

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _fault(self, expected: str) -> InvalidArgument:
        token = self._peek()
        got = repr(token.text) if token.kind != "end" else "the end"
        return InvalidArgument(f"filter: got {got} at position {token.at}, expected {expected}")

    def _accept(self, kind: str, text: str) -> bool:
        token = self._peek()
        if (token.kind, token.text) != (kind, text):
            return False
        self._take()
        return True

    def _expect(self, mark: str) -> None:
        if not self._accept("mark", mark):
            raise self._fault(repr(mark))

    def _expression(self) -> Expression:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise InvalidArgument(f"filter: got more than {_DEPTH_MAX} nested levels")
        parts = [self._negation()]
        joined_by = self._peek().text
        while self._peek().kind == "word" and self._peek().text in ("AND", "OR"):
            if self._peek().text != joined_by:
                raise self._fault(f"{joined_by}, or parentheses: AND and OR are not mixed bare")
            self._take()
            parts.append(self._negation())
        self._depth -= 1
        if len(parts) == 1:
            return parts[0]
        return All(tuple(parts)) if joined_by == "AND" else AnyOf(tuple(parts))

    def _negation(self) -> Expression:
        negated = False
        while self._accept("word", "NOT") or self._accept("mark", "-"):
            negated = not negated
        inner = self._atom()
        return Not(inner) if negated else inner

    def _atom(self) -> Expression:
        if self._accept("mark", "("):
            inner = self._expression()
            self._expect(")")
            return inner
        if self._accept("word", "hasPrefix"):
            self._expect("(")
            key = self._attribute_path()
            self._expect(",")
            prefix = self._string()
            self._expect(")")
            return HasPrefix(key, prefix)
        if not self._accept("word", "attributes"):
            raise self._fault("attributes, hasPrefix, NOT or a parenthesis")
        if self._accept("mark", ":"):
            return Has(self._key())
        self._expect(".")
        return self._comparison(self._key())

    def _comparison(self, key: str) -> Expression:
        if self._accept("mark", "="):
            return Equals(key, self._string())
        if self._accept("mark", "!="):
            return Not(Equals(key, self._string()))
        raise self._fault("= or !=")

    def _attribute_path(self) -> str:
        if not self._accept("word", "attributes"):
            raise self._fault("attributes")
        self._expect(".")
        return self._key()

    def _key(self) -> str:
        if self._peek().kind == "word":
            return self._take().text
        if self._peek().kind == "string":
            return self._string()
        raise self._fault("an attribute key")

    def _string(self) -> str:
        if self._peek().kind != "string":
            raise self._fault("a string in double quotes")
        return _ESCAPE.sub(self._unescape, self._take().text[1:-1])

    def _unescape(self, found: re.Match[str]) -> str:
        code = found.group(1)
        if code in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[code]
        digits, base = (code[1:], 16) if code[0] in "uUx" else (code, 8)
        try:
            return chr(int(digits, base))
        except (ValueError, OverflowError):
            raise InvalidArgument(
                f"filter: got the escape \\{code}, expected a known one such as \\n or \\u00e9"
            ) from None
