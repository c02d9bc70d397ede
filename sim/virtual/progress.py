"""How far a run is, on stderr: a line that is written over on a terminal, else one now and then."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from core.clock import SystemClock
from core.ports import Clock

OVER_S = 0.5
LINE_S = 30.0
"""Between two lines where none can be written over: short runs say nothing."""
_ERASE = "\r\x1b[K"


class Underway(Protocol):
    """What is asked of a run."""

    def progress(self) -> str: ...


class ProgressReporter:
    """Shown the run every few virtual seconds; speaks by the wall clock, and changes nothing."""

    def __init__(
        self, out: TextIO | None = None, *, over: bool = False, clock: Clock | None = None
    ) -> None:
        self._out = out or sys.stderr
        self._over = over
        """Whether a line can be written over."""
        self._clock = clock or SystemClock()
        self._began = self._told_at = self._clock.monotonic()

    def __call__(self, run: Underway) -> None:
        now = self._clock.monotonic()
        if now - self._told_at < (OVER_S if self._over else LINE_S):
            return
        self._told_at = now
        line = f"{run.progress()}, {now - self._began:.0f} s"
        self._out.write(f"{_ERASE}{line}" if self._over else f"{line}\n")
        self._out.flush()

    def close(self) -> None:
        """Leaves the line as it found it."""
        if self._over:
            self._out.write(_ERASE)
            self._out.flush()
