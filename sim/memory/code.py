"""core.code_store.CodeStore in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from core.code_store import ChunkPlace, CodePack, CodeTree, CodeUsage, SentChunk, too_much


class MemoryCode:
    """Code of the tenants of one service."""

    def __init__(self) -> None:
        self._packs: dict[tuple[str, str], CodePack] = {}
        self._chunks: dict[tuple[str, str], ChunkPlace] = {}
        self._trees: dict[tuple[str, str], CodeTree] = {}
        self._stored: set[tuple[str, str]] = set()
        """Packs and trees whose objects are."""
        self._of_tree: dict[tuple[str, str], set[str]] = {}

    async def begin_pack(self, pack: CodePack, tenant_max_bytes: int) -> None:
        held = sum(one.size for one in self._packs.values() if one.tenant_id == pack.tenant_id)
        if held + pack.size > tenant_max_bytes:
            raise too_much(pack.tenant_id, tenant_max_bytes)
        self._packs[pack.tenant_id, pack.pack_id] = pack

    async def end_pack(self, tenant_id: str, pack_id: str, chunks: Sequence[SentChunk]) -> int:
        self._stored.add((tenant_id, pack_id))
        before = len(self._chunks)
        for number, chunk in enumerate(chunks):
            place = ChunkPlace(pack_id, number, chunk.size)
            self._chunks.setdefault((tenant_id, chunk.sha256), place)
        return len(self._chunks) - before

    async def places(self, tenant_id: str, chunks: Sequence[str]) -> Mapping[str, ChunkPlace]:
        own = {chunk: self._chunks.get((tenant_id, chunk)) for chunk in chunks}
        return {chunk: place for chunk, place in own.items() if place is not None}

    async def begin_tree(self, tree: CodeTree, packs: Collection[str]) -> bool:
        key = (tree.tenant_id, tree.tree_id)
        if any((tree.tenant_id, pack) not in self._stored for pack in packs):
            return False
        known = self._trees.get(key)
        self._trees[key] = tree if known is None else replace(known, used_at=tree.used_at)
        self._of_tree.setdefault(key, set()).update(packs)
        return True

    async def end_tree(self, tenant_id: str, tree_id: str) -> None:
        self._stored.add((tenant_id, tree_id))

    async def usage(self, tenant_id: str) -> CodeUsage:
        packs = [one.size for one in self._packs.values() if one.tenant_id == tenant_id]
        trees = sum(key[0] == tenant_id and key in self._stored for key in self._trees)
        return CodeUsage(trees, len(packs), sum(packs))

    async def use_tree(self, tenant_id: str, tree_id: str, now: datetime) -> CodeTree | None:
        key = (tenant_id, tree_id)
        tree = self._trees.get(key)
        if tree is None or key not in self._stored:
            return None
        if tree.used_at < now:
            self._trees[key] = tree = replace(tree, used_at=now)
        return tree
