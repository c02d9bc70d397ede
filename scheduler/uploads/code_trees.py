"""Takes the code of jobs: packs of chunks, then the list of a directory whose chunks are all there.

What a tenant has is a secret of the tenant's: nobody else is told that a chunk exists, so the same
file of two tenants is stored twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.code_store import (
    ChunkPlace,
    CodePack,
    CodeRules,
    CodeStore,
    CodeTree,
    CodeUsage,
    SentChunk,
)
from core.errors import BadInput, Conflict, Fault
from core.ports import Clock, Ids
from core.submission import shown
from stores.base import ObjectStore
from stores.code_trees import (
    StoredTree,
    Tree,
    decode_pack,
    decode_tree,
    decompress,
    encode_stored,
    hash_of,
    is_longer,
    list_bytes_max,
    missing_runs,
    pack_key,
    tree_id,
    tree_key,
)

TRIES = 3
AT_ONCE = 4
"""Bodies that are checked at the same time: unpacked they are in memory whole."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What became of a list."""

    tree: CodeTree
    missing: tuple[tuple[int, int], ...]
    """Chunks to send first, by their numbers in the list; none: jobs may be given the tree."""


class CodeTrees:
    """The way in. `rules`: as configured right now."""

    def __init__(
        self,
        index: CodeStore,
        objects: ObjectStore,
        clock: Clock,
        ids: Ids,
        rules: Callable[[], CodeRules],
    ) -> None:
        self._index, self._objects = index, objects
        self._clock, self._ids, self._rules = clock, ids, rules
        self.turn = asyncio.Semaphore(AT_ONCE)
        """Taken once a body is there."""

    async def find(self, tenant_id: str, wanted: str) -> CodeTree | None:
        """The tenant's tree, which is used now."""
        return await self._index.use_tree(tenant_id, wanted, self._clock.now())

    async def usage(self, tenant_id: str) -> tuple[CodeUsage, CodeRules]:
        """What the tenant has, and how much it may send."""
        return await self._index.usage(tenant_id), self._rules()

    async def take_pack(self, tenant_id: str, body: bytes) -> tuple[int, int]:
        """(chunks in it, how many were new). Stored when it returns."""
        chunks = await asyncio.to_thread(_chunks_of, body)
        hashes = [chunk.sha256 for chunk in chunks]
        if len(await self._index.places(tenant_id, hashes)) == len(set(hashes)):
            return len(chunks), 0
        # A name of its own: nobody ever writes over a pack that is read.
        pack = CodePack(tenant_id, self._ids.token(), len(body), self._clock.now())
        await self._index.begin_pack(pack, self._rules().tenant_max_bytes)
        await self._objects.put(pack_key(tenant_id, pack.pack_id), body)
        return len(chunks), await self._index.end_pack(tenant_id, pack.pack_id, chunks)

    async def offer(self, tenant_id: str, wanted: str, body: bytes) -> Offered:
        """Jobs may be given the tree if all its chunks are there."""
        listed, tree = await asyncio.to_thread(self._read, wanted, body)
        now = self._clock.now()
        row = CodeTree(tenant_id, wanted, len(tree.files), tree.size, now, now)
        chunks = tree.chunks()
        for _ in range(TRIES):
            places = await self._index.places(tenant_id, chunks)
            if missing := missing_runs(chunks, places):
                return Offered(row, tuple(missing))
            _check_sizes(tree, places)
            packs = tuple(sorted({place.pack_id for place in places.values()}))
            # False: a pack is gone since. Asked again, its chunks are missing.
            if await self._index.begin_tree(row, packs):
                kept = await asyncio.to_thread(_stored, listed, chunks, packs, places)
                await self._objects.put(tree_key(tenant_id, wanted), kept)
                await self._index.end_tree(tenant_id, wanted)
                return Offered(row, ())
        raise Conflict(f"the packs of tree {wanted} keep changing: send it again")

    def _read(self, wanted: str, body: bytes) -> tuple[bytes, Tree]:
        rules = self._rules()
        bytes_max = list_bytes_max(rules.tree_max_files, rules.tree_max_bytes)
        listed = decompress(body, bytes_max)
        if (found := tree_id(listed)) != wanted:
            raise BadInput([Fault("tree_id", wanted, f"{found}, the hash of the list")])
        if is_longer(listed, rules.tree_max_files, rules.tree_max_bytes):
            raise _too_many("a longer list", rules)
        tree = decode_tree(listed)
        if (count := len(tree.files) + len(tree.links)) > rules.tree_max_files:
            raise _too_many(str(count), rules)
        if tree.size > rules.tree_max_bytes:
            expected = f"at most {rules.tree_max_bytes} (code.tree_max_gb)"
            raise BadInput([Fault("bytes", str(tree.size), expected)])
        return listed, tree


def _too_many(count: str, rules: CodeRules) -> BadInput:
    expected = (
        f"at most {rules.tree_max_files} (code.tree_max_files) with {rules.tree_max_bytes} bytes "
        "in all (code.tree_max_gb)"
    )
    return BadInput([Fault("files", count, expected)])


def _chunks_of(body: bytes) -> list[SentChunk]:
    return [SentChunk(hash_of(one), len(one)) for one in decode_pack(body)]


def _check_sizes(tree: Tree, places: Mapping[str, ChunkPlace]) -> None:
    """A short list must not become a large directory on a VM."""
    for file, chunk, size in tree.sizes_of_chunks():
        if (there := places[chunk].size) != size:
            raise BadInput([Fault(f"files {shown(file.path)}", f"{size} bytes", f"{there}")])


def _stored(
    listed: bytes, chunks: Sequence[str], packs: Sequence[str], places: Mapping[str, ChunkPlace]
) -> bytes:
    numbers = {pack: number for number, pack in enumerate(packs)}
    lie = tuple((numbers[places[one].pack_id], places[one].number) for one in chunks)
    return encode_stored(StoredTree(listed, tuple(packs), lie))
