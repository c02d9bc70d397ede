"""What a submission is stored as: its fields that are not as by default. A row is copied whenever
its job moves, and most submissions say little.

A field that is left out is read as the default of now: the defaults are part of the stored format,
and tests/db/test_spec_documents.py keeps them. A default that must change needs a migration that
writes the old one into the documents.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter

from core.job_fields import JobSpec
from db.rows import to_json

_NAMES = tuple(field.name for field in fields(JobSpec))
_values = attrgetter(*_NAMES)
DEFAULTS = dict(zip(_NAMES, _values(JobSpec(job_id="")), strict=True))
_PAIRS = tuple(DEFAULTS.items())


def spec_document(spec: JobSpec) -> str:
    """As `db.rows.spec_of` reads it."""
    said = zip(_PAIRS, _values(spec), strict=True)
    return to_json({name: value for (name, usual), value in said if value != usual})
