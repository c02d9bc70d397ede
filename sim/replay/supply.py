"""How many VMs each zone could give, and when: the recorded supply as a value that repeats."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

from core.errors import BadInput, Fault
from sim.replay.tables import BadTrace, Table, read_table

_TIME_COLUMNS = ("time_utc", "time")
UNBOUNDED = 1_000_000
"""A zone that gave all that was asked for: nobody knows how many more it had."""


@dataclass(frozen=True, slots=True)
class Zone:
    """One place that gives VMs. `counts[i]` holds from `times[i]` to the next one."""

    name: str
    usd_per_hour: float
    times: tuple[float, ...]
    """Seconds from the beginning of the series; the first is 0, and only changes are kept."""
    counts: tuple[int, ...]

    mean: float
    """How many it could give, over time; counts that mean "or more" as they were recorded."""

    def count_at(self, offset_s: float) -> int:
        return self.counts[bisect_right(self.times, offset_s) - 1]


@dataclass(frozen=True, slots=True)
class Supply:
    """All zones over one period, after which the series begins anew."""

    source: str
    zones: tuple[Zone, ...]
    period_s: float

    def without(self, names: Iterable[str]) -> Supply:
        """The supply without these zones; each must be one of them."""
        gone = list(names)
        known = {zone.name for zone in self.zones}
        expected = f"a zone of {self.source}: {', '.join(sorted(known))}"
        faults = [Fault("zone", repr(name), expected) for name in gone if name not in known]
        if faults:
            raise BadInput(faults)
        kept = tuple(zone for zone in self.zones if zone.name not in gone)
        if not kept:
            raise BadInput([Fault("zones", "none left", "at least one")])
        return replace(self, zones=kept)

    def only(self, names: Sequence[str]) -> Supply:
        """These zones alone."""
        known = {zone.name: zone for zone in self.zones}
        expected = f"a zone of {self.source}: {', '.join(sorted(known))}"
        faults = [Fault("zone", repr(name), expected) for name in names if name not in known]
        if faults or not names:
            raise BadInput(faults or [Fault("zones", "none", "at least one")])
        return replace(self, zones=tuple(zone for zone in self.zones if zone.name in names))

    def priced(self, usd_per_hour: Mapping[str, float]) -> Supply:
        """With prices by region or by zone; every zone needs one."""
        found = {
            zone.name: usd_per_hour.get(zone.name, usd_per_hour.get(region_of(zone.name)))
            for zone in self.zones
        }
        missing = sorted(name for name, price in found.items() if price is None)
        if missing:
            raise BadInput(
                [Fault("prices", "none", f"a price for {name} or its region") for name in missing]
            )
        zones = tuple(replace(zone, usd_per_hour=found[zone.name] or 0.0) for zone in self.zones)
        return replace(self, zones=zones)


def region_of(zone: str) -> str:
    """us-east4-a → us-east4 (Google), us-east-1a → us-east-1 (Amazon)."""
    google = re.fullmatch(r"(.+\d)-[a-z]", zone)
    amazon = re.fullmatch(r"(.+-\d+)[a-z]", zone)
    found = google or amazon
    return found[1] if found else zone


def make_zone(
    name: str,
    series: Sequence[tuple[float, int]],
    period_s: float,
    usd_per_hour: float = 1.0,
    cap: int = UNBOUNDED,
) -> Zone:
    """A zone from (second, count) pairs in order; repeats of a count are left out, and a count of
    `cap` means that many or more."""
    kept = [series[0]]
    kept += [after for before, after in pairwise(series) if after[1] != before[1]]
    ends = [*(at for at, _ in series[1:]), period_s]
    given = sum(count * (end - at) for (at, count), end in zip(series, ends, strict=True))
    times = tuple(at for at, _ in kept)
    counts = tuple(count if count < cap else UNBOUNDED for _, count in kept)
    return Zone(name, usd_per_hour, times, counts, given / period_s)


def load_supply(path: Path, *, exact: bool = False) -> Supply:
    """Counts (or zeros and ones) per zone over time: a column of times, then one per zone. The
    highest count of the file is the most that was asked for, so it means "that many or more",
    unless the counts are said to be exact."""
    table = read_table(path)
    clock = table.columns[0]
    if clock not in _TIME_COLUMNS or table.has("event"):
        raise BadTrace(
            f"{path}, line 1: expected a first column named {' or '.join(_TIME_COLUMNS)} and then "
            "one column for each zone with how many VMs it could give"
        )
    seconds = _seconds(table, clock)
    names = table.columns[1:]
    counts = {name: [row.whole(name) for row in table.rows] for name in names}
    cap = UNBOUNDED if exact else max(1, *(max(column) for column in counts.values()))
    steps = [after - before for before, after in pairwise(seconds)]
    period_s = seconds[-1] + (median(steps) if steps else 3600.0)
    zones = tuple(
        make_zone(name, list(zip(seconds, column, strict=True)), period_s, cap=cap)
        for name, column in counts.items()
    )
    return Supply(path.name, zones, period_s)


def _seconds(table: Table, clock: str) -> list[float]:
    start: datetime = table.rows[0].moment(clock)
    found: list[float] = []
    for row in table.rows:
        second = (row.moment(clock) - start).total_seconds()
        if found and second <= found[-1]:
            raise row.bad(clock, "a time after that of the line before")
        found.append(second)
    return found


def load_prices(path: Path) -> dict[str, float]:
    """Region → dollars per GPU-hour."""
    table = read_table(path)
    if not table.has("region", "usd_per_gpu_hour"):
        raise BadTrace(f"{path}, line 1: expected the columns region and usd_per_gpu_hour")
    return {row.text("region"): row.number("usd_per_gpu_hour", least=0.0001) for row in table.rows}
