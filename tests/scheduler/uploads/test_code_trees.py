"""Code that clients send: taken in any order, checked, and never half there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.code_store import CodeRules
from core.errors import BadInput, Conflict
from core.ids import RandomIds
from scheduler.uploads import code_trees
from scheduler.uploads.code_trees import CodeTrees
from sim.memory.code import MemoryCode
from stores.base import StoreUnavailable
from stores.code_trees import (
    Tree,
    TreeFile,
    compress,
    encode_pack,
    encode_tree,
    hash_of,
    tree_id,
    tree_key,
)
from stores.local import LocalStore
from tests.scheduler.api.fakes import StillClock

ONE, TWO = b"print(1)", b"print(22)"


def listed(**files: bytes) -> tuple[str, bytes]:
    made = tuple(
        TreeFile(name, False, len(data), (hash_of(data),)) for name, data in sorted(files.items())
    )
    text = encode_tree(Tree(made))
    return tree_id(text), compress(text)


class Rig:
    def __init__(self, root: Path) -> None:
        self.index, self.store, self.rules = MemoryCode(), LocalStore(root), CodeRules()
        self.trees = CodeTrees(
            self.index, self.store, StillClock(), RandomIds(), lambda: self.rules
        )


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_what_is_missing_is_told_and_then_nothing(rig: Rig) -> None:
    code, body = listed(a=ONE, b=TWO)
    assert (await rig.trees.offer("acme", code, body)).missing == ((0, 1),)
    assert await rig.trees.take_pack("acme", encode_pack([TWO])) == (1, 1)
    assert (await rig.trees.offer("acme", code, body)).missing == ((0, 0),)
    assert await rig.trees.find("acme", code) is None
    assert await rig.trees.take_pack("acme", encode_pack([ONE, TWO])) == (2, 1)
    assert (await rig.trees.offer("acme", code, body)).missing == ()
    found = await rig.trees.find("acme", code)
    assert found is not None
    assert (found.files, found.size) == (2, len(ONE) + len(TWO))


async def test_another_tenant_learns_nothing(rig: Rig) -> None:
    """Neither that a tree exists nor that a chunk does."""
    code, body = listed(a=ONE)
    await rig.trees.take_pack("acme", encode_pack([ONE]))
    await rig.trees.offer("acme", code, body)
    assert await rig.trees.find("other", code) is None
    assert (await rig.trees.offer("other", code, body)).missing == ((0, 0),)


async def test_an_id_that_is_not_the_lists_is_refused(rig: Rig) -> None:
    _, body = listed(a=ONE)
    with pytest.raises(BadInput, match="hash of the list"):
        await rig.trees.offer("acme", "0" * 64, body)


async def test_a_list_with_other_sizes_is_refused(rig: Rig) -> None:
    """A small chunk must not stand for a large file."""
    text = encode_tree(Tree((TreeFile("a", False, 4_000_000, (hash_of(ONE),)),)))
    await rig.trees.take_pack("acme", encode_pack([ONE]))
    with pytest.raises(BadInput, match="4000000 bytes"):
        await rig.trees.offer("acme", tree_id(text), compress(text))


async def test_a_tree_has_bounds(rig: Rig) -> None:
    code, body = listed(a=ONE, b=TWO)
    rig.rules = CodeRules(tree_max_files=1)
    with pytest.raises(BadInput, match="tree_max_files"):
        await rig.trees.offer("acme", code, body)
    rig.rules = CodeRules(tree_max_gb=0)
    with pytest.raises(BadInput, match="tree_max_gb"):
        await rig.trees.offer("acme", code, body)
    rig.rules = CodeRules(tenant_max_gb=0)
    with pytest.raises(Conflict, match="tenant_max_gb"):
        await rig.trees.take_pack("acme", encode_pack([ONE]))


@pytest.mark.parametrize("between", [b",", b" , "])
async def test_a_list_that_is_too_long_is_refused_unread(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, between: bytes
) -> None:
    """A small body must not become a million objects before somebody counts them."""

    def never(*_: object) -> Tree:
        raise AssertionError("objects were made of it")

    monkeypatch.setattr(code_trees, "decode_tree", never)
    rig.rules = CodeRules(tree_max_files=1000)
    text = b'{"files":[' + between.join([b'["a",false,0,[]]'] * 5000) + b"]}"
    with pytest.raises(BadInput, match="tree_max_files"):
        await rig.trees.offer("acme", tree_id(text), compress(text))
    text = b'{"files":[["a",false,0,[' + between.join([b'""'] * 5000) + b"]]]}"
    with pytest.raises(BadInput, match="tree_max_files"):
        await rig.trees.offer("acme", tree_id(text), compress(text))
    text = b" " * 2_000_000
    with pytest.raises(BadInput, match="bytes at most"):
        await rig.trees.offer("acme", tree_id(text), compress(text))


async def test_a_pack_with_nothing_new_is_not_stored(rig: Rig) -> None:
    """It would count against the tenant's bound for nothing."""
    await rig.trees.take_pack("acme", encode_pack([ONE, TWO]))
    assert await rig.trees.take_pack("acme", encode_pack([TWO, TWO])) == (2, 0)
    used, _ = await rig.trees.usage("acme")
    assert used.packs == 1


async def test_a_store_that_fails_leaves_nothing_that_counts(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same body again makes it whole."""
    code, body = listed(a=ONE)

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(rig.store, "put", away)
        with pytest.raises(StoreUnavailable):
            await rig.trees.take_pack("acme", encode_pack([ONE]))
    assert (await rig.trees.offer("acme", code, body)).missing == ((0, 0),)
    await rig.trees.take_pack("acme", encode_pack([ONE]))
    with monkeypatch.context() as broken:
        broken.setattr(rig.store, "put", away)
        with pytest.raises(StoreUnavailable):
            await rig.trees.offer("acme", code, body)
    assert await rig.trees.find("acme", code) is None
    await rig.trees.offer("acme", code, body)
    assert await rig.trees.find("acme", code) is not None
    assert await rig.store.get(tree_key("acme", code), 0, 10)


async def test_many_at_once_do_no_harm(rig: Rig) -> None:
    code, body = listed(a=ONE, b=TWO)
    packs = [rig.trees.take_pack("acme", encode_pack([ONE, TWO])) for _ in range(5)]
    assert sorted(new for _, new in await asyncio.gather(*packs)) == [0, 0, 0, 0, 2]
    offers = await asyncio.gather(*(rig.trees.offer("acme", code, body) for _ in range(5)))
    assert {offer.missing for offer in offers} == {()}
