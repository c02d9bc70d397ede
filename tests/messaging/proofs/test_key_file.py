"""The file of the scheduler's keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BadInput
from core.ids import RandomIds
from messaging.proofs.key_file import create_scheduler_keys, public_text, read_scheduler_keys
from messaging.proofs.keys import parse_public_keys


def test_made_once_and_for_its_owner(tmp_path: Path) -> None:
    """A file that is there stays as it is; its public half is what workers are told."""
    path = tmp_path / "keys"
    assert create_scheduler_keys(path, RandomIds())
    first = path.read_text()
    assert not create_scheduler_keys(path, RandomIds())
    assert path.read_text() == first
    assert path.stat().st_mode & 0o777 == 0o600
    keys = read_scheduler_keys(path)
    assert parse_public_keys(public_text(keys)) == tuple(key.public for key in keys)


@pytest.mark.parametrize("text", ["", "# nothing\n", "short\n", "A" * 86 + "!\n"])
def test_unusable_file_is_named(tmp_path: Path, text: str) -> None:
    """The error names the setting and never the content."""
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(BadInput) as caught:
        read_scheduler_keys(path)
    assert caught.value.faults[0].field == "workers.key_file"
    assert "short" not in str(caught.value)


def test_file_for_others_is_refused(tmp_path: Path) -> None:
    """Also one that a group may read."""
    path = tmp_path / "keys"
    create_scheduler_keys(path, RandomIds())
    path.chmod(0o640)
    with pytest.raises(BadInput, match="chmod 600"):
        read_scheduler_keys(path)
    with pytest.raises(BadInput, match="zen workers keys create"):
        read_scheduler_keys(tmp_path / "none")
