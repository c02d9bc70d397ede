"""What a commit tells the leader's loop: to look at once, or that jobs have come to some clusters,
where they may have to wait anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

TEXT_MAX = 4000
"""PostgreSQL carries 8,000 bytes at most."""


@dataclass(frozen=True, slots=True)
class Wake:
    """One hint."""

    clusters: frozenset[str] | None = None
    """All that is new are jobs of these clusters; None: look at once, whatever it is."""

    @property
    def text(self) -> str:
        """As it travels; empty: look at once. Names of clusters have no blanks."""
        text = " ".join(sorted(self.clusters or ()))
        return text if len(text) <= TEXT_MAX else ""

    @staticmethod
    def of_text(text: str) -> Wake:
        return Wake(frozenset(text.split())) if text else AT_ONCE

    def joined(self, other: Wake | None) -> Wake:
        """One hint for both."""
        if other is None:
            return self
        if self.clusters is None or other.clusters is None:
            return AT_ONCE
        return Wake(self.clusters | other.clusters)


AT_ONCE = Wake()


def new_jobs_in(clusters: Iterable[str]) -> Wake:
    """Jobs were submitted there, and nothing else has happened."""
    return Wake(frozenset(clusters))


class WakeBox:
    """Any number of hints for one reader, who takes them as one."""

    def __init__(self) -> None:
        self._there = asyncio.Event()
        self._wake: Wake | None = None

    def put(self, wake: Wake) -> None:
        self._wake = wake.joined(self._wake)
        self._there.set()

    def is_set(self) -> bool:
        return self._there.is_set()

    async def take(self) -> Wake:
        """As soon as there is one."""
        await self._there.wait()
        self._there.clear()
        wake, self._wake = self._wake, None
        assert wake is not None, "what was put is there"
        return wake
