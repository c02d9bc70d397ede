"""Floors by the clock on the wall: so many VMs are kept warm at these hours of these days."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class Floor:
    """`vm_min` VMs from `start` to `end` on these days. An end before the start is in the night
    after; the day is the one on which it starts."""

    days: frozenset[int]
    """0 is Monday."""
    start: time
    end: time
    timezone: str
    vm_min: int

    def holds(self, now: datetime) -> bool:
        """Whether it holds at this moment."""
        local = now.astimezone(ZoneInfo(self.timezone))
        today, yesterday = local.weekday(), (local.weekday() - 1) % 7
        clock = local.time()
        if self.start < self.end:
            return today in self.days and self.start <= clock < self.end
        late = today in self.days and clock >= self.start
        return late or (yesterday in self.days and clock < self.end)

    def next_change(self, now: datetime) -> datetime:
        """The next moment at which it may begin or end to hold."""
        zone = ZoneInfo(self.timezone)
        local = now.astimezone(zone)
        moments = (
            datetime.combine(local.date() + timedelta(days=day), clock, zone).astimezone(now.tzinfo)
            for day in range(3)
            for clock in (self.start, self.end)
        )
        return min(moment for moment in moments if moment > now)


def floor_at(vm_min: int, floors: Iterable[Floor], now: datetime) -> int:
    """How many VMs are kept warm now: the highest floor that holds."""
    return max([vm_min, *(floor.vm_min for floor in floors if floor.holds(now))])


def parse_days(words: str) -> frozenset[int] | None:
    """`mon-fri`, `sat,sun`, `fri-mon`; None if it is neither."""
    found: set[int] = set()
    for part in words.lower().replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last or first) not in DAYS:
            return None
        start, end = DAYS.index(first), DAYS.index(last or first)
        found |= {(start + step) % 7 for step in range((end - start) % 7 + 1)}
    return frozenset(found)


def parse_clock(words: str) -> time | None:
    """`08:00`; `24:00` is midnight. None if it is neither."""
    hour, _, minute = words.partition(":")
    if not (hour.isdigit() and minute.isdigit() and len(minute) == 2 and len(hour) <= 2):
        return None
    hours, minutes = int(hour), int(minute)
    if (hours, minutes) == (24, 0):
        return time(0, 0)
    return time(hours, minutes) if hours < 24 and minutes < 60 else None
