"""The reference page."""

from __future__ import annotations

from pathlib import Path

from config.reference import reference
from config.schema import KEYS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


def test_committed_page_is_up_to_date() -> None:
    """The page is what the table of keys says; it tells how to renew it."""
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_every_key_has_a_meaning() -> None:
    """No row of the reference has an empty last cell, timers included."""
    page = reference()
    for key in KEYS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{key.path}` |")]
        assert row.split("|")[-2].strip(), key.path
