"""The limits that are in force, as the checkers see them: from what was recorded, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sim.memory_tables import Tables

ADOPT_S = 30.0
"""How long a leader may still go by the version before: its looks are seconds apart, and it may
have been frozen for as long as its lease lasts."""


class Limits:
    """A limit that was lowered binds once every leader must have heard of it."""

    def __init__(self, first: Mapping[str, int], tables: Tables, time: Callable[[], float]) -> None:
        self._tables, self._time = tables, time
        self._seen = 0
        self._held: list[tuple[float, Mapping[str, int]]] = [(time(), first)]
        """(since when, limits), newest last; the first one may be older than it matters."""

    def of(self, cluster: str) -> int:
        """The highest limit that a leader may go by now."""
        self._follow()
        now = self._time()
        while len(self._held) > 1 and now - self._held[1][0] > ADOPT_S:
            del self._held[0]
        return max(limits.get(cluster, 0) for _, limits in self._held)

    def _follow(self) -> None:
        for row in self._tables.configs:
            if row.version > self._seen:
                self._seen = row.version
                self._held.append((self._time(), _limits(row.document["clusters"])))


def _limits(clusters: Mapping[str, Mapping[str, int]]) -> Mapping[str, int]:
    return {name: 0 if given.get("drain") else given["vm_max"] for name, given in clusters.items()}
