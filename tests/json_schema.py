"""The part of JSON Schema that our OpenAPI document uses, as a check."""

from __future__ import annotations

import re
from collections.abc import Mapping


def fits(schema: Mapping[str, object], value: object) -> bool:
    """Whether the value is as the schema says."""
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list) and not any(fits(one, value) for one in options):
            return False
    if "const" in schema and value != schema["const"]:
        return False
    words = schema.get("enum")
    if isinstance(words, list) and value not in words:
        return False
    kind = schema.get("type")
    if isinstance(kind, str) and not _is(value, kind):
        return False
    if isinstance(value, str):
        return _text_fits(schema, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number_fits(schema, value)
    if isinstance(value, list):
        return _list_fits(schema, value)
    return not isinstance(value, dict) or _object_fits(schema, value)


def _is(value: object, kind: str) -> bool:
    match kind:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "null":
            return value is None
        case _:
            known = {"string": str, "boolean": bool, "array": list, "object": dict}
            return isinstance(value, known[kind])


def _text_fits(schema: Mapping[str, object], value: str) -> bool:
    pattern = str(schema.get("pattern", ""))
    if pattern.endswith("$"):  # in Python also before a newline at the end
        pattern = pattern[:-1] + r"\Z"
    least, most = schema.get("minLength", 0), schema.get("maxLength", len(value))
    assert isinstance(least, int)
    assert isinstance(most, int)
    return re.search(pattern, value) is not None and least <= len(value) <= most


def _number_fits(schema: Mapping[str, object], value: float) -> bool:
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    above = schema.get("exclusiveMinimum", value - 1)
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    assert isinstance(above, int | float)
    return low <= value <= high and value > above


def _list_fits(schema: Mapping[str, object], value: list[object]) -> bool:
    items, most = schema.get("items", {}), schema.get("maxItems", len(value))
    assert isinstance(items, Mapping)
    assert isinstance(most, int)
    once = not schema.get("uniqueItems") or len({str(one) for one in value}) == len(value)
    return once and len(value) <= most and all(fits(items, one) for one in value)


def _object_fits(schema: Mapping[str, object], value: dict[str, object]) -> bool:
    known = schema.get("properties", {})
    assert isinstance(known, Mapping)
    required, names = schema.get("required", ()), schema.get("propertyNames", {})
    more, most = schema.get("additionalProperties", True), schema.get("maxProperties", len(value))
    assert isinstance(required, list | tuple)
    assert isinstance(names, Mapping)
    assert isinstance(most, int)
    rest = {name: one for name, one in value.items() if name not in known}
    return (
        all(name in value for name in required)
        and len(value) <= most
        and all(fits(names, name) for name in value)
        and all(fits(known[name], one) for name, one in value.items() if name in known)
        and (not rest or more is not False)
        and (not isinstance(more, Mapping) or all(fits(more, one) for one in rest.values()))
    )
