"""The schema of job files: as strict as the check, but for expressions."""

from __future__ import annotations

import pytest

from core.job_fields import FIELDS
from core.job_file_schema import FILE_KEYS, job_file_schema
from tests.json_schema import fits

SCHEMA = job_file_schema()


def test_schema_has_every_field() -> None:
    assert SCHEMA["properties"].keys() == FILE_KEYS.keys() | FIELDS.keys()


@pytest.mark.parametrize(
    ("document", "right"),
    [
        ({"command": ["a"], "gpu_count": 2}, True),
        ({"gpu_count": "${{ n }}", "parameters": {"n": None}}, True),
        ({"gpu_count": "two"}, False),
        ({"gpus": 2}, False),
        ({"matrix": ["a"]}, False),
    ],
)
def test_what_fits(document: dict[str, object], right: bool) -> None:
    assert fits(SCHEMA, document) == right
