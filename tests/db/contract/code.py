"""What tenants have sent: what every CodeStore does."""

from __future__ import annotations

import pytest

from core.code_store import ChunkPlace, CodePack, CodeStore, CodeTree, CodeUsage, SentChunk
from core.errors import Conflict
from tests.db.builders import at

A, B, C = (letter * 64 for letter in "abc")
TREE = CodeTree("team-a", "1" * 64, 2, 30, at(1), at(1))
ROOM = 1000


async def packed(code: CodeStore, pack_id: str, *chunks: str, tenant_id: str = "team-a") -> int:
    await code.begin_pack(CodePack(tenant_id, pack_id, 100, at(1)), ROOM)
    return await code.end_pack(tenant_id, pack_id, [SentChunk(one, 10) for one in chunks])


class Code:
    async def test_chunks_are_found_once_their_pack_is_stored(self, code: CodeStore) -> None:
        """By their own tenant alone, where they came first."""
        await code.begin_pack(CodePack("team-a", "p1", 100, at(1)), ROOM)
        assert await code.places("team-a", [A, B]) == {}
        assert await code.end_pack("team-a", "p1", [SentChunk(A, 10), SentChunk(B, 20)]) == 2
        assert await packed(code, "p2", B, C) == 1
        assert await code.places("team-a", [A, B, C]) == {
            A: ChunkPlace("p1", 0, 10),
            B: ChunkPlace("p1", 1, 20),
            C: ChunkPlace("p2", 1, 10),
        }
        assert await code.places("team-b", [A, B, C]) == {}
        assert await code.places("team-a", []) == {}

    async def test_a_tenant_has_a_bound(self, code: CodeStore) -> None:
        """What others have does not count."""
        await packed(code, "p1", A)
        with pytest.raises(Conflict, match="team-a"):
            await code.begin_pack(CodePack("team-a", "p2", 901, at(1)), ROOM)
        await code.begin_pack(CodePack("team-a", "p3", 900, at(1)), ROOM)
        await code.begin_pack(CodePack("team-b", "p4", 1000, at(1)), ROOM)
        assert await code.usage("team-a") == CodeUsage(0, 2, 1000)

    async def test_a_tree_is_there_once_its_list_is_stored(self, code: CodeStore) -> None:
        """For its own tenant alone; each use is remembered."""
        await packed(code, "p1", A)
        assert await code.begin_tree(TREE, ["p1"])
        assert await code.use_tree("team-a", TREE.tree_id, at(2)) is None
        await code.end_tree("team-a", TREE.tree_id)
        assert await code.use_tree("team-b", TREE.tree_id, at(2)) is None
        later = at(3 * 3600)
        used = await code.use_tree("team-a", TREE.tree_id, later)
        assert used is not None
        assert (used.files, used.size, used.created_at, used.used_at) == (2, 30, at(1), later)
        assert await code.begin_tree(TREE, ["p1"])
        assert await code.usage("team-a") == CodeUsage(1, 1, 100)

    async def test_a_tree_needs_its_packs(self, code: CodeStore) -> None:
        """Stored, and of the same tenant."""
        await packed(code, "p1", A)
        await code.begin_pack(CodePack("team-a", "p2", 100, at(1)), ROOM)
        await packed(code, "p3", A, tenant_id="team-b")
        for packs in (["p1", "p2"], ["p1", "p3"], ["gone"]):
            assert not await code.begin_tree(TREE, packs)
        assert await code.use_tree("team-a", TREE.tree_id, at(2)) is None
