"""Hashes of files, and when they are remembered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.workdir import hashes
from cli.workdir.choice import BadWorkdir
from cli.workdir.hashes import HashCache, cache_directory, read_chunk, tree_of
from cli.workdir.scan import SeenFile, scan
from stores.code_trees import CHUNK, Tree, hash_of

LATER_NS = 4_000_000_000_000_000_000


def tree(root: Path, cache: Path, now_ns: int = LATER_NS) -> Tree:
    found = scan(root, 100)
    return tree_of(found, HashCache(found.root, cache), now_ns)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "a.py").write_bytes(b"one")
    (made / "empty").touch()
    (made / "run.sh").write_bytes(b"two")
    (made / "run.sh").chmod(0o755)
    return made


def test_files_are_named_by_their_hashes(root: Path, tmp_path: Path) -> None:
    (root / "big").write_bytes(b"x" * CHUNK + b"y")
    files = {file.path: file for file in tree(root, tmp_path / "c").files}
    assert files["a.py"].chunks == (hash_of(b"one"),)
    assert files["empty"].chunks == ()
    assert files["big"].chunks == (hash_of(b"x" * CHUNK), hash_of(b"y"))
    assert [path for path, file in files.items() if file.executable] == ["run.sh"]


def test_what_is_known_is_not_read_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it looks different, or was fresh when it was read."""
    first = tree(root, tmp_path / "c")
    read: list[str] = []
    really = hashes._hash

    def noted(at: Path, file: SeenFile) -> tuple[str, ...]:
        read.append(file.path)
        return really(at, file)

    monkeypatch.setattr(hashes, "_hash", noted)
    assert tree(root, tmp_path / "c") == first
    assert read == ["empty"]  # nothing is read of it either
    (root / "a.py").write_bytes(b"two")
    os.utime(root / "a.py", ns=(1, 1))
    assert tree(root, tmp_path / "c") != first
    assert read[1:] == ["a.py", "empty"]
    tree(root, tmp_path / "d", now_ns=(root / "a.py").stat().st_ctime_ns)
    read.clear()
    tree(root, tmp_path / "d", now_ns=0)
    assert read == ["a.py", "empty", "run.sh"]


def test_a_broken_cache_costs_time_alone(root: Path, tmp_path: Path) -> None:
    first = tree(root, tmp_path / "c")
    for file in (tmp_path / "c").iterdir():
        file.write_bytes(b"\x00torn")
    assert tree(root, tmp_path / "c") == first
    assert tree(root, root / "a.py" / "no directory") == first


def test_a_file_that_changes_meanwhile_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, cache = scan(root, 100), HashCache(root, tmp_path / "c")
    (root / "a.py").write_bytes(b"longer")
    with pytest.raises(BadWorkdir, match=r"a\.py changed while it was read"):
        tree_of(found, cache, LATER_NS)
    (root / "a.py").unlink()
    with pytest.raises(BadWorkdir, match=r"a\.py changed while it was read"):
        tree_of(found, cache, LATER_NS)


def test_a_chunk_is_read_as_it_was_hashed(root: Path) -> None:
    assert read_chunk(root, "a.py", 0, hash_of(b"one")) == b"one"
    with pytest.raises(BadWorkdir, match=r"a\.py changed"):
        read_chunk(root, "a.py", 0, hash_of(b"two"))


def test_where_hashes_are_remembered() -> None:
    home = Path("/home/ada")
    assert cache_directory({}, home) == home / ".cache/zen/hashes"
    assert cache_directory({"XDG_CACHE_HOME": "/var/c"}, home) == Path("/var/c/zen/hashes")
    assert cache_directory({"XDG_CACHE_HOME": "relative"}, home) == home / ".cache/zen/hashes"
