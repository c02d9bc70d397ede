"""A directory that a job can write to, held open: files beneath it, never through a link.

Paths are not asked twice. Every step is one openat() with O_NOFOLLOW from a descriptor that the
agent holds, so a job that puts a link where a directory or a file was reaches nothing outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK opening a FIFO waits for its other end.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
LINKS_MAX = 40
"""Links on the way to one file, as the kernel has it."""


class NotRegular(OSError):
    """A link, a FIFO, a device: not a file with bytes."""


class HeldDirectory:
    """Holds a descriptor until it is closed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def of(cls, path: Path) -> Self:
        """The last step of the path must not be a link; those before it are the agent's own."""
        return cls(os.open(path, _DIRECTORY))

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def below(self, path: str) -> HeldDirectory:
        """A directory beneath this one; empty: this one again."""
        with self._walk(path.split("/") if path else []) as fd:
            return HeldDirectory(os.dup(fd))

    def open(self, path: str) -> BinaryIO:
        """A regular file beneath. NotRegular or another OSError if it is none."""
        *steps, name = path.split("/")
        with self._walk(steps) as fd:
            file = os.open(name, _FILE, dir_fd=fd)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise NotRegular(f"{path} is not a file")
        return os.fdopen(file, "rb")

    def stat(self, path: str) -> os.stat_result:
        """Of what is there, a link too."""
        *steps, name = path.split("/")
        with self._walk(steps) as fd:
            return os.stat(name, dir_fd=fd, follow_symlinks=False)

    def names(self) -> tuple[list[str], list[str]]:
        """(directories, everything else), sorted."""
        directories: list[str] = []
        others: list[str] = []
        with os.scandir(self._fd) as entries:
            for entry in entries:
                there = directories if entry.is_dir(follow_symlinks=False) else others
                there.append(entry.name)
        return sorted(directories), sorted(others)

    def resolve(self, path: str, names: Sequence[str] = ()) -> str | None:
        """Where the path leads by links beneath; None if it leads out. An absolute link counts if
        it begins with one of `names`, which are this directory's own paths."""
        ahead, links = path.split("/")[::-1], 0
        behind: list[str] = []
        while ahead:
            step = ahead.pop()
            if step in ("", "."):
                continue
            if step == "..":
                if not behind:
                    return None
                behind.pop()
                continue
            target = self.link("/".join([*behind, step]))
            if target is None:
                behind.append(step)
                continue
            links += 1
            if target.startswith("/"):
                home = next((name for name in names if target.startswith(f"{name}/")), None)
                if home is None:
                    return None
                behind, target = [], target[len(home) :]
            if links > LINKS_MAX:
                return None
            ahead += target.split("/")[::-1]
        return "/".join(behind)

    def link(self, path: str) -> str | None:
        """Where the link points; None if it is no link, or nothing."""
        *steps, name = path.split("/")
        try:
            with self._walk(steps) as fd:
                return os.readlink(name, dir_fd=fd)
        except OSError:
            return None

    @contextmanager
    def _walk(self, steps: Sequence[str]) -> Iterator[int]:
        fd = self._fd
        try:
            for step in steps:
                deeper = os.open(step, _DIRECTORY, dir_fd=fd)
                if fd != self._fd:
                    os.close(fd)
                fd = deeper
            yield fd
        finally:
            if fd != self._fd:
                os.close(fd)
