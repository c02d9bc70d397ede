"""Code of jobs on this VM: each directory is fetched once, checked, and copied for every job that
is given it. What was not used for longest goes first."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import ZenError
from stores.base import READ_MAX, ObjectStore, quoted
from stores.code_trees import (
    LIST_BYTES_MAX,
    PACK_BODY_MAX,
    BadTree,
    StoredTree,
    Tree,
    by_pack,
    decode_pack,
    decode_stored,
    hash_of,
    pack_key,
    tree_key,
    uses,
)

AT_ONCE = 4
"""Packs that are fetched at the same time."""


class NoCode(ZenError):
    """The directory of a job could not be had; the job itself did nothing wrong."""

    code = "no_code"


@dataclass(slots=True)
class _Cached:
    """One directory."""

    path: Path
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    size: int = 0
    """0: not fetched yet."""
    users: int = 0
    used: int = 0


class CodeCache:
    """Below `directory`, which is the agent's alone. What an earlier agent left there is not
    trusted: a VM that lost power may have kept names without their bytes."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._directory, self._bytes_max = directory, bytes_max
        self._known: dict[tuple[str, str], _Cached] = {}
        self._clean = False
        self._cleaning = asyncio.Lock()
        self._count = 0
        self._gone: list[Path] = []
        """Directories under names of their own that nobody reads any more."""

    async def place(self, tenant_id: str, code: str, store: ObjectStore, target: Path) -> None:
        """A copy of the tenant's code at `target`, whose parent is nobody else's until it is whole.
        NoCode: it cannot be had."""
        async with self._cleaning:
            if not self._clean:
                await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
                self._clean = True
        path = self._directory / quoted(tenant_id) / code
        cached = self._known.setdefault((tenant_id, code), _Cached(path))
        try:
            with self._using(cached):
                async with cached.lock:
                    if not cached.size:
                        cached.size = await self._fetch(tenant_id, code, store, path)
                await asyncio.to_thread(copy_tree, path, target)
        except (OSError, ZenError) as error:
            raise NoCode(f"its code {code[:12]} cannot be fetched: {error}") from error
        finally:
            await self._make_room()

    @contextmanager
    def _using(self, cached: _Cached) -> Iterator[None]:
        self._count += 1
        cached.used = self._count
        cached.users += 1
        try:
            yield
        finally:
            cached.users -= 1

    async def _make_room(self) -> None:
        idle = [one for one in self._known.items() if not one[1].users]
        held = sum(one.size for one in self._known.values())
        for key, cached in sorted(idle, key=lambda one: one[1].used):
            if cached.size and held <= self._bytes_max:
                continue
            held -= cached.size
            del self._known[key]
            # Before anybody else's turn: who wants it now makes a new one at the same path.
            with suppress(FileNotFoundError):
                self._gone.append(cached.path.rename(self._fresh("gone")))
        while self._gone:
            await asyncio.to_thread(shutil.rmtree, self._gone.pop(), ignore_errors=True)

    def _fresh(self, kind: str) -> Path:
        """A name that nobody else has, also for a second fetch of the same code."""
        self._count += 1
        return self._directory / f".{kind}-{self._count}"

    async def _fetch(self, tenant_id: str, code: str, store: ObjectStore, path: Path) -> int:
        """How large it is; at least 1."""
        body = await _whole(store, tree_key(tenant_id, code), LIST_BYTES_MAX)
        tree, stored = await asyncio.to_thread(decode_stored, body, code)
        fresh = self._fresh("part")
        try:
            await _laid_out(tree, fresh)
            await self._fill(tenant_id, tree, stored, store, fresh)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            fresh.rename(path)
        except BaseException:
            self._gone.append(fresh)
            raise
        return max(1, tree.size)

    async def _fill(
        self, tenant_id: str, tree: Tree, stored: StoredTree, store: ObjectStore, fresh: Path
    ) -> None:
        lengths = {chunk: size for _, chunk, size in tree.sizes_of_chunks()}
        places = uses(tree)

        async def unpack(pack: str, wanted: Mapping[int, str]) -> None:
            body = await _whole(store, pack_key(tenant_id, pack), PACK_BODY_MAX)
            chunks = await asyncio.to_thread(_checked, body, wanted, lengths)
            await asyncio.to_thread(_write, fresh, chunks, places)

        # A few at a time: the memory of a small VM holds some packs, not all.
        waiting = list(by_pack(tree, stored))
        for first in range(0, len(waiting), AT_ONCE):
            group = (unpack(pack, wanted) for pack, wanted in waiting[first : first + AT_ONCE])
            await asyncio.gather(*group)


async def _laid_out(tree: Tree, root: Path) -> None:
    """Who is told to stop meanwhile waits for its end: afterwards nothing is made there."""
    running = asyncio.ensure_future(asyncio.to_thread(_lay_out, tree, root))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


async def _whole(store: ObjectStore, key: str, bytes_max: int) -> bytes:
    data = b""
    while chunk := await store.get(key, len(data), READ_MAX):
        data += chunk
        if len(data) > bytes_max:
            raise BadTree(f"{key} has more than {bytes_max} bytes")
        if len(chunk) < READ_MAX:
            return data
    if chunk is None:
        raise BadTree(f"the store has no {key}")
    return data


def _checked(
    body: bytes, wanted: Mapping[int, str], lengths: Mapping[str, int]
) -> dict[str, bytes]:
    """The chunks by their hashes; BadTree if one is something else."""
    chunks = decode_pack(body)
    found: dict[str, bytes] = {}
    for number, name in wanted.items():
        data = chunks[number] if 0 <= number < len(chunks) else b""
        if hash_of(data) != name or len(data) != lengths[name]:
            raise BadTree(f"chunk {name} of a stored pack is something else")
        found[name] = data
    return found


def _lay_out(tree: Tree, root: Path) -> None:
    """Directories, empty files and links. No path of a tree leads through one of its links."""
    root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.mkdir(mode=0o700)
    below = {path.rpartition("/")[0] for path in _paths(tree)}
    for directory in sorted(below):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for file in tree.files:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(root / file.path, flags, 0o700 if file.executable else 0o600)
        os.close(fd)
    for link in tree.links:
        (root / link.path).symlink_to(link.target)


def _paths(tree: Tree) -> Iterator[str]:
    yield from (file.path for file in tree.files)
    yield from (link.path for link in tree.links)


def _write(
    root: Path, chunks: Mapping[str, bytes], places: Mapping[str, list[tuple[str, int]]]
) -> None:
    for name, data in chunks.items():
        for path, offset in places[name]:
            fd = os.open(root / path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(fd, memoryview(data)[written:], offset + written)
            finally:
                os.close(fd)


def copy_tree(source: Path, target: Path) -> None:
    """Files, directories and links; a file system that can share blocks does."""
    ahead = [(source, target)]
    while ahead:
        here, there = ahead.pop()
        there.mkdir(parents=True, exist_ok=True)
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_symlink():
                    (there / entry.name).symlink_to(Path(entry.path).readlink())
                elif entry.is_dir():
                    ahead.append((here / entry.name, there / entry.name))
                else:
                    _copy_file(entry, f"{there}/{entry.name}")


def _copy_file(entry: os.DirEntry[str], copy: str) -> None:
    known = entry.stat()
    mode = 0o755 if known.st_mode & 0o100 else 0o644
    source = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(copy, flags, mode)
        try:
            left = known.st_size
            while left and (count := os.sendfile(target, source, None, left)):
                left -= count
        finally:
            os.close(target)
    finally:
        os.close(source)
    if left:
        raise OSError(f"{copy} could not be copied whole")
