"""What a job appends to its status file: JSON lines {"step", "total", "checkpoint"}. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from core.messages import Progress

READ_MAX = 64 * 1024
"""At a time. A longer line is skipped: it cannot be one of ours."""


@dataclass(frozen=True, slots=True)
class Status:
    """The newest words of a job; None: nothing said."""

    progress: Progress | None = None
    checkpoint_step: float | None = None


class StatusLines:
    """What was written, in pieces as they came. Wrong lines are the job's own affair and are passed
    over."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> Status:
        """The newest of what this piece says; half a line waits for its end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._skipping and lines:
            del lines[0]
            self._skipping = False
        if len(self._rest) > READ_MAX:
            self._rest, self._skipping = b"", True
        status = Status()
        for line in lines:
            status = _newer(status, line)
        return status


def _newer(status: Status, line: bytes) -> Status:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return status
    if not isinstance(said, dict):
        return status
    step = _number(said.get("step"))
    progress = status.progress if step is None else Progress(step, _number(said.get("total")))
    checkpoint = _checkpoint(said.get("checkpoint"), step)
    return Status(progress, status.checkpoint_step if checkpoint is None else checkpoint)


def _checkpoint(value: object, step: float | None) -> float | None:
    """The step that was saved: a number, {"step": n}, or true for the step of the same line."""
    if value is True:
        return step
    if isinstance(value, dict):
        value = value.get("step")
    return _number(value)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
