"""Job files as they are written: values with their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.job_files.documents import BadFile, Place, read_document


def document(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    return file


def test_every_value_has_its_place(tmp_path: Path) -> None:
    file = document(tmp_path, "name: a\nenvironment:\n  SEED: '1'\ncommand: [sh, -c]\n")
    found = read_document(file)
    assert found.values["environment"] == {"SEED": "1"}
    assert found.place_of("environment", "SEED") == Place(str(file), 3, 9)
    assert found.place_of("command", 1) == Place(str(file), 4, 15)
    assert found.place_of("command", 9) == Place(str(file), 4, 10)
    assert found.keys["name",] == Place(str(file), 1, 1)


def test_moments_are_texts(tmp_path: Path) -> None:
    """JSON knows none; a day is as it was written."""
    text = "deadline: 2030-09-01T18:00:00Z\nname: 2030-09-01\n"
    found = read_document(document(tmp_path, text)).values
    assert found == {"deadline": "2030-09-01T18:00:00+00:00", "name": "2030-09-01"}


def test_merge_keys(tmp_path: Path) -> None:
    """`<<` brings what the mapping does not say itself; that is no repeat."""
    text = "labels: &l {a: x, b: y}\nenvironment:\n  <<: *l\n  a: z\n"
    found = read_document(document(tmp_path, text))
    assert found.values["environment"] == {"a": "z", "b": "y"}
    assert found.faults == []


def test_second_key_is_a_fault(tmp_path: Path) -> None:
    found = read_document(document(tmp_path, "name: a\ncommand: [a]\nname: b\n"))
    assert [str(fault).partition("job.yaml")[2] for fault in found.faults] == [
        ":3:1: name stands here a second time; the first is in line 1"
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "got nothing"),
        ("- a\n", "got a list"),
        ("a\n", "got one value"),
        ("a: [1\n", "not YAML"),
        ("a: !!python/object:os.system x\n", "not YAML"),
        (f"a: {'[' * 100}{']' * 100}\n", "nested"),
    ],
)
def test_what_is_no_job_file(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadFile, match=words):
        read_document(document(tmp_path, text))


def test_small_file_that_grows(tmp_path: Path) -> None:
    """Aliases of aliases are counted as often as they are repeated."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    with pytest.raises(BadFile, match="too much is nested or repeated"):
        read_document(document(tmp_path, "\n".join(lines)))


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="No such file"):
        read_document(tmp_path / "nosuch.yaml")
