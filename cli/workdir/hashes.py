"""Hashes of files: read once, and remembered for as long as the file looks the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from cli.workdir.choice import BadWorkdir
from cli.workdir.scan import Scanned, SeenFile
from stores.code_trees import CHUNK, Tree, TreeFile, hash_of

SETTLED_NS = 2_000_000_000
"""A file that changed less than so long before it was read may change again within one tick of its
clock: it is not remembered."""
DIRECTORIES_MAX = 20
"""Directories whose hashes are remembered."""
_Kept = tuple[int, int, int, int, tuple[str, ...]]


class HashCache:
    """Of one directory, in a file of the user's own. Wrong or missing, it costs time alone."""

    def __init__(self, root: Path, where: Path) -> None:
        self._file = where / hashlib.sha256(str(root).encode(errors="replace")).hexdigest()[:32]
        self._known = self._read()

    def get(self, file: SeenFile) -> tuple[str, ...] | None:
        kept = self._known.get(file.path)
        return kept[4] if kept is not None and kept[:4] == file[1:5] else None

    def put_all(self, hashes: Mapping[SeenFile, tuple[str, ...]], before_ns: int) -> None:
        """`before_ns`: when the directory was looked at."""
        settled = before_ns - SETTLED_NS
        known = {
            file.path: (*file[1:5], chunks)
            for file, chunks in hashes.items()
            if file.mtime_ns < settled and file.ctime_ns < settled
        }
        if known == self._known:
            return
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = self._file.with_suffix(f".{os.getpid()}")
            fresh.write_bytes(msgspec.msgpack.encode(known))
            fresh.replace(self._file)
            others = sorted(self._file.parent.iterdir(), key=lambda one: -one.stat().st_mtime_ns)
            for old in others[DIRECTORIES_MAX:]:
                old.unlink(missing_ok=True)

    def _read(self) -> dict[str, _Kept]:
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.msgpack.decode(self._file.read_bytes(), type=dict[str, _Kept])
        return {}


def cache_directory(environment: Mapping[str, str], home: Path) -> Path:
    """As the XDG base directories say."""
    named = environment.get("XDG_CACHE_HOME", "")
    return (Path(named) if named.startswith("/") else home / ".cache") / "zen" / "hashes"


def tree_of(found: Scanned, cache: HashCache, now_ns: int) -> Tree:
    """The list of what was found; BadWorkdir names a file that changes meanwhile."""
    hashes = {file: cache.get(file) or _hash(found.root, file) for file in found.files}
    cache.put_all(hashes, now_ns)
    files = (
        TreeFile(file.path, file.executable, file.size, chunks) for file, chunks in hashes.items()
    )
    return Tree(tuple(files), tuple(found.links))


def _hash(root: Path, file: SeenFile) -> tuple[str, ...]:
    if not file.size:
        return ()
    chunks: list[str] = []
    try:
        fd = os.open(root / file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            at = 0
            while data := _read_chunk(fd, at):
                chunks.append(hash_of(data))
                at += len(data)
            seen = os.fstat(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise BadWorkdir(_unreadable(file.path, error)) from error
    kept = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)
    if at != file.size or kept != file[1:5]:
        raise BadWorkdir(changed(file.path))
    return tuple(chunks)


def read_chunk(root: Path, path: str, offset: int, wanted: str) -> bytes:
    """The chunk of a file at that byte, as it was hashed."""
    try:
        fd = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            data = _read_chunk(fd, offset)
        finally:
            os.close(fd)
    except OSError as error:
        raise BadWorkdir(_unreadable(path, error)) from error
    if hash_of(data) != wanted:
        raise BadWorkdir(changed(path))
    return data


def _read_chunk(fd: int, at: int) -> bytes:
    data = os.pread(fd, CHUNK, at)
    while data and len(data) < CHUNK and (more := os.pread(fd, CHUNK - len(data), at + len(data))):
        data += more
    return data


def changed(path: str) -> str:
    return (
        f"{path} changed while it was read: submit again when it is at rest, or leave it out with "
        "a .zenignore; nothing was submitted"
    )


def _unreadable(path: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return changed(path)
    return f"{path} cannot be read: {error.strerror}; leave it out with a .zenignore"
