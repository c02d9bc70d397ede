"""The table of job fields as Markdown.

`python -m core.job_field_docs PAGE` writes it between the markers of a page; a test holds every
page that has the markers against it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from core.job_fields import FIELDS, JobField

BEGIN, END = "<!-- job fields: begin -->", "<!-- job fields: end -->"
_TYPES = {"array": "list of strings", "object": "object", None: "integer or {min, max}"}


def fields_table() -> str:
    """One row for each field of a submission."""
    rows = [
        "| Field | Type | Default | `zen submit` | |",
        "|---|---|---|---|---|",
        *(_row(FIELDS[name]) for name in sorted(FIELDS)),
    ]
    return "\n".join(rows)


def with_table(page: str) -> str:
    """The page with the present table between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{fields_table()}\n{END}{after}"


def _row(field: JobField) -> str:
    kind = field.kind.schema.get("type") if field.kind else None
    option = f"`{field.option.flags.replace(' ', '`, `')}`" if field.option else ""
    filtered = f" Filter: `GET /jobs?{field.name}=`." if field.only else ""
    cells = (f"`{field.name}`", _TYPES.get(str(kind) if kind else None, kind), _default(field))
    return f"| {' | '.join(map(str, cells))} | {option} | {_cell(field.doc + filtered)} |"


def _default(field: JobField) -> str:
    if field.configured:
        return f"`timers.{field.attribute}`"
    if field.default is None or field.default in ("", (), {}):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def main() -> None:
    page = Path(sys.argv[1])
    page.write_text(with_table(page.read_text()))


if __name__ == "__main__":
    main()
