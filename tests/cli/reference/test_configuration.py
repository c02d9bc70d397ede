"""The page of configuration keys."""

from __future__ import annotations

from cli.reference.configuration import page
from config.schema import KEYS


def test_every_key_has_a_meaning() -> None:
    """No row of the reference has an empty last cell, timers included."""
    text = page()
    for key in KEYS:
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{key.path}` |")]
        assert row.split("|")[-2].strip(), key.path
