"""Follows a job's status file on disk."""

from __future__ import annotations

import os
from pathlib import Path

from agent.status import READ_MAX, Status, StatusLines


class StatusTail:
    """Follows one file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self._lines = StatusLines()

    def look(self) -> Status:
        """What has come since the last look."""
        return self._lines.feed(self._read())

    def _read(self) -> bytes:
        try:
            with self._file.open("rb") as opened:
                size = os.fstat(opened.fileno()).st_size
                if size < self._offset:  # written anew
                    self._offset, self._lines = 0, StatusLines()
                opened.seek(self._offset)
                data = opened.read(READ_MAX)
        except OSError:
            return b""  # the job may have removed it; that is its right
        self._offset += len(data)
        return data
