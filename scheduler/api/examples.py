"""Examples for the documentation, from examples.yaml: a test holds each against the type it is an
example of."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import msgspec
import yaml
from msgspec import Struct

from core.job_fields import SPEC_FIELDS

_NOON = "2026-01-31T12:00:00.000Z"


@cache
def _data() -> Mapping[str, Mapping[str, Any]]:
    found = yaml.safe_load(Path(__file__).with_name("examples.yaml").read_text("utf-8"))
    defaults = {field.name: field.default for field in SPEC_FIELDS if field.shown}
    unsaid = msgspec.json.decode(msgspec.json.encode(defaults))
    found["shapes"]["JobOut"] = {**unsaid, **found["values"], **found["shapes"]["JobOut"]}
    return dict(found)


def requests(name: str) -> Mapping[str, Any]:
    """Examples of a body, by what they show."""
    return dict(_data()["requests"][name])


def example_of(shape: type[Struct]) -> dict[str, Any]:
    """An answer of this shape, complete."""
    own, values = _data()["shapes"].get(shape.__name__, {}), _data()["values"]
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(shape):
        name = field.encode_name
        if name in own:
            found[name] = own[name]
        elif name in values and _struct(field.type) is None:
            found[name] = values[name]
        elif field.required or not shape.__struct_config__.omit_defaults:
            found[name] = _least(field.type)
    return found


def _struct(kind: Any) -> type[Struct] | None:
    """The shape that a field of this type has, or has several of."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind
    return next(filter(None, map(_struct, get_args(kind))), None)


def _least(kind: Any) -> Any:
    """The value of a field that has no example of its own."""
    parts, made = get_args(kind), get_origin(kind) or kind
    if (shape := _struct(kind)) is not None:
        return [example_of(shape)] if made is tuple else example_of(shape)
    if NoneType in parts:
        return None
    if hasattr(kind, "__metadata__"):  # only moments are annotated
        return _NOON
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind)).value
    return [] if made is tuple else {} if made is Mapping else made()
