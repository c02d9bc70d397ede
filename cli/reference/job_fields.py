"""The page of all fields of a job."""

from __future__ import annotations

from cli.reference.markdown import MADE_BY, cell, code, table
from core.job_fields import FIELDS, JobField

_HEAD = f"""\
# Fields of a job

{MADE_BY}
A submission is one JSON or YAML object: the body of `POST /api/v1/jobs`, the body of a message on
the submit topic, or the file of `zen submit -f`, whose options win. Every field is optional, but
there is a `command`, a `script`, an `image` or a `workflow`. Unknown fields are refused, and every
fault is named at once. A default `timers.…` is a setting of the
[configuration](configuration.md).
"""
_TYPES = {"array": "list of strings", "object": "object", None: "integer or {min, max}"}


def page() -> str:
    """The whole page."""
    rows = [_row(FIELDS[name]) for name in sorted(FIELDS)]
    return "\n".join([_HEAD, table(("Field", "Type", "Default", "`zen submit`", "Meaning"), rows)])


def _row(field: JobField) -> tuple[str, ...]:
    kind = field.kind.schema.get("type") if field.kind else None
    flags = ", ".join(map(code, field.option.flags.split())) if field.option else ""
    filtered = f" Filter: `GET /jobs?{field.name}=`." if field.only else ""
    name = str(_TYPES.get(str(kind) if kind else None, kind))
    return code(field.name), name, _default(field), flags, cell(field.doc + filtered)


def _default(field: JobField) -> str:
    if field.configured:
        return f"`timers.{field.attribute}`"
    if field.default is None or field.default in ("", (), {}):
        return ""
    return code(str(field.default).lower() if isinstance(field.default, bool) else field.default)
