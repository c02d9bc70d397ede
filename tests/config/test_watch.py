"""Looking at a file: edits, touches and disappearances are seen, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from config.document import SIZE_MAX
from config.watch import REREAD_EVERY, WatchedFile


def test_an_edit_is_seen_and_only_an_edit(tmp_path: Path) -> None:
    """Looks at the same content are equal; an edit, a touch, another file in its place are not."""
    path = tmp_path / "zen.yaml"
    path.write_text("a: 1\n")
    file = WatchedFile(path)
    first = file.look()
    assert (first.raw, file.look() == first) == (b"a: 1\n", True)
    path.write_text("a: 22\n")
    second = file.look()
    assert second.raw == b"a: 22\n"
    os.utime(path, (1, 1))
    third = file.look()
    assert (third.raw, third == second) == (second.raw, False)
    fresh = tmp_path / "fresh"
    fresh.write_text("a: 33\n")
    os.utime(fresh, (1, 1))
    fresh.replace(path)
    assert file.look().raw == b"a: 33\n"


def test_an_edit_that_hides_is_found_later(tmp_path: Path) -> None:
    """Same size, same time, same inode: a read now and then finds it all the same."""
    path = tmp_path / "zen.yaml"
    path.write_text("a: 1\n")
    file = WatchedFile(path)
    seen = path.stat()
    file.look()
    path.write_text("a: 2\n")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    looks = [file.look().raw for _ in range(REREAD_EVERY)]
    assert b"a: 2\n" in looks


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """The reason is in the look; a file that is too big is not read to its end."""
    path = tmp_path / "zen.yaml"
    assert WatchedFile(path).look().error == "No such file or directory"
    path.mkdir()
    assert WatchedFile(path).look().error == "Is a directory"
    path.rmdir()
    path.write_bytes(b"x" * (SIZE_MAX + 100))
    assert len(WatchedFile(path).look().raw) == SIZE_MAX + 1
