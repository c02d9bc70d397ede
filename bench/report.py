"""Figures of a benchmark: quantiles, and tables that show ratios beside them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

NOISE = "Machines are noisy: compare figures of one run, do not quote them."


@dataclass(slots=True)
class RaceResult:
    """What came of many races of one kind."""

    kind: str
    races: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    collisions: int = 0
    """Writes that a guard refused: the races that were really met."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, more: RaceResult) -> RaceResult:
        """Both together."""
        return RaceResult(
            self.kind,
            self.races + more.races,
            self.outcomes + more.outcomes,
            self.collisions + more.collisions,
            self.faults + more.faults,
            self.seconds + more.seconds,
        )


def quantile(values: Sequence[float], share: float) -> float:
    """Between the two nearest values, so that few values give no false jumps."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


def figure(value: float) -> str:
    """Three digits or so."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def verdict(value: float, target: float) -> str:
    """A target is for an unloaded machine; here it is only shown."""
    return f"{'within' if value <= target else 'OVER'} {figure(target)}"


def show(table: Table, *notes: str) -> None:
    console = Console(width=110)
    console.print(table)
    for note in (*notes, NOISE):
        console.print(note, highlight=False)
