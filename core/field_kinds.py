"""Kinds of values in a submission: how each is checked, described in OpenAPI, and read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from core.groups import (
    AFTER_MAX,
    AFTER_PATTERN,
    AFTER_WORDS,
    ARRAY_PATTERN,
    ARRAY_WORDS,
    parse_after,
    parse_array,
)
from core.names import JOB_ID
from core.secret_references import (
    REFERENCE_PATTERN,
    SECRETS_MAX,
    VARIABLE,
    check_secrets,
)

REPLICAS_MAX = 1000
AMOUNT_MAX = 1e9
GPU_TYPES_MAX = 16
COMMAND_BYTES_MAX = 128 * 1024
ID_WORDS = "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit"
_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}\Z")
_ANY_CASE_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}\Z")
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
# As the distribution specification has it: [host[:port]/]path[:tag][@digest].
_IMAGE_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{{1,5}})?/)?{_IMAGE_PART}(?:/{_IMAGE_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?\Z"
)
_IMAGE_CHARS_MAX = 512
_PRINTABLE = (
    r"[^\x00-\x1f\x7f-\xa0\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff"
    r"\ud800-\udfff]"
)
"""Python's isprintable cannot be said in OpenAPI."""
_NO_NUL: Mapping[str, object] = {"type": "string", "pattern": r"^[^\x00]*$"}

Check = Callable[[object], str | None]
"""Returns what was expected, or None if the value is right."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. `read` makes the stored value of one that passed the check."""

    check: Check
    schema: Mapping[str, object]
    read: Callable[[Any], Any]
    private: bool = False
    """An error does not repeat what was sent: it may be a secret."""
    write: Callable[[Any], Any] | None = None
    """Makes what a submission says of the stored value; None: they are the same."""


def _as_is(value: Any) -> Any:
    return value


def text(pattern: re.Pattern[str], expected: str, *examples: str) -> Kind:
    def check(value: object) -> str | None:
        return None if isinstance(value, str) and pattern.match(value) else expected

    schema = {"type": "string", "pattern": published(pattern)}
    return Kind(check, _with(schema, examples), _as_is)


def published(pattern: re.Pattern[str]) -> str:
    """The pattern as JSON schemas write it: from the first character to the last."""
    return f"^(?:{pattern.pattern.removesuffix(chr(92) + 'Z')})$"


def printable(chars_max: int, chars_min: int = 0) -> re.Pattern[str]:
    """Texts of one line: without control characters, and without marks that change the order or
    the looks of others."""
    return re.compile(rf"{_PRINTABLE}{{{chars_min},{chars_max}}}\Z")


def short_text(chars_max: int) -> Kind:
    return text(printable(chars_max), f"at most {chars_max} printable characters")


def whole(low: int, high: int) -> Kind:
    expected = f"a whole number from {low} to {high}"

    def check(value: object) -> str | None:
        right = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return None if right else expected

    return Kind(check, {"type": "integer", "minimum": low, "maximum": high}, int)


def named(known: Kind, names: Mapping[str, int]) -> Kind:
    """A number, or a name that stands for one; its schema stays the number's."""

    def read(value: object) -> Any:
        return names.get(value.lower(), value) if isinstance(value, str) else value

    def check(value: object) -> str | None:
        expected = known.check(read(value))
        return None if expected is None else f"{expected}, or {', '.join(names)}"

    return Kind(check, known.schema, read)


def number(low: float, high: float, unit: str, *, times: int | None = None) -> Kind:
    """`times`: how many of the stored unit one of `unit` is."""
    expected = f"a number of {unit} from {low:g} to {high:g}"

    def check(value: object) -> str | None:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        return None if right and low <= value <= high else expected  # type: ignore[operator]

    schema = {"type": "number", "minimum": low, "maximum": high}
    if times is None:
        return Kind(check, schema, float)
    return Kind(check, schema, lambda value: value * times, write=lambda value: value / times)


def quantity(*, above_zero: bool = False) -> Kind:
    """A finite number of something that is shared or limited."""
    expected = f"a number {'above 0' if above_zero else 'from 0 on'}"

    def check(value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return expected
        enough = value > 0 if above_zero else value >= 0
        return None if enough and value <= AMOUNT_MAX else expected

    least = {"exclusiveMinimum" if above_zero else "minimum": 0}
    return Kind(check, {"type": "number", **least, "maximum": AMOUNT_MAX}, _as_is)


def one_of(*known: str) -> Kind:
    def check(value: object) -> str | None:
        return None if value in known else f"one of: {', '.join(known)}"

    return Kind(check, {"type": "string", "enum": list(known)}, _as_is)


def pairs(names: re.Pattern[str], most: int, what: str) -> Kind:
    expected = f"an object of at most {most} {what} with string values"

    def check(value: object) -> str | None:
        right = (
            isinstance(value, Mapping)
            and len(value) <= most
            and all(isinstance(k, str) and names.match(k) for k in value)
            and all(isinstance(v, str) and "\0" not in v for v in value.values())
        )
        return None if right else expected

    return Kind(check, _object_of(names, most, _NO_NUL), dict)


def _object_of(
    names: re.Pattern[str], most: int | None, values: Mapping[str, object] | None = None
) -> dict[str, object]:
    found: dict[str, object] = {"type": "object", "propertyNames": {"pattern": published(names)}}
    if most is not None:
        found["maxProperties"] = most
    return found if values is None else {**found, "additionalProperties": values}


def _list_of(pattern: str, most: int | None = None) -> dict[str, object]:
    found: dict[str, object] = {"type": "array", "items": {"type": "string", "pattern": pattern}}
    return found if most is None else {**found, "maxItems": most, "uniqueItems": True}


def sizes(replicas: object) -> tuple[int, int] | None:
    """(least, most) members: of a number, or of {min, max}; None if it is neither."""
    if isinstance(replicas, Mapping):
        if not {"min", "max"} >= replicas.keys() or "max" not in replicas:
            return None
        low, high = replicas.get("min", 1), replicas["max"]
    else:
        low = high = replicas
    both = (low, high)
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in both):
        return None
    return (low, high) if 1 <= low <= high <= REPLICAS_MAX else None


# --- checks -----------------------------------------------------------------------------


def _check_flag(value: object) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _check_argv(value: object) -> str | None:
    expected = "a list of strings without NUL, at most 128 KiB together"
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        return expected
    if any("\0" in word for word in value):
        return expected
    size = sum(len(word.encode(errors="surrogatepass")) for word in value)
    return None if size <= COMMAND_BYTES_MAX else expected


def _check_script(value: object) -> str | None:
    expected = "a string without NUL, at most 128 KiB"
    if not isinstance(value, str) or "\0" in value:
        return expected
    size = len(value.encode(errors="surrogatepass"))
    return None if size <= COMMAND_BYTES_MAX else expected


def _check_regions(value: object) -> str | None:
    right = isinstance(value, list) and all(isinstance(w, str) and _SLUG.match(w) for w in value)
    return None if right else 'a list of region names, e.g. ["us-central1"]'


def _check_replicas(value: object) -> str | None:
    expected = f"or {{min, max}} with 1 <= min <= max <= {REPLICAS_MAX}"
    return None if sizes(value) else f"a whole number from 1 to {REPLICAS_MAX}, {expected}"


def _check_array(value: object) -> str | None:
    right = isinstance(value, str) and parse_array(value) is not None
    return None if right else ARRAY_WORDS


def _check_after(value: object) -> str | None:
    if not isinstance(value, list) or len(value) > AFTER_MAX:
        return AFTER_WORDS
    found = [parse_after(word) if isinstance(word, str) else None for word in value]
    needs = {after.needs for after in found if after is not None}
    return None if len(needs) == len(value) else AFTER_WORDS


def _check_gpu_types(value: object) -> str | None:
    expected = 'a list of different GPU types, the preferred one first, e.g. ["h100-80gb", "l4"]'
    if not isinstance(value, list) or len(value) > GPU_TYPES_MAX:
        return expected
    if not all(isinstance(word, str) and _ANY_CASE_SLUG.match(word) for word in value):
        return expected
    return None if len({word.lower() for word in value}) == len(value) else expected


def _moment(value: object) -> datetime | None:
    """A moment with its offset from UTC, or None."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None


def _check_moment(value: object) -> str | None:
    expected = "a moment with its offset from UTC, e.g. 2026-09-01T18:00:00Z"
    return None if _moment(value) is not None else expected


def _check_image(value: object) -> str | None:
    expected = "an image, e.g. python:3.12 or host/path:tag"
    if value is None or value == "":
        return None  # clients that know images send one that is empty for a process
    right = isinstance(value, str) and len(value) <= _IMAGE_CHARS_MAX and _IMAGE.match(value)
    return None if right else expected


def _check_arguments(value: object) -> str | None:
    """v1 workers make options of the names: one with a blank or a quote would be two, or worse."""
    right = isinstance(value, Mapping) and all(
        isinstance(name, str) and _ARGUMENT.match(name) for name in value
    )
    return None if right else "an object whose names are letters, digits, '_', '.' or '-'"


def _with(schema: Mapping[str, object], examples: tuple[object, ...]) -> dict[str, object]:
    return {**schema, "examples": list(examples)} if examples else dict(schema)


_REPLICAS: Mapping[str, object] = {
    "oneOf": [
        {"type": "integer", "minimum": 1, "maximum": REPLICAS_MAX},
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["max"],
            "properties": {
                "min": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": REPLICAS_MAX,
                    "default": 1,
                },
                "max": {"type": "integer", "minimum": 1, "maximum": REPLICAS_MAX},
            },
        },
    ],
    "examples": [4, {"min": 2, "max": 8}],
}

FLAG = Kind(_check_flag, {"type": "boolean"}, bool)
ID = text(JOB_ID, ID_WORDS)
ARGV = Kind(_check_argv, {"type": "array", "items": _NO_NUL}, tuple)
SCRIPT = Kind(_check_script, _NO_NUL, _as_is)
REGIONS = Kind(_check_regions, _list_of(published(_SLUG)), tuple)
CLUSTER = text(_SLUG, "a cluster, e.g. 2xa100-40gb")
GPU_TYPE = Kind(
    text(_ANY_CASE_SLUG, "a GPU type, e.g. a100-40gb").check,
    _with({"type": "string", "pattern": published(_ANY_CASE_SLUG)}, ("a100-40gb", "l4")),
    str.lower,
)
GPU_TYPES = Kind(
    _check_gpu_types,
    _with(
        _list_of(published(_ANY_CASE_SLUG), GPU_TYPES_MAX),
        (["h100-80gb", "a100-80gb"],),
    ),
    lambda words: tuple(word.lower() for word in words),
)
MOMENT = Kind(
    _check_moment,
    _with({"type": "string", "format": "date-time"}, ("2026-09-01T18:00:00Z",)),
    _moment,
)
ARRAY = Kind(
    _check_array,
    _with({"type": "string", "pattern": ARRAY_PATTERN}, ("1-1000", "1,5,9", "0-90:10")),
    lambda words: words.replace(" ", ""),
)
AFTER = Kind(
    _check_after,
    _with(_list_of(AFTER_PATTERN, AFTER_MAX), (["prepare:ok"],)),
    lambda words: tuple(str(parse_after(word)) for word in words),
)
REPLICAS = Kind(_check_replicas, _REPLICAS, lambda value: (sizes(value) or (1, 1))[1])
IMAGE = Kind(
    _check_image,
    _with(
        {
            "anyOf": [
                {
                    "type": "string",
                    "maxLength": _IMAGE_CHARS_MAX,
                    "pattern": published(_IMAGE),
                },
                {"const": ""},
            ]
        },
        ("python:3.12", "registry.example/team/train:v3"),
    ),
    lambda value: value or None,
)
SECRETS = Kind(
    check_secrets,
    _with(
        _object_of(VARIABLE, SECRETS_MAX, {"type": "string", "pattern": REFERENCE_PATTERN}),
        ({"HF_TOKEN": "zen://HF_TOKEN"},),
    ),
    dict,
    private=True,
)
ARGUMENTS = Kind(_check_arguments, _object_of(_ARGUMENT, None), dict)
