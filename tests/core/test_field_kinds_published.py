"""What OpenAPI says of a field's form, and what the service takes, are the same."""

from __future__ import annotations

import pytest

from core.job_fields import FIELDS
from tests.json_schema import fits

TEXTS = (
    *(
        "",
        " ",
        "a",
        "A",
        "0",
        "-",
        "_",
        "a b",
        "a.b",
        "a-b",
        "a_b",
        "a/b",
        "a:b",
        "a=b",
        "ä",
        "日本",
    ),
    *(
        "a" * 63,
        "a" * 64,
        "a" * 128,
        "a" * 129,
        "a" * 513,
        "a\n",
        "\n",
        "\0",
        "a\0",
        "\x1b[1m",
        "\x7f",
    ),
    *("\u200b", "\u2028", "\u202e", "\ufeff", "\ud800", "😀", "l4", "h100-80gb", "us-central1"),
    *("1-10", "1,5,9", "0-90:10", "1 - 3", "1-", "x-y", "prepare:ok", "prepare:any", "prepare:no"),
    *("zen://HF", "zen://", "zen://a b", "sm://project-1/name", "sm://project-1/name/versions/3"),
    *("sm://p/name", "python:3.12", "host:5000/a/b:tag", "Python", "a@sha256:" + "0" * 64),
    *("2026-09-01T18:00:00Z", "normal", "high", "restart", "true"),
)
NUMBERS = (*(-1, 0, 1, 2, 0.5, 0.005, 0.01, 999, 1000, 1001, 1e9, 1e9 + 1, 2**31, 10**12, -0.1),)
OTHERS: tuple[object, ...] = (*(True, False, [], {}, ["a", "a"], [1], [None], {"a": 1}, {"": "x"}),)
"""Without null: it is as if the field were not there."""


def probes() -> list[object]:
    """Alone, in a list, as a value and as a name of an object."""
    found: list[object] = [*TEXTS, *NUMBERS, *OTHERS]
    for text in TEXTS:
        found += [[text], {"A": text}, {text: "zen://A"}, {text: "a"}]
    found += [{"min": low, "max": high} for low in (0, 1, 2) for high in (2, 1000, 1001)]
    found += [{"min": 1}, {"max": 2}, {"max": "2"}, {"max": 2, "more": 1}]
    return found


BEYOND_FORM = {"deadline", "priority", "submitted_by"}
"""A moment has a format, not a pattern; a priority may be said as a class by older clients."""


@pytest.mark.parametrize("name", sorted(set(FIELDS) - BEYOND_FORM))
def test_published_form_is_the_check(name: str) -> None:
    """In both directions: what fits the document is not refused for its form, and what does not fit
    is."""
    kind = FIELDS[name].kind
    assert kind is not None
    differ = [
        value for value in probes() if fits(kind.schema, value) != (kind.check(value) is None)
    ]
    assert differ == []
