"""What a job appends to its status file, JSON lines {"step", "total", "checkpoint"}, and how the
file is followed on disk."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass

from agent.held_directory import HeldDirectory
from core.messages import Progress
from core.sandbox import MB, SandboxRules

STATUS_FILE = "status.jsonl"
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


class StatusTail:
    """Follows one file of a job's directory. Whatever the job puts there instead of a file, a link,
    a FIFO or a device, is not read, and nothing waits for it."""

    def __init__(
        self,
        base: HeldDirectory,
        path: str = STATUS_FILE,
        bytes_max: int = SandboxRules().status_max,
    ) -> None:
        self._base, self._path, self._bytes_max = base, path, bytes_max
        self._offset, self._taken = 0, 0
        self._lines = StatusLines()

    @property
    def note(self) -> str:
        """For the job's owner, once the file was too long."""
        if self._taken < self._bytes_max:
            return ""
        most = f"{self._bytes_max / MB:g} MB (sandbox.status_max_mb)"
        return f"the status file was read up to {most}; later progress is not known"

    def look(self) -> Status:
        """What has come since the last look."""
        return self._lines.feed(self._read())

    def _read(self) -> bytes:
        if self._taken >= self._bytes_max:
            return b""
        try:
            with self._base.open(self._path) as opened:
                size = os.fstat(opened.fileno()).st_size
                if size < self._offset:  # written anew
                    self._offset, self._lines = 0, StatusLines()
                opened.seek(self._offset)
                data = opened.read(READ_MAX)
        except OSError:
            return b""  # the job may have removed it; that is its right
        self._offset += len(data)
        self._taken += len(data)
        return data
