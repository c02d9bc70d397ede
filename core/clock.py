"""The one place that asks the operating system what time it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The real clock. Simulations pass another object with the same methods."""

    def now(self) -> datetime:
        """Wall time, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never jump back; only differences mean something."""
        return time.monotonic()
