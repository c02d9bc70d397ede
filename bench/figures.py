"""Figures that a benchmark tells to `python -m bench.all`, beside the table that it prints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
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


BenchFigures = Mapping[str, float] | str
"""What a bench told, or why it told nothing."""


class KeptFigures:
    """Figures of benches by their commands, in a file if there is one."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._known: dict[str, BenchFigures] = {}
        if file is not None and file.exists():
            self._known = json.loads(file.read_text(encoding="utf-8"))

    def get(self, command: str) -> Mapping[str, float] | None:
        """Only what was told: a bench that failed is tried again."""
        known = self._known.get(command)
        return None if isinstance(known, str) else known

    def put(self, command: str, figures: BenchFigures) -> None:
        self._known[command] = figures
        if self._file is not None:
            self._file.write_text(json.dumps(self._known, indent=1) + "\n", encoding="utf-8")
