"""Files that extend others."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.job_files.documents import BadFile
from cli.job_files.extending import read_extended


def files(tmp_path: Path, **texts: str) -> Path:
    """The first one."""
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path / f"{next(iter(texts))}.yaml"


def test_upper_file_wins(tmp_path: Path) -> None:
    """Mappings are merged, other fields replaced; another program replaces all of the lower one."""
    found = read_extended(
        files(
            tmp_path,
            top="extends: base.yaml\nenvironment: {A: '2'}\nscript: run\ngpu_type: l4\n",
            base="environment: {A: '1', B: '1'}\ncommand: [x]\nshell: true\ngpu_types: [a, b]\n",
        )
    )
    assert found.values == {
        "environment": {"A": "2", "B": "1"},
        "script": "run",
        "gpu_type": "l4",
    }
    assert found.place_of("environment", "B").file.endswith("base.yaml")
    assert found.place_of("environment", "A").file.endswith("top.yaml")


def test_cycle_is_named(tmp_path: Path) -> None:
    start = files(tmp_path, a="extends: b.yaml\n", b="name: x\nextends: a.yaml\n")
    with pytest.raises(BadFile, match=r"b\.yaml:2:10: extends: a cycle: a\.yaml → b\.yaml → a"):
        read_extended(start)


def test_too_many_files(tmp_path: Path) -> None:
    start = files(tmp_path, **{f"f{n}": f"extends: f{n + 1}.yaml\n" for n in range(12)})
    with pytest.raises(BadFile, match="more than 8 files"):
        read_extended(start)


@pytest.mark.parametrize(("said", "words"), [("nosuch.yaml", "no file"), ("[a]", "the name of")])
def test_what_cannot_be_extended(tmp_path: Path, said: str, words: str) -> None:
    with pytest.raises(BadFile, match=words):
        read_extended(files(tmp_path, a=f"extends: {said}\n"))
