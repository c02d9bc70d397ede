"""The code of jobs, as it is listed and stored.

A *tree* is a sorted list of files and links; its id is the SHA-256 of the list's bytes. A file is a
row of *chunks*: pieces of at most CHUNK bytes, each named by its SHA-256, so that a chunk is stored
once however many files and trees have it. Chunks travel and lie in *packs*: one compressed object
with many of them.

Everything here is read from clients and from a store: nothing is believed before it is checked, and
every size has a bound.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct

from core.errors import BadInput, Fault, ZenError
from core.submission import shown
from stores.base import quoted

CHUNK = 4 * 1024 * 1024
"""Larger files are cut into pieces of this size."""
PACK_CHUNKS_MAX = 4096
PACK_BYTES_MAX = CHUNK + 4 * PACK_CHUNKS_MAX + 4
"""Of a pack before it is compressed."""
PACK_BODY_MAX = PACK_BYTES_MAX + PACK_BYTES_MAX // 128 + 1024
"""Compressed: what cannot be made smaller grows a little."""
LIST_BYTES_MAX = 64 * 1024 * 1024
LIST_BODY_MAX = 12 * 1024 * 1024
ENTRY_BYTES = 256
"""Of a list for each of its files and links: a hash, and a path that is longer than most."""
CHUNK_BYTES = 67
"""Of a list for each further chunk of a file."""
LIST_SPARE = 64 * 1024
PATH_BYTES_MAX = 1024
PARTS_MAX = 64
LEVEL = 3
"""zstd's own default; higher levels take longer than the network that they spare."""
TREE_ID = re.compile(r"[0-9a-f]{64}\Z")
_SIZES = struct.Struct("<I")


class BadTree(ZenError):
    """A stored tree or pack is not what its name says; a human has to look."""

    code = "bad_tree"


class TreeFile(Struct, frozen=True, array_like=True):
    """One file."""

    path: str
    """Below the tree, with / between its parts."""
    executable: bool
    size: int
    chunks: tuple[str, ...]
    """SHA-256 of each piece, in order; none of an empty file."""


class TreeLink(Struct, frozen=True, array_like=True):
    """A symbolic link. Its target, read by itself, stays inside the tree; through another link it
    may lead elsewhere, so nothing but the job ever follows it."""

    path: str
    target: str


class Tree(Struct, frozen=True):
    """All of it, by path."""

    files: tuple[TreeFile, ...]
    links: tuple[TreeLink, ...] = ()
    version: int = 1

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def sizes_of_chunks(self) -> Iterator[tuple[TreeFile, str, int]]:
        """Each file with each of its chunks, and how long that must be."""
        for file in self.files:
            for number, chunk in enumerate(file.chunks):
                yield file, chunk, min(CHUNK, file.size - number * CHUNK)

    def chunks(self) -> list[str]:
        """Each once, in the order of the list: client and service count them alike."""
        return list(dict.fromkeys(chunk for file in self.files for chunk in file.chunks))


class StoredTree(Struct, frozen=True):
    """What a VM reads: the list, and where its chunks lie."""

    listed: bytes
    packs: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    """Of each chunk in the list's order: which pack, and its position there."""


# --- where things lie -------------------------------------------------------------------


def code_prefix(tenant_id: str) -> str:
    """All code of a tenant lies below it."""
    return f"code/{quoted(tenant_id)}"


def tree_key(tenant_id: str, tree_id: str) -> str:
    return f"{code_prefix(tenant_id)}/trees/{tree_id}"


def pack_key(tenant_id: str, pack_id: str) -> str:
    return f"{code_prefix(tenant_id)}/packs/{quoted(pack_id)}"


# --- lists ------------------------------------------------------------------------------


def encode_tree(tree: Tree) -> bytes:
    """The bytes that its id is made of."""
    return msgspec.json.encode(tree)


def tree_id(listed: bytes) -> str:
    return hashlib.sha256(listed).hexdigest()


def list_bytes_max(entries_max: int, size_max: int) -> int:
    """So long the list of a tree within these bounds may be."""
    needed = (entries_max * ENTRY_BYTES) + (size_max // CHUNK) * CHUNK_BYTES + LIST_SPARE
    return min(LIST_BYTES_MAX, needed)


def is_longer(listed: bytes, entries_max: int, size_max: int) -> bool:
    """Whether the list surely has more files, links or chunks than that; known without making
    objects of them. False: it makes at most twice as many strings as a list within the bounds.

    Each entry has strings, and no string begins with a quote that follows a backslash. What ends
    with a backslash hides its last quote, hence twice."""
    strings = 2 * entries_max + size_max // CHUNK + 3
    return listed.count(b'"') - listed.count(b'\\"') > 2 * strings


def decode_tree(listed: bytes) -> Tree:
    """The list, checked; BadInput names the first fault."""
    try:
        tree = msgspec.json.decode(listed, type=Tree)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _fault("list", "something else", f"the list of a tree: {error}") from None
    if tree.version != 1:
        raise _fault("version", str(tree.version), "1")
    for file in tree.files:
        _check_file(file)
    for link in tree.links:
        if (why := link_fault(link.path, link.target)) is not None:
            raise _fault(f"links {shown(link.path)}", shown(link.target), why)
    _check_paths([file.path for file in tree.files], [link.path for link in tree.links])
    return tree


def _check_file(file: TreeFile) -> None:
    wanted = -(-file.size // CHUNK)
    if file.size < 0 or len(file.chunks) != wanted:
        about, got = f"files {shown(file.path)}", f"{len(file.chunks)} chunks"
        raise _fault(about, got, f"{wanted}, of {CHUNK} bytes each but for the last")
    for chunk in file.chunks:
        if TREE_ID.match(chunk) is None:
            raise _fault(f"files {shown(file.path)}", shown(chunk), "SHA-256 in hexadecimal")


def _check_paths(files: Sequence[str], links: Sequence[str]) -> None:
    """Each once and in order; none leads out of the tree, or through a file or a link."""
    for paths in (files, links):
        for path in paths:
            if (why := path_fault(path)) is not None:
                raise _fault("path", shown(path), why)
        if any(after <= before for before, after in pairwise(paths)):
            raise _fault("list", "another order", "paths in order, each once")
    named = {*files, *links}
    if len(named) != len(files) + len(links):
        raise _fault("list", "a path twice", "each path once")
    # With the lowest of all characters between its parts, what is below a path follows it at once.
    for before, after in pairwise(sorted(path.replace("/", "\0") for path in named)):
        if after.startswith(f"{before}\0"):
            above, path = (shown(one.replace("\0", "/")) for one in (before, after))
            raise _fault("path", path, f"a directory, but {above} is none")


def path_fault(path: str) -> str | None:
    """Why the path cannot stand in a tree; None: it can."""
    if not path or len(path.encode(errors="replace")) > PATH_BYTES_MAX:
        return f"1 to {PATH_BYTES_MAX} bytes"
    parts = path.split("/")
    if len(parts) > PARTS_MAX:
        return f"at most {PARTS_MAX} directories deep"
    if any(part in ("", ".", "..") for part in parts) or "\0" in path:
        return "a path below the tree, without . or .. in it"
    return None


def link_fault(path: str, target: str) -> str | None:
    """Why the link cannot stand in a tree; None: it can."""
    if not target or target.startswith("/") or "\0" in target or len(target) > PATH_BYTES_MAX:
        return "a relative path that stays inside the tree"
    depth = path.count("/")
    for part in target.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return "a path that stays inside the tree"
    return None


def missing_runs(chunks: Sequence[str], known: Mapping[str, object]) -> list[tuple[int, int]]:
    """(first, last) of each row of chunks that is not known: small, also if none is."""
    runs: list[tuple[int, int]] = []
    for at, chunk in enumerate(chunks):
        if chunk in known:
            continue
        if runs and runs[-1][1] == at - 1:
            runs[-1] = (runs[-1][0], at)
        else:
            runs.append((at, at))
    return runs


# --- packs ------------------------------------------------------------------------------


def encode_pack(chunks: Sequence[bytes]) -> bytes:
    """How many, how long each is, then all of them; compressed as one."""
    head = struct.pack(f"<{len(chunks) + 1}I", len(chunks), *map(len, chunks))
    return compress(b"".join((head, *chunks)))


def decode_pack(body: bytes) -> list[bytes]:
    """The chunks; BadInput if it is no pack, or larger than one may be."""
    raw = decompress(body, PACK_BYTES_MAX)
    count = _SIZES.unpack_from(raw)[0] if len(raw) >= _SIZES.size else 0
    if not 1 <= count <= PACK_CHUNKS_MAX or len(raw) < 4 + 4 * count:
        raise _fault("body", "something else", f"a pack of 1 to {PACK_CHUNKS_MAX} chunks")
    sizes = struct.unpack_from(f"<{count}I", raw, 4)
    at, view = 4 + 4 * count, memoryview(raw)
    if sum(sizes) != len(raw) - at or not all(0 < size <= CHUNK for size in sizes):
        raise _fault("body", "other sizes", f"chunks of 1 to {CHUNK} bytes, and nothing else")
    made = []
    for size in sizes:
        made.append(bytes(view[at : at + size]))
        at += size
    return made


def hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def compress(data: bytes) -> bytes:
    from zstandard import ZstdCompressor  # noqa: PLC0415  # only jobs with code pay for it

    return ZstdCompressor(level=LEVEL).compress(data)


def decompress(body: bytes, bytes_max: int) -> bytes:
    """BadInput for what is not zstd, or becomes larger than the bound: a frame says its size, and
    no more than that is ever made of it."""
    import zstandard  # noqa: PLC0415

    try:
        size = zstandard.frame_content_size(body)
        if not 0 <= size <= bytes_max:
            expected = f"one zstd frame that says its size, {bytes_max} bytes at most"
            raise _fault("body", f"{size} bytes", expected)
        made: bytes = zstandard.ZstdDecompressor().decompress(
            body, max_output_size=bytes_max, allow_extra_data=False
        )
    except zstandard.ZstdError:
        raise _fault("body", "something else", "one zstd frame") from None
    return made


# --- stored trees -----------------------------------------------------------------------


def encode_stored(stored: StoredTree) -> bytes:
    return compress(msgspec.msgpack.encode(stored))


def decode_stored(body: bytes, wanted: str) -> tuple[Tree, StoredTree]:
    """What is stored under the tree's id; BadTree if it is something else."""
    try:
        stored = msgspec.msgpack.decode(decompress(body, 2 * LIST_BYTES_MAX), type=StoredTree)
        if tree_id(stored.listed) != wanted:
            raise BadTree(f"the list of tree {wanted} has another hash")
        tree = decode_tree(stored.listed)
    except (BadInput, msgspec.MsgspecError) as error:
        raise BadTree(f"the list of tree {wanted} cannot be read: {error}") from error
    if len(stored.places) != len(tree.chunks()):
        raise BadTree(f"the list of tree {wanted} has other chunks than places")
    return tree, stored


def by_pack(tree: Tree, stored: StoredTree) -> Iterator[tuple[str, dict[int, str]]]:
    """Each pack with the chunks that are wanted of it: position in the pack → hash."""
    wanted: dict[int, dict[int, str]] = {}
    for chunk, (pack, number) in zip(tree.chunks(), stored.places, strict=True):
        wanted.setdefault(pack, {})[number] = chunk
    for pack, numbers in sorted(wanted.items()):
        if not 0 <= pack < len(stored.packs):
            raise BadTree(f"a list names pack {pack} of {len(stored.packs)}")
        yield stored.packs[pack], numbers


def uses(tree: Tree) -> dict[str, list[tuple[str, int]]]:
    """Chunk → the files that have it, and at which byte."""
    found: dict[str, list[tuple[str, int]]] = {}
    for file in tree.files:
        for number, chunk in enumerate(file.chunks):
            found.setdefault(chunk, []).append((file.path, number * CHUNK))
    return found


def _fault(field: str, got: str, expected: str) -> BadInput:
    return BadInput([Fault(field, got, expected)])


def packed(sizes: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """Chunks in groups that fit into a pack each, in their order."""
    group: list[str] = []
    room = CHUNK
    for chunk, size in sizes:
        if group and (size > room or len(group) == PACK_CHUNKS_MAX):
            yield group
            group, room = [], CHUNK
        group.append(chunk)
        room -= size
    if group:
        yield group
