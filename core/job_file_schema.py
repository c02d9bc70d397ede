"""The JSON Schema of a job file: the fields of a submission, and what a file has besides."""

from __future__ import annotations

from typing import Any

from core.job_fields import FIELDS

EXPRESSION = r"\$\{\{[^}]*\}\}"
PARAMETER_NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
PARAMETERS_MAX = 100
MATRIX_MAX = 1000
"""Jobs that a matrix makes, at most."""
EXTENDS_MAX = 8
"""Files that one file extends, one after the other."""
_SCALAR = {"type": ["string", "number", "boolean"]}
_NAMES = {"pattern": f"^{PARAMETER_NAME}$"}
FILE_KEYS: dict[str, dict[str, Any]] = {
    "extends": {
        "type": "string",
        "description": "Another job file, relative to this one. What this file says wins; "
        "environment, labels, secrets and parameters are merged.",
    },
    "parameters": {
        "type": "object",
        "propertyNames": _NAMES,
        "maxProperties": PARAMETERS_MAX,
        "additionalProperties": {"anyOf": [_SCALAR, {"type": "null"}]},
        "description": "Name → default; null: it must be given with `-p NAME=VALUE`. Used as "
        "`${{ NAME }}`.",
    },
    "matrix": {
        "type": "object",
        "propertyNames": _NAMES,
        "additionalProperties": {"type": "array", "minItems": 1, "items": _SCALAR},
        "description": "Name → values: one job for each combination, in the group of the id. Used "
        "as `${{ matrix.NAME }}`.",
    },
    "env_file": {
        "type": "string",
        "description": "NAME=VALUE lines (dotenv), relative to this file; `environment` wins.",
    },
}
"""What a job file has beside the fields of a submission."""


def job_file_schema() -> dict[str, Any]:
    """For editors and other tools. An expression may stand where any value stands."""
    fields = {
        name: {
            "anyOf": [dict(field.kind.schema), {"type": "string", "pattern": EXPRESSION}],
            "description": field.doc,
        }
        for name, field in FIELDS.items()
        if field.kind is not None
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A job of Pipeline Zen Jobs Scheduler",
        "type": "object",
        "additionalProperties": False,
        "properties": {**FILE_KEYS, **fields},
    }
