"""Types of values in the configuration: how each is called, and what is one."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from core.containers import MOUNTS_WORDS, are_mounts


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of value: how it is called, whether a value is one, how the environment spells it."""

    expected: str
    good: Callable[[object], bool]
    from_text: Callable[[str], object] = str


def text(expected: str, pattern: str) -> ValueType:
    """Text that matches the whole pattern."""
    rule = re.compile(pattern)
    return ValueType(expected, lambda v: isinstance(v, str) and rule.fullmatch(v) is not None)


def texts(expected: str, pattern: str) -> ValueType:
    """A list of texts that match the whole pattern; the environment puts commas between them."""
    rule = re.compile(pattern)

    def good(value: object) -> bool:
        return isinstance(value, list) and all(
            isinstance(v, str) and rule.fullmatch(v) for v in value
        )

    return ValueType(expected, good, lambda t: [word for word in t.split(",") if word])


def whole(low: int, high: int) -> ValueType:
    """A whole number within bounds; true and false are not numbers."""

    def good(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return ValueType(f"a whole number from {low} to {high}", good, _number_of(int))


def number(high: float, unit: str, *, above_zero: bool) -> ValueType:
    """A finite number from 0 to `high`, or above 0."""

    def good(value: object) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return math.isfinite(value) and 0 <= value <= high and not (above_zero and value == 0)

    low = "above 0, at most" if above_zero else "from 0 to"
    return ValueType(f"a number of {unit} {low} {high:,.0f}", good, _number_of(float))


def choice(*options: str) -> ValueType:
    """One of a few words."""
    return ValueType("one of " + ", ".join(options), lambda v: isinstance(v, str) and v in options)


def optional(kind: ValueType) -> ValueType:
    """The same, or nothing at all."""
    return ValueType(
        f"{kind.expected}, or null",
        lambda v: v is None or kind.good(v),
        lambda t: None if t == "" else kind.from_text(t),
    )


def _number_of(convert: Callable[[str], object]) -> Callable[[str], object]:
    def read(word: str) -> object:
        try:
            return convert(word)
        except ValueError:
            return word  # the check refuses it and shows what came

    return read


def _flag_of(word: str) -> object:
    return {"true": True, "false": False}.get(word.lower(), word)


def _zone_list(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(v, str) and re.fullmatch(_ZONE_WORD, v) for v in value)
    )


def _is_date(value: object) -> bool:
    if isinstance(value, str):
        try:
            datetime.date.fromisoformat(value)
        except ValueError:
            return False
        return True
    return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)


_ZONE_WORD = r"[a-z]|[a-z]+-[a-z]+[0-9]+-[a-z]"


def _is_tls(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"cert", "key"}
        and all(isinstance(path, str) and path for path in value.values())
    )


def _is_floor_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


FLOORS = ValueType(
    "a list of floors, each with days, from, to, timezone and vm_min", _is_floor_list
)
MOUNTS = ValueType(MOUNTS_WORDS, are_mounts, lambda t: [word for word in t.split(",") if word])
ORIGINS = texts(
    'a list of origins, e.g. [https://dash.example.org], or ["*"]', r"\*|https?://[^\s/,]+"
)
HOSTS = texts(
    "a list of host names, e.g. [zen.example.org, '*.zen.internal']",
    r"(\*\.)?[^\s/:*,]+|[0-9a-f:]+",
)
TLS = ValueType(
    "{cert: /path/of/cert.pem, key: /path/of/key.pem}",
    _is_tls,
    lambda t: dict(zip(("cert", "key"), t.split(","), strict=False)),
)
FLAG = ValueType("true or false", lambda v: isinstance(v, bool), _flag_of)
ZONES = ValueType(
    "a list of zones, each a letter or a full name, e.g. [a, us-central1-b]", _zone_list
)
DATE = ValueType("a date, e.g. 2026-08-21", _is_date)
SECONDS = number(366 * 86400, "seconds", above_zero=True)
FLEX_WAIT = number(7 * 86400, "seconds", above_zero=True)
DAYS = number(3650, "days", above_zero=True)
NODE = text("unix: and the absolute path of a socket", r"unix:/[^\x00-\x1f]{1,4095}")
FILE_PATH = text("the absolute path of a file", r"/[^\x00-\x1f]{1,4095}")
PRICE = number(10_000, "USD per hour", above_zero=False)
BUDGET = number(100_000_000, "USD", above_zero=False)
PART = ValueType(
    "a part above 0, at most 1, e.g. 0.8",
    lambda v: isinstance(v, int | float) and not isinstance(v, bool) and 0 < v <= 1,
)
PROJECT = text(
    "a Google project id: 6 to 30 small letters, digits and -, beginning with a letter",
    r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]",
)
PROJECTS = texts("a list of Google project ids", r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
PREFIX = text(
    "1 to 40 small letters, digits and -, beginning with a letter, not ending with -",
    r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?",
)
HOST_PORT = text("host:port, e.g. 127.0.0.1:8085", r"[^\s:/]+:[0-9]{1,5}")
URL = text("a URL, e.g. http://127.0.0.1:8090", r"https?://[^\s/]+(/\S*)?")
POSTGRES = text("a URL, e.g. postgresql://user@host:5432/zen", r"postgres(ql)?://\S*")
STORE = text("file:///directory or gs://bucket/prefix", r"file:///\S*|gs://[a-z0-9]\S*")
SERVICE_ACCOUNT = text(
    "a service account, e.g. zen-vms@my-project.iam.gserviceaccount.com",
    r"[a-z0-9][a-z0-9-]{2,62}@[a-z0-9.:-]+\.gserviceaccount\.com",
)
HOST = text("a host name or an address", r"[^\s/]+")

# --- names that people choose, by the path of what they name ----------------------------

CLUSTER_NAME = text(
    "<gpus>x<gpu type>, e.g. 4xa100-40gb, or 0xcpu",
    r"(?:[1-9][0-9]{0,2}x[a-z0-9][a-z0-9-]{0,30}|0xcpu(?:-[a-z0-9-]{1,27})?)",
)
REGION_NAME = text("a region, e.g. us-central1", r"[a-z]+-[a-z]+[0-9]+")
GPU_NAME = text("a GPU type, e.g. a100-40gb", r"[a-z0-9][a-z0-9-]{0,30}")
MACHINE_NAME = text("a machine type, e.g. a2-highgpu-1g", r"[a-z][a-z0-9-]{0,62}")

TENANT_NAME = text(
    "a tenant: 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
)
USER_NAME = text(
    "a user: 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
)
TOPIC_NAME = text(
    "the id of a Pub/Sub topic: 3 to 240 characters, beginning with a letter",
    r"(?!goog)[A-Za-z][A-Za-z0-9._~+-]{2,239}",
)
