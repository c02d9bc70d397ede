"""The configuration file of a running process, looked at again and again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from config.document import SIZE_MAX

REREAD_EVERY = 20
"""A file whose time and size did not change is read again after so many looks: clocks of network
file systems are coarse, and an edit may keep the size."""


@dataclass(frozen=True, slots=True)
class FileLook:
    """What was seen. Two looks that are equal saw the same edit."""

    raw: bytes
    mark: tuple[int, ...] = ()
    """Time, size and number of the file: a touch counts as an edit."""
    error: str = ""
    """Why it could not be read."""


class ConfigFile(Protocol):
    """Where operators write."""

    @property
    def path(self) -> str: ...

    def look(self) -> FileLook:
        """Never raises for a file that is not there."""
        ...


class WatchedFile:
    """A file on disk. A look costs one stat, now and then a read of some kilobytes; no inotify,
    which sees nothing on network file systems and mounted config maps."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._last = FileLook(b"")
        self._looks = 0

    @property
    def path(self) -> str:
        return str(self._path)

    def look(self) -> FileLook:
        try:
            seen = self._path.stat()
            mark = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
            self._looks += 1
            if mark != self._last.mark or self._looks % REREAD_EVERY == 0:
                with self._path.open("rb") as opened:
                    self._last = FileLook(opened.read(SIZE_MAX + 1), mark)
        except OSError as error:
            self._last = FileLook(b"", error=error.strerror or str(error))
        return self._last
