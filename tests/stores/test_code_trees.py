"""Lists and packs of code: what is taken, and what is refused."""

from __future__ import annotations

import struct

import pytest
from zstandard import ZstdCompressor

from core.errors import BadInput
from stores.code_trees import (
    CHUNK,
    PACK_CHUNKS_MAX,
    BadTree,
    StoredTree,
    Tree,
    TreeFile,
    TreeLink,
    by_pack,
    compress,
    decode_pack,
    decode_stored,
    decode_tree,
    encode_pack,
    encode_stored,
    encode_tree,
    hash_of,
    is_longer,
    link_fault,
    list_bytes_max,
    missing_runs,
    packed,
    tree_id,
)

A, B, C = (letter * 64 for letter in "abc")
TREE = Tree(
    (
        TreeFile("a.py", False, 3, (A,)),
        TreeFile("b/c", True, CHUNK + 1, (B, A)),
        TreeFile("e", False, 0, ()),
    ),
    (TreeLink("b/link", "../a.py"),),
)


def tree(*files: str, links: tuple[TreeLink, ...] = ()) -> bytes:
    return encode_tree(Tree(tuple(TreeFile(path, False, 1, (A,)) for path in files), links))


def test_a_list_comes_back_and_its_id_is_its_hash() -> None:
    listed = encode_tree(TREE)
    assert decode_tree(listed) == TREE
    assert tree_id(listed) == hash_of(listed)
    assert TREE.chunks() == [A, B]
    assert TREE.size == CHUNK + 4
    assert [(chunk, size) for _, chunk, size in TREE.sizes_of_chunks()] == [
        (A, 3), (B, CHUNK), (A, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "listed",
    [
        *(tree(path) for path in ("../x", "/etc/passwd", "a//b", "a/./b", "a/..")),
        *(tree(path) for path in ("", "a\0b", "x" * 1025)),
        tree("b", "a"),
        tree("a", "a"),
        tree("a", "a/b"),
        tree("d/f", links=(TreeLink("d", "."),)),
        tree("a", links=(TreeLink("a", "b"),)),
        tree("a", links=(TreeLink("l", "/etc"),)),
        tree("a", links=(TreeLink("l", "../x"),)),
        tree("a", links=(TreeLink("d/l", "../../x"),)),
        tree("a", links=(TreeLink("l", ""),)),
        encode_tree(Tree((TreeFile("a", False, 1, ()),))),
        encode_tree(Tree((TreeFile("a", False, -1, ()),))),
        encode_tree(Tree((TreeFile("a", False, 1, ("../secret",)),))),
        encode_tree(Tree((TreeFile("a", False, 1, (A.upper(),)),))),
        encode_tree(Tree((), version=2)),
        b"",
        b"[]",
        b'{"files": [["a", 1]]}',
        b"\xff",
    ],
)  # fmt: skip
def test_a_list_that_leads_elsewhere_is_refused(listed: bytes) -> None:
    """Out of the tree, through a link or a file, twice, or to something that is no chunk."""
    with pytest.raises(BadInput):
        decode_tree(listed)


def test_a_list_within_its_bounds_is_not_called_longer() -> None:
    """Whatever its paths are made of."""
    odd = ('",["', "a[b]", "b\\", 'c\\"', "d],[")
    listed = tree(*sorted(odd), links=(TreeLink("z", "a[b]"),))
    assert not is_longer(listed, len(odd) + 1, 0)
    assert is_longer(listed, 2, 0)
    large = encode_tree(Tree((TreeFile("a", False, 50 * CHUNK, (A,) * 50),)))
    assert not is_longer(large, 1, 50 * CHUNK)
    assert is_longer(large, 1, CHUNK)
    assert len(large) <= list_bytes_max(1, 50 * CHUNK)


def test_a_file_is_no_directory_whatever_lies_between() -> None:
    """In the order of paths others may come between a file and what is below it."""
    assert len(decode_tree(tree("a", "a.b", "a0/c")).files) == 3
    with pytest.raises(BadInput, match="a directory, but"):
        decode_tree(tree("a", "a-b", "a.b", "a/c"))


def test_links_stay_inside() -> None:
    assert link_fault("a/b/link", "../../c") is None
    assert link_fault("a/link", "./x/../y") is None
    assert link_fault("link", "x/../../y") is not None
    assert link_fault("a/link", "..//../x") is not None


def test_missing_chunks_are_rows() -> None:
    assert missing_runs([A, B, C], {}) == [(0, 2)]
    assert missing_runs([A, B, C], {B: 1}) == [(0, 0), (2, 2)]
    assert missing_runs([A], {A: 1}) == []


def test_a_pack_comes_back() -> None:
    chunks = [b"one", b"x" * CHUNK, b"2"]
    with pytest.raises(BadInput):
        decode_pack(encode_pack([*chunks, b"y" * CHUNK]))
    assert decode_pack(encode_pack(chunks[::2])) == chunks[::2]
    assert decode_pack(encode_pack([chunks[1]])) == [chunks[1]]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not zstd",
        compress(b""),
        compress(struct.pack("<I", 0)),
        compress(struct.pack("<I", PACK_CHUNKS_MAX + 1)),
        compress(struct.pack("<2I", 1, 5) + b"four"),
        compress(struct.pack("<2I", 1, 3) + b"four"),
        compress(struct.pack("<2I", 1, 0)),
        compress(struct.pack("<I", 2**32 - 1) + b"x" * 100),
        encode_pack([b"a"]) + b"more",
        compress(bytes(1024**3)),
    ],
)
def test_what_is_no_pack_is_refused(body: bytes) -> None:
    """Also a small body that would become a gigabyte: not even a part of it is made."""
    with pytest.raises(BadInput):
        decode_pack(body)


def test_a_frame_that_hides_its_size_is_refused() -> None:
    hidden = ZstdCompressor(write_content_size=False).compress(bytes(10_000_000))
    with pytest.raises(BadInput, match="says its size"):
        decode_pack(hidden)


def test_chunks_are_packed_in_their_order() -> None:
    third = CHUNK // 3
    groups = list(packed([("a", third), ("b", third), ("c", CHUNK), ("d", 1), ("e", third)]))
    assert groups == [["a", "b"], ["c"], ["d", "e"]]
    small = list(packed((str(number), 1) for number in range(PACK_CHUNKS_MAX + 1)))
    assert [len(group) for group in small] == [PACK_CHUNKS_MAX, 1]


def test_a_stored_tree_says_where_its_chunks_lie() -> None:
    listed = encode_tree(TREE)
    stored = StoredTree(listed, ("p1", "p2"), ((1, 7), (0, 2)))
    found, read = decode_stored(encode_stored(stored), tree_id(listed))
    assert found == TREE
    assert list(by_pack(found, read)) == [("p1", {2: B}), ("p2", {7: A})]


def test_a_stored_tree_that_is_another_is_noticed() -> None:
    listed = encode_tree(TREE)
    good = StoredTree(listed, ("p1",), ((0, 0), (0, 1)))
    for wanted, stored in ((A, good), (tree_id(listed), StoredTree(listed, (), ()))):
        with pytest.raises(BadTree):
            decode_stored(encode_stored(stored), wanted)
    with pytest.raises(BadTree):
        decode_stored(b"torn", tree_id(listed))
    with pytest.raises(BadTree, match="pack 3"):
        list(by_pack(TREE, StoredTree(listed, ("p1",), ((3, 0), (0, 1)))))
