"""What a group remembers of members that are gone: when to ask for it, and what of it is news."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from core.mig import GroupError, MachineState, ManagedInstance

RECENT = timedelta(minutes=15)
"""Older errors say nothing about now; Google's list survives a later success."""
EVERY = timedelta(seconds=30)


@dataclass(slots=True)
class _Group:
    unborn: frozenset[str] = frozenset()
    """Members that had no VM when last looked at."""
    owed: bool = True
    """Somebody left without our having seen why; a first look owes the recent past."""
    asked_at: datetime | None = None
    told_until: datetime | None = None
    """On Google's clock: whatever is not newer has been told."""


@dataclass(slots=True)
class ErrorHistory:
    """A member's own last error is better than history, so this is asked for only when one left
    before its VM existed."""

    _groups: dict[tuple[str, str], _Group] = field(default_factory=dict)

    def is_due(
        self, group: tuple[str, str], members: Iterable[ManagedInstance], now: datetime
    ) -> bool:
        """Whether the group's errors are worth a call, now that these are its members."""
        known = self._groups.setdefault(group, _Group())
        listed = list(members)
        known.owed = known.owed or bool(known.unborn - {member.name for member in listed})
        known.unborn = frozenset(
            member.name for member in listed if member.machine is MachineState.NONE
        )
        return known.owed and (known.asked_at is None or now - known.asked_at >= EVERY)

    def asked(self, group: tuple[str, str], now: datetime) -> None:
        """The call is made; whether it is answered or not, the next one is for later."""
        self._groups[group].asked_at = now

    def news(
        self,
        group: tuple[str, str],
        members: Iterable[ManagedInstance],
        errors: Iterable[GroupError],
        now: datetime,
    ) -> tuple[GroupError, ...]:
        """Recent errors of instances that are not members any more, the oldest first, each once."""
        known = self._groups[group]
        since = known.told_until or now - RECENT
        listed = {member.name for member in members}
        fresh = sorted((e for e in errors if e.at > since), key=lambda e: (e.at, e.name))
        known.owed = False
        if fresh:
            known.told_until = fresh[-1].at
        return tuple(error for error in fresh if error.name not in listed)
