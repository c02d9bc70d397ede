"""Log lines as JSON on standard error; small, so that the agent stays small."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TextIO

from core.ports import Clock


class JsonLog:
    """One JSON object per line."""

    def __init__(self, clock: Clock, out: TextIO | None = None, **always: object) -> None:
        self._clock = clock
        self._out = out or sys.stderr
        self._always = always

    def bind(self, **always: object) -> JsonLog:
        """The same journal with more to say on each line."""
        return JsonLog(self._clock, self._out, **{**self._always, **always})

    def info(self, event: str, **facts: object) -> None:
        self._write("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        self._write("warning", event, facts)

    def error(self, event: str, **facts: object) -> None:
        self._write("error", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, object]) -> None:
        at = self._clock.now().isoformat(timespec="milliseconds")
        line = {"timestamp": at, "level": level, "event": event, **self._always, **facts}
        with suppress(OSError):  # the reader of our log is gone; the jobs matter more
            self._out.write(json.dumps(line, default=str) + "\n")
            self._out.flush()
