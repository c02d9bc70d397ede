"""What of a directory is sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.workdir.choice import BadWorkdir
from cli.workdir.scan import amount, refuse_large, scan
from stores.code_trees import TreeLink


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def paths(root: Path) -> list[str]:
    return [file.path for file in scan(root, 1000).files]


def test_what_ignore_files_leave(tmp_path: Path) -> None:
    """Also nested ones; .zenignore may take back what .gitignore leaves out."""
    write(tmp_path, a_py="", b_log="", keep_log="", data__x_bin="", out__y="", sub__z_log="")
    write(tmp_path, sub__only_txt="", sub__w_tmp="")
    (tmp_path / ".gitignore").write_text("*.log\n/out/\n# words\n")
    (tmp_path / ".zenignore").write_text("data/\n!keep.log\n")
    (tmp_path / "sub" / ".gitignore").write_text("!z.log\n*.tmp\n")
    assert paths(tmp_path) == [
        *(".gitignore", ".zenignore", "a.py", "keep.log"),
        *("sub/.gitignore", "sub/only.txt", "sub/z.log"),
    ]


def test_git_and_caches_never(tmp_path: Path) -> None:
    write(tmp_path, a_py="", sub__b_py="")
    for name in (".git", "__pycache__", "sub/__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()
    assert paths(tmp_path) == ["a.py", "sub/b.py"]


def test_ignore_files_of_the_repository_around_it_count(tmp_path: Path) -> None:
    """From its top down; a directory that it leaves out itself was named on purpose."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.bin\nproj/secret\nbuild/\n")
    write(tmp_path, proj__a_py="", proj__b_bin="", proj__secret="", build__c_py="", build__d_bin="")
    assert paths(tmp_path / "proj") == ["a.py"]
    assert paths(tmp_path / "build") == ["c.py", "d.bin"]


def test_links_inside_are_kept_and_others_refused(tmp_path: Path) -> None:
    write(tmp_path, a_py="", sub__b="")
    (tmp_path / "sub" / "link").symlink_to("../a.py")
    assert scan(tmp_path, 10).links == [TreeLink("sub/link", "../a.py")]
    for target in ("/etc/passwd", "../outside"):
        (tmp_path / "bad").unlink(missing_ok=True)
        (tmp_path / "bad").symlink_to(target)
        with pytest.raises(BadWorkdir, match=f"link bad points to {target}"):
            scan(tmp_path, 10)
    (tmp_path / ".zenignore").write_text("bad\n")
    assert len(scan(tmp_path, 10).links) == 1


def test_names_that_cannot_be_sent_are_named(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py"))).touch()
    with pytest.raises(BadWorkdir, match=r"\\udcff\.py.*UTF-8"):
        scan(tmp_path, 10)


def test_pipes_stay_here(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path, a_py="")
    assert paths(tmp_path) == ["a.py"]


def test_too_much_names_the_largest(tmp_path: Path) -> None:
    write(tmp_path, small="x", data__large_bin="y" * 5000, data__other="z" * 3000)
    found = scan(tmp_path, 10)
    refuse_large(found, 8001)
    with pytest.raises(BadWorkdir, match=r"data/large\.bin \(5\.0 kB\), data/other \(3\.0 kB\)"):
        refuse_large(found, 8000)
    with pytest.raises(BadWorkdir, match=r"more than 2 files .* most are in data \(2\)"):
        scan(tmp_path, 2)


def test_amounts() -> None:
    assert [amount(size) for size in (0, 999, 1000, 12_345, 2_500_000, 3e9)] == [
        "0 bytes", "999 bytes", "1.0 kB", "12 kB", "2.5 MB", "3.0 GB",
    ]  # fmt: skip
