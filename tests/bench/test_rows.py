"""Rows of the one table: bounds and verdicts."""

from __future__ import annotations

import pytest

from bench.rows import ROWS, BenchRow

LEAST = BenchRow("P1", "a ratio", "×", 0.65, 0.85, at_least=True)
MOST = BenchRow("P9", "a time", "ms", 150, 90)


@pytest.mark.parametrize(
    ("row", "value", "verdict"),
    [
        (LEAST, 0.9, "stretch"),
        (LEAST, 0.7, "must"),
        (LEAST, 0.6, "MISSED"),
        (MOST, 90, "stretch"),
        (MOST, 120, "must"),
        (MOST, 151, "MISSED"),
        (BenchRow("P3", "shown", "ms", None), 5, "shown"),
    ],
)
def test_verdicts(row: BenchRow, value: float, verdict: str) -> None:
    """A bound holds from its own side; without one the figure is shown alone."""
    assert row.verdict(value) == verdict


def test_rows_are_whole() -> None:
    """A row that names a bench names its figure; bounds are in order."""
    for row in ROWS:
        assert (row.run is None) == (row.told == ""), row
        if row.must is not None and row.stretch is not None:
            assert (row.stretch > row.must) == row.at_least, row
    assert MOST.bounds() == "≤ 150 / 90"
    assert LEAST.bounds() == "≥ 0.65 / 0.85"
