"""A store in a directory: one file per log, appended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from stores.base import LogChunk, LogPath, StoreUnavailable, check_range, job_key

_FILE = "output.log"


class LocalStore:
    """Files below `root`. Calls run in threads: a slow disk must not hold up heartbeats."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @asynccontextmanager
    async def writer(self, path: LogPath) -> AsyncIterator[LocalWriter]:
        file = self._file(path)
        try:
            fd = await asyncio.to_thread(_open_for_append, file)
        except OSError as error:
            raise StoreUnavailable(f"cannot write {file}: {error}") from error
        try:
            yield LocalWriter(fd, file)
        finally:
            await asyncio.to_thread(os.close, fd)

    async def read(self, path: LogPath, offset: int, limit: int) -> LogChunk:
        limit = check_range(offset, limit)
        data = await asyncio.to_thread(_read, self._file(path), offset, limit)
        return LogChunk(data, offset + len(data))

    async def size(self, path: LogPath) -> int:
        return await asyncio.to_thread(_size, self._file(path))

    async def attempts(self, tenant_id: str, user_id: str, job_id: str) -> Sequence[int]:
        directory = self._root / job_key("logs", tenant_id, user_id, job_id)
        return await asyncio.to_thread(_numbers, directory)

    def directory(self, key: str) -> Path:
        return self._root / key

    async def close(self) -> None:
        """Nothing is held between calls."""

    def _file(self, path: LogPath) -> Path:
        return self._root / path.key / _FILE


class LocalWriter:
    """Every write is in the file when it returns."""

    def __init__(self, fd: int, file: Path) -> None:
        self._fd, self._file = fd, file

    async def write(self, data: bytes) -> None:
        try:
            await asyncio.to_thread(_write_all, self._fd, data)
        except OSError as error:
            raise StoreUnavailable(f"cannot write {self._file}: {error}") from error


def _open_for_append(file: Path) -> int:
    file.parent.mkdir(parents=True, exist_ok=True)
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read(file: Path, offset: int, limit: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            return opened.read(limit)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreUnavailable(f"cannot read {file}: {error}") from error


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    names = [entry.name for entry in directory.iterdir()]
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())
