"""Figures that a benchmark tells to `python -m bench.all`, beside the table that it prints."""

from __future__ import annotations

import json
import os
from pathlib import Path

VARIABLE = "BENCH_FIGURES"
"""Names the file; without it nothing is told."""


def tell(**figures: float) -> None:
    """By the names that the rows of bench/rows.py read."""
    if file := os.environ.get(VARIABLE):
        with Path(file).open("a", encoding="utf-8") as out:
            out.write(json.dumps(figures) + "\n")


def told(file: Path) -> dict[str, float]:
    """All that was told; the last word counts."""
    found: dict[str, float] = {}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            found |= json.loads(line)
    return found
