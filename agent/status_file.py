"""Follows a job's status file on disk."""

from __future__ import annotations

import os

from agent.held_directory import HeldDirectory
from agent.status import READ_MAX, Status, StatusLines
from core.sandbox import MB, SandboxRules

STATUS_FILE = "status.jsonl"


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
