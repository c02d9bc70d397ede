"""What a waiting job met: regions asked, refusals, blocks, preemption attempts and pending
reasons. Folded, so that the trace of a month's wait is a few rows. Pure.

One row per (kind, region, reason): when it was met first and last, and how often. Reasons that
differ only in numbers (moments, counts, prices) or in the zone are the same reason. A job has at
most ROWS_MAX rows; what comes beyond them is counted in one more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

ROWS_MAX = 40
NOTES_PER_CYCLE = 200
"""Pending reasons of so many jobs are noted by one scheduling cycle, the first in order."""
JOBS_PER_REGION = 10
"""So many of the first jobs of a cluster are noted when a region is not asked."""
REPEAT_S = 60.0
"""What happens again within this time is counted, and written with the next note."""
REASON_MAX = 500
_NUMBERS = re.compile(r"(?<=-vm-)[a-z0-9]+|(?<=zones/)[a-z0-9-]+|\d[\d.,:]*")
"""Also the last part of a VM's name, and the zone in the cloud's own words: its zones of a region
are tried in turn."""


class WaitKind(StrEnum):
    """What was met."""

    PENDING_REASON = "pending_reason"
    """Why the job waited, as it was told at that time."""
    VM_REQUEST = "vm_request"
    """The region was asked for a VM because of it."""
    REFUSAL = "refusal"
    """The region could not give that VM."""
    REQUEST_CANCELLED = "request_cancelled"
    """A request that was made because of it was cancelled."""
    NOT_ASKED = "not_asked"
    """The region was not asked: it is blocked, full, or not worth its price yet."""
    PREEMPTION = "preemption"
    """It was simulated whether others must be preempted for it."""
    OTHER = "other"
    """All that came when the job had ROWS_MAX rows."""


@dataclass(frozen=True, slots=True)
class WaitNote:
    """A change: one more of these. No guard; a job that does not exist gets none."""

    uid: str
    kind: WaitKind
    region: str
    reason: str
    at: datetime
    count: int = 1
    """0: what was noted before has lasted until now."""

    @property
    def key(self) -> tuple[str, str, str]:
        return (str(self.kind), self.region, fold_key(self.reason))


@dataclass(frozen=True, slots=True)
class WaitRow:
    """What is kept of them."""

    kind: WaitKind
    region: str
    reason: str
    """The newest words."""
    first_at: datetime
    last_at: datetime
    count: int


def fold_key(reason: str) -> str:
    """The same for reasons that differ only in numbers."""
    return _NUMBERS.sub("#", reason)[:REASON_MAX]


def folded(row: WaitRow | None, note: WaitNote) -> WaitRow:
    """The row with one more note. Both stores go by this rule."""
    reason = note.reason[:REASON_MAX]
    if row is None:
        return WaitRow(note.kind, note.region, reason, note.at, note.at, note.count)
    newer = note.at >= row.last_at
    return WaitRow(
        kind=row.kind,
        region=row.region,
        reason=reason if newer else row.reason,
        first_at=min(row.first_at, note.at),
        last_at=max(row.last_at, note.at),
        count=row.count + note.count,
    )


@dataclass(slots=True)
class _Happened:
    written_at: datetime
    unwritten: int = 0
    note: WaitNote | None = None


@dataclass(slots=True)
class WaitNotes:
    """Turns what is seen again and again into few notes. Kept from cycle to cycle; a new leader
    begins with an empty one, and loses at most a minute's counts."""

    _events: dict[tuple[str, str, str, str], _Happened] = field(default_factory=dict)
    _standing: dict[tuple[str, str], tuple[WaitNote, datetime]] = field(default_factory=dict)
    """(job, region) → what stands, and when it was last seen."""
    _news: list[WaitNote] = field(default_factory=list)

    def happened(self, note: WaitNote) -> None:
        """Something that comes and is over: news at once, repeats once a minute."""
        key = (note.uid, *note.key)
        known = self._events.get(key)
        if known is None:
            self._events[key] = _Happened(note.at)
            self._news.append(note)
        else:
            known.unwritten += note.count
            known.note = note

    def stands(self, found: Mapping[tuple[str, str], str], kind: WaitKind, now: datetime) -> None:
        """All that stands now, (job, region) → reason: what is new begins, what is not there any
        more has lasted until it was last seen."""
        for place, (note, seen_at) in list(self._standing.items()):
            reason = found.get(place)
            if reason is None or fold_key(reason) != fold_key(note.reason):
                del self._standing[place]
                if seen_at > note.at:
                    self._news.append(replace(note, at=seen_at, count=0))
        for (uid, region), reason in found.items():
            known = self._standing.get((uid, region))
            if known is None:
                note = WaitNote(uid, kind, region, reason, now)
                self._news.append(note)
                self._standing[uid, region] = (note, now)
            else:
                self._standing[uid, region] = (known[0], now)

    def take(self, now: datetime) -> list[WaitNote]:
        """What is to be written now."""
        since = now - timedelta(seconds=REPEAT_S)
        for key, known in list(self._events.items()):
            if known.written_at > since:
                continue
            if known.note is None:
                del self._events[key]  # it has not come again
                continue
            self._news.append(replace(known.note, count=known.unwritten))
            self._events[key] = _Happened(now)
        news, self._news = self._news, []
        return news
