"""Sizes as people read them."""

from __future__ import annotations


def size_words(count: int) -> str:
    """3 B, 12.5 KB, 1.2 GB."""
    value, unit = float(count), "B"
    for bigger in ("KB", "MB", "GB", "TB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
