"""Query parameters: a table per route that is both the check and the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request

from core.errors import BadInput, Fault
from core.field_kinds import ID_WORDS, printable, published
from core.job_fields import JobField, types
from core.names import JOB_ID
from core.submission import shown, unknown

TEXT_CHARS_MAX = 512
_ONE_LINE = printable(TEXT_CHARS_MAX)
_TRUE = frozenset({"true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no"})


@dataclass(frozen=True, slots=True)
class Param:
    """One query parameter."""

    name: str
    kind: Literal["text", "whole", "number", "flag"]
    doc: str
    default: str | int | float | bool | None = None
    low: int = 0
    high: int = 2**31 - 1
    words: tuple[str, ...] = ()
    """If any: the only values allowed (case does not count)."""
    repeat: bool = False
    blank: bool = False
    """An empty value counts as not given."""
    form: re.Pattern[str] = _ONE_LINE
    """Of a text, and in words."""
    expected: str = f"at most {TEXT_CHARS_MAX} printable characters"

    def schema(self) -> dict[str, object]:
        """For OpenAPI."""
        kinds = {"text": "string", "whole": "integer", "number": "number", "flag": "boolean"}
        one: dict[str, object] = {"type": kinds[self.kind]}
        if self.words:
            one["enum"] = list(self.words)
        elif self.kind == "text":
            one |= {"minLength": 0 if self.blank else 1, "pattern": published(self.form)}
        if self.kind in ("whole", "number"):
            one |= {"minimum": self.low, "maximum": self.high}
        if self.default is not None:
            one["default"] = self.default
        return {"type": "array", "items": one} if self.repeat else one


def id_param(name: str, doc: str) -> Param:
    """The id of a job, a group, a user or a tenant."""
    return Param(name, "text", doc, form=JOB_ID, expected=ID_WORDS)


def filter_param(known: JobField) -> Param:
    """The parameter that lists jobs by one of their fields."""
    kind = types()[known.attribute]
    if kind is bool or kind == bool | None:
        return Param(known.name, "flag", known.only)
    if kind is int:
        return Param(known.name, "whole", known.only)
    return Param(known.name, "text", known.only)


@dataclass(frozen=True, slots=True)
class Query:
    """Checked values. Asking for one with the wrong kind is a mistake of ours."""

    values: Mapping[str, object]

    def text(self, name: str) -> str | None:
        value = self.values[name]
        assert value is None or isinstance(value, str), name
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.values[name]
        assert isinstance(value, tuple), name
        return value

    def whole(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), name
        return value

    def whole_or_none(self, name: str) -> int | None:
        value = self.values[name]
        assert value is None or isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        value = self.values[name]
        assert isinstance(value, int | float), name
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name]
        assert isinstance(value, bool), name
        return value


def read_query(request: Request, params: Sequence[Param], *, lenient: bool = False) -> Query:
    """Every value, or BadInput with every fault. Parameters we do not know are refused (ignored if
    we are lenient), and so are empty ones: a filter whose value got lost must not mean "all"."""
    known = {param.name: param for param in params}
    faults: list[Fault] = []
    given: dict[str, list[object]] = {}
    for name, raw in request.query_params.multi_items():
        if name not in known:
            faults += [] if lenient else [unknown("query parameter", name, known)]
        elif not raw:
            if not (lenient or known[name].blank):
                faults.append(Fault(name, "an empty value", "a value; leave it out for none"))
        else:
            value, expected = _parse(known[name], raw)
            if expected is not None:
                faults.append(Fault(name, shown(raw), expected))
            given.setdefault(name, []).append(value)
    for name, values in given.items():
        if len(values) > 1 and not known[name].repeat:
            faults.append(Fault(name, f"{len(values)} values", "one value"))
    if faults:
        raise BadInput(faults)
    return Query({param.name: _value(param, given.get(param.name)) for param in params})


def no_query(params: Sequence[Param]) -> Query:
    """What a request without a query string asks for."""
    return Query({param.name: _value(param, None) for param in params})


def read_job_id(request: Request, name: str = "job_id") -> str:
    """The job id of the path, or BadInput: no job can have such an id."""
    return checked_id(request.path_params[name], name)


def checked_id(given: object, field: str) -> str:
    """The id of a job, a group or a user, or BadInput: nothing can have such an id."""
    if not isinstance(given, str) or not JOB_ID.match(given):
        raise BadInput([Fault(field, shown(given), ID_WORDS)])
    return given


def _value(param: Param, given: list[object] | None) -> object:
    if param.repeat:
        return tuple(given or ())
    return given[0] if given else param.default


def _parse(param: Param, raw: str) -> tuple[object, str | None]:
    """(value, None) or (None, what was expected)."""
    match param.kind:
        case "text":
            return _parse_text(param, raw)
        case "whole":
            return _parse_whole(param, raw)
        case "number":
            return _parse_number(param, raw)
        case "flag":
            word = raw.lower()
            if word in _TRUE | _FALSE:
                return word in _TRUE, None
            return None, "true or false"


def _parse_text(param: Param, raw: str) -> tuple[object, str | None]:
    if param.words:
        for word in param.words:
            if word.lower() == raw.lower():
                return word, None
        return None, f"one of: {', '.join(param.words)}"
    return (raw, None) if param.form.match(raw) else (None, param.expected)


def _parse_whole(param: Param, raw: str) -> tuple[object, str | None]:
    expected = f"a whole number from {param.low} to {param.high}"
    # isascii: int() also reads the digits of other scripts, which nobody means here.
    if not (raw.isascii() and raw.isdigit() and len(raw) <= 20):
        return None, expected
    value = int(raw)
    return (value, None) if param.low <= value <= param.high else (None, expected)


def _parse_number(param: Param, raw: str) -> tuple[object, str | None]:
    expected = f"a number from {param.low} to {param.high}"
    try:
        value = float(raw)
    except ValueError:
        return None, expected
    return (value, None) if param.low <= value <= param.high else (None, expected)
