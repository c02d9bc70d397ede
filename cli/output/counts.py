"""Counts by status, in words."""

from __future__ import annotations

from collections.abc import Mapping


def counted(counts: Mapping[str, int]) -> str:
    """3 running, 12 queued."""
    return ", ".join(f"{n} {name.lower()}" for name, n in counts.items() if n)
