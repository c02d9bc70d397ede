"""A store in a directory: one file per log, appended."""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from stores.base import LogChunk, LogPath, StoredObject, StoreUnavailable, check_range, job_key

_FILE = "output.log"
_CHUNK = 1024 * 1024
_tries = itertools.count()


class LocalStore:
    """Files below `root`. Calls run in threads: a slow disk must not hold up heartbeats."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @asynccontextmanager
    async def writer(self, path: LogPath) -> AsyncIterator[LocalWriter]:
        file = self._file(path)
        with _writing(file):
            fd = await asyncio.to_thread(_open_for_append, file)
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
        return await self.numbers(job_key("logs", tenant_id, user_id, job_id))

    # --- whole files --------------------------------------------------------------------

    async def save(self, key: str, source: BinaryIO) -> StoredObject:
        return await asyncio.to_thread(_save, self._root, self._root / key, source)

    async def put(self, key: str, data: bytes) -> None:
        await self.save(key, io.BytesIO(data))

    async def get(self, key: str, offset: int, limit: int) -> bytes | None:
        limit = check_range(offset, limit)
        file = self._root / key
        data = await asyncio.to_thread(_read, file, offset, limit)
        return None if not data and not await asyncio.to_thread(file.is_file) else data

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(_delete, self._root / key)

    async def numbers(self, key: str) -> Sequence[int]:
        return await asyncio.to_thread(_numbers, self._root / key)

    def directory(self, key: str) -> Path:
        return self._root / key

    def scoped(self, token: Callable[[], str]) -> LocalStore:  # noqa: ARG002  # no tokens here
        return self

    async def close(self) -> None:
        """Nothing is held between calls."""

    def _file(self, path: LogPath) -> Path:
        return self._root / path.key / _FILE


class LocalWriter:
    """Every write is in the file when it returns."""

    def __init__(self, fd: int, file: Path) -> None:
        self._fd, self._file = fd, file

    async def write(self, data: bytes) -> None:
        with _writing(self._file):
            await asyncio.to_thread(_write_all, self._fd, data)


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"cannot write {file}: {error}") from error


def _save(root: Path, file: Path, source: BinaryIO) -> StoredObject:
    """Under another name first, so that nobody ever reads half of it; the directories as well as
    the file are on the disk before it counts."""
    source.seek(0)
    digest, size = hashlib.sha256(), 0
    # A name of its own for each try: one that nobody waits for any more may still be writing.
    part = file.with_name(f".part-{os.getpid()}-{threading.get_ident()}-{next(_tries)}")
    with _writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        while data := source.read(_CHUNK):  # an OSError of the source stays what it is
            digest.update(data)
            size += len(data)
            with _writing(file):
                _write_all(fd, data)
        with _writing(file):
            _settle(fd, part, file, root)
    finally:
        os.close(fd)
        part.unlink(missing_ok=True)
    return StoredObject(size, digest.hexdigest())


def _delete(file: Path) -> None:
    """With its directory if that is empty: numbers() would name it for ever."""
    with _writing(file):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        file.parent.rmdir()


def _settle(fd: int, part: Path, file: Path, root: Path) -> None:
    os.fsync(fd)
    part.rename(file)
    for directory in file.parents:
        _sync_directory(directory)
        if directory == root:
            return


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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
