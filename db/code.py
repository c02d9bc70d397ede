"""PostgreSQL behind core.code_store.CodeStore."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from core.code_store import ChunkPlace, CodePack, CodeTree, CodeUsage, SentChunk, too_much
from db.store import PostgresStore

ASKED_AT_ONCE = 10_000
USED_EVERY = timedelta(minutes=10)
"""A tree that was used a moment ago is not written again."""
_TREE = "tenant_id, tree_id, files, bytes, created_at, used_at"
# One tenant's writers wait for each other, so that its bound holds.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('code/' || %s, 0))"
_HELD = "SELECT coalesce(sum(bytes), 0) FROM code_packs WHERE tenant_id = %s"
_BEGIN_PACK = """
INSERT INTO code_packs (tenant_id, pack_id, bytes, created_at) VALUES (%s, %s, %s, %s)
"""
_END_PACK = "UPDATE code_packs SET stored = true WHERE tenant_id = %s AND pack_id = %s"
# In one order, so that two packs with the same chunks never wait for each other.
_CHUNKS = """
INSERT INTO code_chunks (tenant_id, sha256, pack_id, number, bytes)
SELECT %s, x.sha256, %s, x.number - 1, x.bytes
FROM unnest(%s::bytea[], %s::int[]) WITH ORDINALITY AS x(sha256, bytes, number)
ORDER BY x.sha256, x.number
ON CONFLICT DO NOTHING
"""
_PLACES = """
SELECT sha256, pack_id, number, bytes FROM code_chunks
WHERE tenant_id = %s AND sha256 = ANY(%s::bytea[])
"""
_HOLD_PACKS = """
SELECT pack_id FROM code_packs WHERE tenant_id = %s AND pack_id = ANY(%s::text[]) AND stored
ORDER BY pack_id FOR SHARE
"""
_BEGIN_TREE = f"""
INSERT INTO code_trees ({_TREE}) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (tenant_id, tree_id) DO UPDATE SET used_at = excluded.used_at
"""
_OF_TREE = """
INSERT INTO code_tree_packs (tenant_id, tree_id, pack_id) SELECT %s, %s, x FROM unnest(%s::text[]) x
ON CONFLICT DO NOTHING
"""
_END_TREE = "UPDATE code_trees SET stored = true WHERE tenant_id = %s AND tree_id = %s"
_USAGE = """
SELECT (SELECT count(*) FROM code_trees WHERE tenant_id = %s AND stored), count(*),
    coalesce(sum(bytes), 0) FROM code_packs WHERE tenant_id = %s
"""
_ONE = f"SELECT {_TREE} FROM code_trees WHERE tenant_id = %s AND tree_id = %s AND stored"
_USED = f"""
UPDATE code_trees SET used_at = greatest(used_at, %s)
WHERE tenant_id = %s AND tree_id = %s AND stored RETURNING {_TREE}
"""


class PostgresCode:
    """Over the store's connections."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def begin_pack(self, pack: CodePack, tenant_max_bytes: int) -> None:
        async with self._store.connection() as connection, connection.transaction():
            await connection.execute(_LOCK, (pack.tenant_id,))
            held = await (await connection.execute(_HELD, (pack.tenant_id,))).fetchall()
            if held[0][0] + pack.size > tenant_max_bytes:
                raise too_much(pack.tenant_id, tenant_max_bytes)
            values = (pack.tenant_id, pack.pack_id, pack.size, pack.created_at)
            await connection.execute(_BEGIN_PACK, values)

    async def end_pack(self, tenant_id: str, pack_id: str, chunks: Sequence[SentChunk]) -> int:
        async with self._store.connection() as connection, connection.transaction():
            await connection.execute(_END_PACK, (tenant_id, pack_id))
            hashes = [bytes.fromhex(chunk.sha256) for chunk in chunks]
            sizes = [chunk.size for chunk in chunks]
            values = (tenant_id, pack_id, hashes, sizes)
            return (await connection.execute(_CHUNKS, values)).rowcount

    async def places(self, tenant_id: str, chunks: Sequence[str]) -> Mapping[str, ChunkPlace]:
        found: dict[str, ChunkPlace] = {}
        async with self._store.connection() as connection:
            for first in range(0, len(chunks), ASKED_AT_ONCE):
                part = [bytes.fromhex(chunk) for chunk in chunks[first : first + ASKED_AT_ONCE]]
                rows = await (await connection.execute(_PLACES, (tenant_id, part))).fetchall()
                found.update((row[0].hex(), ChunkPlace(row[1], row[2], row[3])) for row in rows)
        return found

    async def begin_tree(self, tree: CodeTree, packs: Collection[str]) -> bool:
        wanted = sorted(set(packs))
        async with self._store.connection() as connection, connection.transaction():
            held = await connection.execute(_HOLD_PACKS, (tree.tenant_id, wanted))
            if len(await held.fetchall()) != len(wanted):
                return False
            values = (tree.tenant_id, tree.tree_id, tree.files, tree.size)
            await connection.execute(_BEGIN_TREE, (*values, tree.created_at, tree.used_at))
            await connection.execute(_OF_TREE, (tree.tenant_id, tree.tree_id, wanted))
            return True

    async def end_tree(self, tenant_id: str, tree_id: str) -> None:
        async with self._store.connection() as connection:
            await connection.execute(_END_TREE, (tenant_id, tree_id))

    async def usage(self, tenant_id: str) -> CodeUsage:
        async with self._store.connection() as connection:
            rows = await (await connection.execute(_USAGE, (tenant_id, tenant_id))).fetchall()
            return CodeUsage(rows[0][0], rows[0][1], int(rows[0][2]))

    async def use_tree(self, tenant_id: str, tree_id: str, now: datetime) -> CodeTree | None:
        async with self._store.connection() as connection:
            row = await (await connection.execute(_ONE, (tenant_id, tree_id))).fetchone()
            if row is not None and row[5] < now - USED_EVERY:
                row = await (await connection.execute(_USED, (now, tenant_id, tree_id))).fetchone()
        return CodeTree(row[0], row[1], row[2], row[3], row[4], row[5]) if row is not None else None
