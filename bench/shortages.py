"""How often spot VMs are reclaimed, by the time since their place was last short.

    python -m bench.shortages --supply FILE [--without ZONE] [--numbers 1 2 4 8 12 16]

For VM number n of a place: hours in which the recorded supply could give n, and how often that
ended, by the age of the spell. The planner's own law is printed beside it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from core.errors import ZenError
from core.supply import HOUR_S, Shortage, reclaimed_after_shortage
from sim.replay.supply import Supply, Zone, load_supply

EDGES_H = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, math.inf)


def spells(zone: Zone, number: int, period_s: float) -> Iterator[float]:
    """How long the zone could give so many, each time, in hours; the series repeats. Nothing if it
    always or never could."""
    ends = [*zone.times[1:], period_s]
    steps = [
        (count >= number, end - at)
        for at, end, count in zip(zone.times, ends, zone.counts, strict=True)
    ]
    short = next((i for i, (enough, _) in enumerate(steps) if not enough), None)
    if short is None:
        return
    spell_s = 0.0
    for enough, span_s in (*steps[short:], *steps[:short], (False, 0.0)):
        if enough:
            spell_s += span_s
        elif spell_s:
            yield spell_s / HOUR_S
            spell_s = 0.0


def reclaimed_by_age(supply: Supply, numbers: Sequence[int]) -> list[tuple[float, float, int]]:
    """For each span of age: reclaims per hour, the hours, the reclaims."""
    found = [(0.0, 0) for _ in EDGES_H[1:]]
    for length_h in (
        length
        for zone in supply.zones
        for n in numbers
        for length in spells(zone, n, supply.period_s)
    ):
        for i, (low, high) in enumerate(pairwise(EDGES_H)):
            hours, taken = found[i]
            within = max(0.0, min(length_h, high) - low)
            found[i] = (hours + within, taken + (low < length_h <= high))
    return [(taken / hours if hours else math.nan, hours, taken) for hours, taken in found]


def law(low_h: float, high_h: float) -> float:
    """What the planner expects in the middle of that span, for the hour that follows."""
    middle_h = (low_h + min(high_h, 2 * low_h)) / 2 if low_h else high_h / 2
    now = datetime(2025, 1, 1, tzinfo=UTC)
    return reclaimed_after_shortage([Shortage(0, now - timedelta(hours=middle_h))], 1, now)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.shortages", description=__doc__.split("\n")[0])
    parser.add_argument("--supply", type=Path, required=True, metavar="FILE")
    parser.add_argument("--without", action="append", default=[], metavar="ZONE")
    parser.add_argument("--numbers", type=int, nargs="+", default=[1, 2, 4, 8, 12, 16], metavar="N")
    args = parser.parse_args(words)
    try:
        supply = load_supply(args.supply).without(args.without)
    except ZenError as error:
        print(f"bench.shortages: {error}", file=sys.stderr)
        return 1
    table = Table(
        "hours since it was short", "reclaims per hour", "the planner's", "hours", "reclaims"
    )
    for (low, high), found in zip(
        pairwise(EDGES_H), reclaimed_by_age(supply, args.numbers), strict=True
    ):
        rate, hours, taken = found
        span = f"{low:g} to {high:g}" if high < math.inf else f"over {low:g}"
        table.add_row(span, f"{rate:.2f}", f"{law(low, high):.2f}", f"{hours:,.0f}", f"{taken:,}")
    console = Console(width=110)
    console.print(table)
    days = supply.period_s / 86_400
    console.print(f"{len(supply.zones)} zones, {days:.1f} days of {supply.source}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
