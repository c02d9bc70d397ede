"""The file of the keys that secrets are sealed with."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from core.errors import BadInput
from core.ids import RandomIds
from scheduler.secrets.key_file import KEYS_MAX, add_key, make_key, read_keys


@pytest.fixture
def ids() -> RandomIds:
    return RandomIds(random.Random(1))


def test_a_new_file_is_for_its_owner_alone_and_stays(tmp_path: Path, ids: RandomIds) -> None:
    file = tmp_path / "secrets.key"
    make_key(file, ids)
    keys = read_keys(file)
    make_key(file, ids)
    assert read_keys(file) == keys
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secrets.key"]


def test_a_newer_key_comes_first(tmp_path: Path, ids: RandomIds) -> None:
    file = tmp_path / "secrets.key"
    make_key(file, ids)
    (old,) = read_keys(file)
    assert add_key(file, ids) == 2
    new, kept = read_keys(file)
    assert kept == old != new
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        ("", 0o600, "1 to"),
        ("hush", 0o600, "as they were written"),
        ("A" * 44, 0o644, "chmod 600"),
        ("A" * 40 + "\n", 0o600, "as they were written"),
    ],
)
def test_a_bad_file_is_refused_without_its_content(
    tmp_path: Path, content: str, mode: int, words: str
) -> None:
    file = tmp_path / "secrets.key"
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(BadInput, match=words) as refused:
        read_keys(file)
    assert not content or content.strip() not in str(refused.value)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="zen secrets key FILE"):
        read_keys(tmp_path / "none")


def test_the_file_is_bounded(tmp_path: Path, ids: RandomIds) -> None:
    file = tmp_path / "secrets.key"
    make_key(file, ids)
    for _ in range(KEYS_MAX - 1):
        add_key(file, ids)
    with pytest.raises(BadInput, match="fewer than"):
        add_key(file, ids)
