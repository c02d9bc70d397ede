"""Pages that list the job fields."""

from __future__ import annotations

from pathlib import Path

from core.job_field_docs import BEGIN, END, fields_table, with_table
from core.job_fields import FIELDS

ROOT = Path(__file__).parents[2]


def test_every_field_has_a_row() -> None:
    """Once, with what it means."""
    table = fields_table()
    assert all(table.count(f"| `{name}` |") == 1 for name in FIELDS)


def test_pages_have_the_present_table() -> None:
    """Write it again: python -m core.job_field_docs PAGE."""
    pages = [page for page in ROOT.glob("docs/**/*.md") if BEGIN in page.read_text()]
    assert pages, f"a page of docs/ has {BEGIN} and {END}"
    for page in pages:
        assert page.read_text() == with_table(page.read_text()), page
