"""A stored job as a submission: what to send so that the same is asked for again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from core.job_fields import FIELDS, JobField, JobSpec

_ARRAY_VARIABLES = ("ZEN_ARRAY_ID", "ZEN_ARRAY_INDEX")
_FOLDED = frozenset({"command", "shell", "replicas", "array"})
"""Fields that several attributes say together."""
_PLAIN = tuple(
    field
    for field in FIELDS.values()
    if field.attribute and field.name not in _FOLDED and field.name != "job_id"
)


def submission_of(spec: JobSpec) -> dict[str, Any]:
    """The fields of a submission that makes this job again, under another id. A job of an array is
    one job then, with its index in its environment."""
    found: dict[str, Any] = {}
    for field in _PLAIN:
        value = getattr(spec, field.attribute)
        # A default of the configuration may be another one by now.
        if field.configured or value != field.default:
            found[field.name] = _said(field, value)
    if spec.array is not None:
        found.pop("group", None)  # it is the array's own
    return found | _program(spec) | _replicas(spec)


def array_submission_of(spec: JobSpec) -> dict[str, Any]:
    """The same of any job of an array, for all of them."""
    found = submission_of(spec)
    own = {
        name: value
        for name, value in found.pop("environment", {}).items()
        if name not in _ARRAY_VARIABLES
    }
    return found | ({"environment": own} if own else {}) | {"array": spec.array}


def _said(field: JobField, value: object) -> object:
    """As the field is written."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return value if field.kind is None or field.kind.write is None else field.kind.write(value)


def _program(spec: JobSpec) -> dict[str, Any]:
    if not spec.command:
        return {}
    words = {"args" if spec.keep_entrypoint else "command": list(spec.command)}
    return {**words, "shell": True} if spec.shell else words


def _replicas(spec: JobSpec) -> dict[str, Any]:
    if spec.elastic:
        return {"replicas": {"min": spec.least, "max": spec.replicas}}
    return {"replicas": spec.replicas} if spec.replicas > 1 else {}
